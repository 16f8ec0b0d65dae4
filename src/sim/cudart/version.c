/* Versions, and the driver's functions by name. */
#include "entry.h"
#include "error.h"

cudaError_t sg_cudaDriverGetVersion(const struct sg_rt_driver *driver, int *ret)
{
    (void)driver;
    if (!ret)
        return cudaErrorInvalidValue;
    *ret = sg_rt_driver_version();
    return cudaSuccess;
}

cudaError_t sg_cudaRuntimeGetVersion(const struct sg_rt_driver *driver, int *ret)
{
    (void)driver;
    if (!ret)
        return cudaErrorInvalidValue;
    *ret = SG_RT_VERSION;
    return cudaSuccess;
}

/* A function that the driver lacks is no error here: the pointer is NULL and *status says why. */
cudaError_t sg_cudaGetDriverEntryPointByVersion(const struct sg_rt_driver *driver, const char *symbol, void **ret,
                                                unsigned version, unsigned long long flags, int *status)
{
    if (!symbol || !ret || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return cudaErrorInvalidValue;
    cudaError_t error = sg_rt_load();
    if (error != cudaSuccess)
        return error;
    if (flags == CU_GET_PROC_ADDRESS_DEFAULT && driver == &sg_rt_per_thread)
        flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    void *found = NULL;
    CUdriverProcAddressQueryResult query = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result = sg_rt_proc_address(symbol, &found, (int)version, flags, &query);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_FOUND)
        return sg_rt_translate(result);
    if (!found && query == CU_GET_PROC_ADDRESS_SUCCESS)
        query = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *ret = found;
    if (status)
        *status = (int)query;
    return cudaSuccess;
}

cudaError_t sg_cudaGetDriverEntryPoint(const struct sg_rt_driver *driver, const char *symbol, void **ret,
                                       unsigned long long flags, int *status)
{
    return sg_cudaGetDriverEntryPointByVersion(driver, symbol, ret, SG_RT_VERSION, flags, status);
}

#if CUDART_MAJOR == 13
cudaError_t sg___cudaGetProcAddress(const struct sg_rt_driver *driver, const char *symbol, void **ret, unsigned version,
                                    unsigned long long flags, int *status)
{
    return sg_cudaGetDriverEntryPointByVersion(driver, symbol, ret, version, flags, status);
}
#endif
