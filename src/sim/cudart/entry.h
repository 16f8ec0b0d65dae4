/* What libcudart exports, and what stands behind each entry: both declared from entry.def. Behind an entry is
   sg_NAME(driver, ...), which returns the error that its caller sees and keeps; `driver` is the table for the meaning
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

cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int kind);

/* What nvcc writes into every program's start-up and every <<<>>>. */
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                            void *tid, void *bid, dim3 *block, dim3 *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t bytes,
                              int constant, int global);
void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes);
void __cudaRegisterUnifiedTable(void **handle, void *table);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream stream);
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
