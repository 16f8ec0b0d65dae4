/* Entry points of modules and libraries. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "device/context.h"
#include "kernels/integers_name.h"
#include "kernels/module.h"
#include "memory/allocation.h"
#include "space/memory_table.h"

/* How large a variable is stands in code that nobody reads. */
enum { GLOBAL_BYTES = 64 * 1024 };

static CUresult module_load(CUmodule *ret, const void *image)
{
    if (!ret || !image)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS)
        context = sim_context_root(context);
    if (result == CUDA_SUCCESS) {
        struct sim_code *code = sim_code_new(context);
        *ret = (CUmodule)code;
        result = code ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    SIM_ENTER(cuModuleLoad);
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    return access(path, R_OK) == 0 ? module_load(module, path) : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_ENTER(cuModuleLoadData);
    return module_load(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
    void **values)
{
    SIM_ENTER(cuModuleLoadDataEx);
    (void)count, (void)options, (void)values;
    return module_load(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    SIM_ENTER(cuModuleLoadFatBinary);
    return module_load(module, image);
}

CUresult cuModuleUnload(CUmodule module)
{
    SIM_ENTER(cuModuleUnload);
    sim_lock();
    struct sim_code *code = sim_code_of(module);
    CUresult result = code && code->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        struct sim_code **link = (struct sim_code **)(void *)&code->context->modules;
        while (*link != code)
            link = &(*link)->next;
        *link = code->next;
        sim_code_drop(code);
    }
    sim_unlock();
    return result;
}

static CUresult module_function(CUfunction *ret, const void *handle, const char *name)
{
    if (!ret || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_code *code = sim_code_of(handle);
    CUresult result = code ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    CUfunction f = code ? code->functions : NULL;
    while (f && strcmp(f->name, name) != 0)
        f = f->next;
    if (code && !f && (f = calloc(1, sizeof *f + strlen(name) + 1)) != NULL) {
        strcpy(f->name, name);
        f->code = code;
        f->integers = sim_integers_named(name);
        f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
        f->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
        f->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 80;
        f->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 80;
        f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 * 1024;
        f->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
        f->next = code->functions;
        code->functions = f;
        sim_handle_add(&f->handle, SIM_KIND_FUNCTION);
    }
    if (code && !f)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *ret = f;
    sim_unlock();
    return result;
}

CUresult cuModuleGetFunction(CUfunction *ret, CUmodule module, const char *name)
{
    SIM_ENTER(cuModuleGetFunction);
    return module_function(ret, module, name);
}

static CUresult module_global(CUdeviceptr *address, size_t *bytes, const void *handle, const char *name)
{
    if (!name || !*name || (!address && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext context;
    struct sim_code *code = sim_code_of(handle);
    CUresult result = code ? sim_context_current(&context) : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        context = sim_context_root(context);
    struct sim_global *g = result == CUDA_SUCCESS ? code->globals : NULL;
    while (g && (g->context != context || strcmp(g->name, name) != 0))
        g = g->next;
    if (result == CUDA_SUCCESS && !g) {
        struct sim_memory *memory = NULL;
        g = calloc(1, sizeof *g + strlen(name) + 1);
        result = g ? sim_memory_take(context, GLOBAL_BYTES, true, &memory) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) {
            strcpy(g->name, name);
            g->address = memory->range.base;
            g->context = context;
            g->next = code->globals;
            code->globals = g;
        } else {
            free(g);
        }
    }
    if (result == CUDA_SUCCESS && address)
        *address = g->address;
    if (result == CUDA_SUCCESS && bytes)
        *bytes = GLOBAL_BYTES;
    sim_unlock();
    return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    SIM_ENTER(cuModuleGetGlobal_v2);
    return module_global(address, bytes, module, name);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_ENTER(cuModuleGetLoadingMode);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

static CUresult library_load(CUlibrary *ret, const void *image)
{
    if (!ret || !image)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_code *code = sim_code_new(NULL);
    sim_unlock();
    if (!code)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = (CUlibrary)code;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
    unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
    SIM_ENTER_WITH(cuLibraryLoadData, library, code);
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return library_load(library, code);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options, void **jit_values,
    unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
    SIM_ENTER_WITH(cuLibraryLoadFromFile, library, path);
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    return access(path, R_OK) == 0 ? library_load(library, path) : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_ENTER_WITH(cuLibraryUnload, library);
    sim_lock();
    struct sim_code *code = sim_code_of(library);
    bool valid = code && !code->context;
    if (valid)
        sim_code_drop(code);
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    SIM_ENTER_WITH(cuLibraryGetKernel, kernel, library, name);
    return module_function((CUfunction *)(void *)kernel, library, name);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    SIM_ENTER_WITH(cuLibraryGetModule, module, library);
    sim_lock();
    struct sim_code *code = sim_code_of(library);
    sim_unlock();
    if (!module || !code)
        return module ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *module = (CUmodule)code;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    SIM_ENTER(cuLibraryGetGlobal);
    return module_global(address, bytes, library, name);
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    SIM_ENTER(cuLibraryGetManaged);
    return module_global(address, bytes, library, name);
}
