/* Compiled twice, against cuda_abi.h and against cuda.h, into two tables that test_cuda_abi compares. */
#ifdef SG_TEST_WITH_CUDA_H
#include <cuda.h>
#include <stddef.h>
#define TABLE abi_theirs
#define TABLE_COUNT abi_theirs_count
#else
#include "cuda_abi.h"
#define TABLE abi_ours
#define TABLE_COUNT abi_ours_count
#endif
#include "abi_table.h"

#define VALUE(x) {#x, (long long)(x)},
#define TYPE(x) {"sizeof " #x, (long long)sizeof(x)},
#define MEMBER(type, member) \
    {#type "." #member, (long long)(offsetof(type, member) << 16 | sizeof(((type *)0)->member))},

const struct abi_row TABLE[] = {
#define RESULT(name, code, text) VALUE(name)
#include "../../src/driver/cuda_result.def"
#undef RESULT
#define ATTRIBUTE(name, number) VALUE(CU_DEVICE_ATTRIBUTE_##name)
#include "../../src/driver/cuda_device_attribute.def"
#undef ATTRIBUTE
#include "abi.def"
};
const unsigned TABLE_COUNT = sizeof TABLE / sizeof *TABLE;
