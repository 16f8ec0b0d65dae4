/* Names and texts of errors. */
#include "calls.h"

static const struct {
    CUresult code;
    const char *name, *text;
} results[] = {
#define RESULT(name, code, text) {name, #name, text},
#include "driver/cuda_result.def"
#undef RESULT
};

/* Codes that drivers before that version do not know: cuGetErrorName of NVIDIA's drivers 470 to 555 (tests/answers). Those that
   none of them knows are taken to have come with the next. */
static const struct {
    int code, since;
} newer[] = {{36, 12060}, {46, 12000}, {225, 12020}, {226, 12060}, {402, 12040}, {721, 12060}, {810, 12000},
    {811, 12000}, {812, 12000}, {912, 12000}, {913, 12040}, {914, 12040}, {915, 12040}, {916, 12040}};

static bool error_is_known(CUresult code)
{
    int driver = sim_driver_version();
    for (unsigned i = 0; i < sizeof newer / sizeof *newer; i++)
        if (newer[i].code == (int)code)
            return newer[i].since <= driver;
    return true;
}

static CUresult error_text(CUresult code, bool name, const char **ret)
{
    if (!ret)
        sim_null_read();
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i].code == code && error_is_known(code)) {
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
    return error_text(error, false, text);
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    SIM_ENTER(cuGetErrorName);
    return error_text(error, true, text);
}
