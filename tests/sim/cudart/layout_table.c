/* The layouts and error numbers, as our header has them or, with THEIRS, NVIDIA's. */
#ifdef THEIRS
#include <cuda_runtime_api.h>
#include "majors.h"
#else
#include "runtime_abi.h"
#endif

#include "layout_table.h"

const struct layout TABLE[] = {
#define STRUCT(type) {#type, sizeof(type)},
#define FIELD(type, field) {#type "." #field, offsetof(type, field)},
#include "layout.def"
#define INT(majors, field, number) IN_##majors({"cudaDeviceProp." #field, offsetof(struct cudaDeviceProp, field)}, )
#define UINT(majors, field, number) INT(majors, field, number)
#define SIZE(majors, field, number) INT(majors, field, number)
#define INT2(majors, field, a, b) INT(majors, field, a)
#define INT3(majors, field, a, b, c) INT(majors, field, a)
#define BYTES(majors, type, field, count) INT(majors, field, 0)
#define PLAIN(majors, type, field) INT(majors, field, 0)
#include "device_prop.def"
#define DRIVER(number, name) {#name, (size_t)name},
#define RUNTIME(number, name, text) {#name, (size_t)name},
#include "error.def"
    {0, 0},
};
