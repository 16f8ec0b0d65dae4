/* Names and texts of errors, and the last error of each thread. */
#ifndef SG_RT_ERROR_H
#define SG_RT_ERROR_H

#include <stdbool.h>

#include "runtime_abi.h"

/* True if the runtime has an error of this number. */
bool sg_rt_error_known(int number);

/* Remembers a failure as the thread's last error, and returns it. Success leaves the last error as it is. */
cudaError_t sg_rt_note(cudaError_t error);

/* After a reset of a device no error of before is sticky any more, in any thread. */
void sg_rt_forget_sticky(void);

/* Exported as they are: they set no last error. */
#pragma GCC visibility push(default)
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
#pragma GCC visibility pop

#endif
