/* Handlers of the stand-ins. Every function here may be called under a foreign prototype: integer and pointer arguments
   are taken by position, whatever was really passed behind them is not looked at. 0 is every library's success. */
#ifndef SG_ANSWERS_H
#define SG_ANSWERS_H

#include <stdint.h>

#define SG_STANDIN(type, name) __attribute__((visibility("default"))) type sg_standin_##name

/* A value that no other call got: what is stored where a handle is created. Never 0. */
uintptr_t sg_standin_unique(void);

/* The version of a library (`name`: "cudnn") that the PyTorch of this process was built for, from the file `versions`
   beside the stand-ins, first three numbers; `ret` stays as it is where that says nothing. */
void sg_standin_version(const char *name, int ret[3]);

#endif
