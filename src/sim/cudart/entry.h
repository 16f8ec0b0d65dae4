/* The entries of libcudart and the functions behind them, both declared from entry.def. Behind an entry is
   sg_NAME(driver, ...), which returns the error that its caller sees and keeps. `driver` is the table for the meaning
   of stream 0 that the caller chose. */
#ifndef SG_RT_ENTRY_H
#define SG_RT_ENTRY_H

#include "libcuda.h"
#include "runtime_abi.h"

#define SHOW_ONE(name, parameters) cudaError_t name parameters;
#define SHOW_PTSZ(name, parameters) cudaError_t name parameters; cudaError_t name##_ptsz parameters;
#define SHOW_PTDS(name, parameters) cudaError_t name parameters; cudaError_t name##_ptds parameters;

#pragma GCC visibility push(default)
#define CALL(majors, streams, name, parameters, arguments) IN_##majors(SHOW_##streams(name, parameters))
#define CALL0(majors, name) IN_##majors(SHOW_ONE(name, (void)))
#define PASS(majors, streams, need, name, function, parameters, arguments) IN_##majors(SHOW_##streams(name, parameters))
#define EXPORT(majors, name)
#define ABSENT(majors, streams, name) IN_##majors(SHOW_##streams(name, (void)))
#include "entry.def"
#undef CALL
#undef CALL0
#undef PASS
#undef EXPORT
#undef ABSENT
#pragma GCC visibility pop

#define CALL(majors, streams, name, parameters, arguments) \
    IN_##majors(cudaError_t sg_##name(const struct sg_rt_driver *driver, UNPAREN parameters);)
#define CALL0(majors, name) IN_##majors(cudaError_t sg_##name(const struct sg_rt_driver *driver);)
#define PASS(majors, streams, need, name, function, parameters, arguments)
#define EXPORT(majors, name)
#define ABSENT(majors, streams, name)
#include "entry.def"
#undef CALL
#undef CALL0
#undef PASS
#undef EXPORT
#undef ABSENT

#endif
