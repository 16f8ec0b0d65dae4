#include "sim.h"

static const struct {
    CUresult code;
    const char *name, *text;
} results[] = {
#define RESULT(name, code, text) {name, #name, text},
#include "cuda_result.def"
#undef RESULT
};

static CUresult look_up(CUresult code, bool name, const char **ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i].code == code) {
            *ret = name ? results[i].name : results[i].text;
            return CUDA_SUCCESS;
        }
    }
    *ret = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    SIM_ENTER(cuGetErrorString);
    return look_up(error, false, text);
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    SIM_ENTER(cuGetErrorName);
    return look_up(error, true, text);
}
