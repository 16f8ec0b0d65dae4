/* NVRTC: a program compiles to a text that the simulated driver takes as a module with any kernel. */
#include "answers.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static const char module_text[] = ".version 8.0\n.target sm_80\n.address_size 64\n";

SG_STANDIN(int, program_version)(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return 0;
}

SG_STANDIN(int, program_create)(void **ret)
{
    *ret = calloc(1, 16);
    return *ret ? 0 : 1;
}

SG_STANDIN(int, program_destroy)(void **program)
{
    free(*program);
    *program = NULL;
    return 0;
}

/* Names are the callers' own; they outlive the program in every caller known. */
SG_STANDIN(int, program_name)(void *program, const char *name, const char **ret)
{
    (void)program;
    *ret = name;
    return 0;
}

SG_STANDIN(int, program_size)(void *program, size_t *ret)
{
    (void)program;
    *ret = sizeof module_text;
    return 0;
}

SG_STANDIN(int, program_text)(void *program, char *ret)
{
    (void)program;
    memcpy(ret, module_text, sizeof module_text);
    return 0;
}
