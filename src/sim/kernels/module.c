#include "kernels/module.h"

#include <stdlib.h>

#include "device/context.h"
#include "memory/allocation.h"
#include "space/memory_table.h"

struct sim_code *sim_code_of(const void *handle)
{
    return sim_handle_valid(handle, SIM_KIND_MODULE) ? (struct sim_code *)(uintptr_t)handle : NULL;
}

struct sim_code *sim_code_new(CUcontext context)
{
    struct sim_code *code = calloc(1, sizeof *code);
    if (!code)
        return NULL;
    code->context = context;
    if (context) {
        code->next = (struct sim_code *)context->modules;
        context->modules = (CUmodule)code;
    }
    sim_handle_add(&code->handle, SIM_KIND_MODULE);
    return code;
}

static void code_drop_global(struct sim_global *global)
{
    struct sim_memory *memory = global->context->alive ? sim_memory_find(global->address) : NULL;
    if (memory && memory->range.base == global->address)
        sim_memory_drop(memory);
    free(global);
}

void sim_code_drop(struct sim_code *code)
{
    for (CUfunction f = code->functions, next; f; f = next) {
        next = f->next;
        sim_handle_drop(&f->handle);
        free(f);
    }
    for (struct sim_global *g = code->globals, *next; g; g = next) {
        next = g->next;
        code_drop_global(g);
    }
    sim_handle_drop(&code->handle);
    free(code);
}

void sim_module_drop_context(CUcontext context)
{
    for (struct sim_code *code = (struct sim_code *)context->modules, *next; code; code = next) {
        next = code->next;
        sim_code_drop(code);
    }
    context->modules = NULL;
}

CUresult sim_function_get(CUfunction handle, CUfunction *ret)
{
    if (!sim_handle_valid(handle, SIM_KIND_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    *ret = handle;
    return CUDA_SUCCESS;
}
