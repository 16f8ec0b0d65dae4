#include "error.h"

#include <stdatomic.h>
#include <stddef.h>

#include "entry.h"

/* `era` is that of the process when a sticky error was noted. */
static _Thread_local struct {
    cudaError_t last;
    int era;
} thread;
static atomic_int era = 1;

static const struct error {
    int number;
    const char *name;
    const char *text; /* NULL: the driver's */
} errors[] = {
#define DRIVER(number, name) {number, #name, NULL},
#define RUNTIME(number, name, text) {number, #name, text},
#include "error.def"
#undef DRIVER
#undef RUNTIME
};

static const struct error *error_find(int number)
{
    size_t low = 0, high = sizeof errors / sizeof *errors;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (errors[middle].number == number)
            return &errors[middle];
        if (errors[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool sg_rt_error_known(int number)
{
    return error_find(number) != NULL;
}

/* Errors after which the context is lost: only a reset of the device ends them (CUDA Runtime API, error types whose
   text says that the process must be terminated and relaunched). */
static bool error_is_sticky(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
        return true;
    default:
        return false;
    }
}

cudaError_t sg_rt_note(cudaError_t error)
{
    if (__builtin_expect(error == cudaSuccess, 1))
        return error;
    thread.last = error;
    thread.era = atomic_load(&era);
    return error;
}

void sg_rt_forget_sticky(void)
{
    atomic_fetch_add(&era, 1);
}

static cudaError_t error_last(void)
{
    if (error_is_sticky(thread.last) && thread.era != atomic_load(&era))
        thread.last = cudaSuccess;
    return thread.last;
}

cudaError_t cudaPeekAtLastError(void)
{
    return error_last();
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = error_last();
    if (!error_is_sticky(error))
        thread.last = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const struct error *found = error_find(error);
    return found ? found->name : "unrecognized error code";
}

static const char *driver_text(int number)
{
    switch (number) {
#define RESULT(name, code, text) case code: return text;
#include "driver/cuda_result.def"
#undef RESULT
    default: return NULL;
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    const struct error *found = error_find(error);
    if (!found)
        return "unrecognized error code";
    return found->text ? found->text : driver_text(error);
}
