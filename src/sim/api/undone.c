/* Functions that are exported and do nothing here: unsupported.def and twin.def. */
#include "api/undone.h"

#include "calls.h"

/* Each is given the arguments that refusal.def may look at, whatever its prototype is: words in registers and on the stack. */
#define PARAMETERS \
    uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h, uintptr_t i
#define ARGUMENTS a, b, c, d, e, f, g, h, i

static CUresult undone_answer(const char *symbol, const uintptr_t *words, CUresult done)
{
    SIM_RETURN_IF_NOT(sim_unavailable(symbol, words));
    return sim_in_host_function ? CUDA_ERROR_NOT_PERMITTED : done;
}

#define UNDONE(symbol, refused_as, result)                                         \
    CUresult sim_undone_##symbol(PARAMETERS)                                       \
    {                                                                              \
        return undone_answer(#refused_as, (const uintptr_t[]){ARGUMENTS}, result); \
    }

#define UNSUPPORTED(name, symbol, version) UNDONE(symbol, symbol, CUDA_ERROR_NOT_SUPPORTED)
#define UNSUPPORTED_STREAM(name, symbol, version, variant) \
    UNDONE(symbol, symbol, CUDA_ERROR_NOT_SUPPORTED) UNDONE(variant, symbol, CUDA_ERROR_NOT_SUPPORTED)
#include "unsupported.def"
#define TWIN(name, symbol, version) UNDONE(symbol, symbol, CUDA_ERROR_INVALID_CONTEXT)
#include "twin.def"
