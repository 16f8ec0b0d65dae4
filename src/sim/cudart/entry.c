/* The exported functions: each keeps the error that what stands behind it returned. */
#include "entry.h"

#include "context.h"
#include "error.h"

#define NEED_CONTEXT sg_rt_context()
#define NEED_DEVICE sg_rt_load()

#define CALL_AS(symbol, name, table, parameters, arguments) \
    cudaError_t symbol parameters \
    { \
        return sg_rt_note(sg_##name(&table, UNPAREN arguments)); \
    }
#define CALL_ONE(name, parameters, arguments) CALL_AS(name, name, sg_rt_legacy, parameters, arguments)
#define CALL_PTSZ(name, parameters, arguments) \
    CALL_ONE(name, parameters, arguments) \
    CALL_AS(name##_ptsz, name, sg_rt_per_thread, parameters, arguments)
#define CALL_PTDS(name, parameters, arguments) \
    CALL_ONE(name, parameters, arguments) \
    CALL_AS(name##_ptds, name, sg_rt_per_thread, parameters, arguments)

#define PASS_AS(symbol, need, function, table, parameters, arguments) \
    cudaError_t symbol parameters \
    { \
        cudaError_t error = NEED_##need; \
        return sg_rt_note(error != cudaSuccess ? error : sg_rt_translate(table.function arguments)); \
    }
#define PASS_ONE(name, need, function, parameters, arguments) \
    PASS_AS(name, need, function, sg_rt_legacy, parameters, arguments)
#define PASS_PTSZ(name, need, function, parameters, arguments) \
    PASS_ONE(name, need, function, parameters, arguments) \
    PASS_AS(name##_ptsz, need, function, sg_rt_per_thread, parameters, arguments)

#define ABSENT_AS(symbol) \
    cudaError_t symbol(void) \
    { \
        return sg_rt_note(cudaErrorNotSupported); \
    }
#define ABSENT_ONE(name) ABSENT_AS(name)
#define ABSENT_PTSZ(name) ABSENT_AS(name) ABSENT_AS(name##_ptsz)
#define ABSENT_PTDS(name) ABSENT_AS(name) ABSENT_AS(name##_ptds)

#define CALL(majors, streams, name, parameters, arguments) IN_##majors(CALL_##streams(name, parameters, arguments))
#define CALL0(majors, name) \
    IN_##majors(cudaError_t name(void) { return sg_rt_note(sg_##name(&sg_rt_legacy)); })
#define PASS(majors, streams, need, name, function, parameters, arguments) \
    IN_##majors(PASS_##streams(name, need, function, parameters, arguments))
#define EXPORT(majors, name)
#define ABSENT(majors, streams, name) IN_##majors(ABSENT_##streams(name))
#include "entry.def"
