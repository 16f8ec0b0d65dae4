/* The driver, a context and the kernels, for a process that asks. */
#ifndef PROBE_START_H
#define PROBE_START_H

#include <stdbool.h>

/* Fills `probe`. False where there is no driver or no device, which it prints. */
bool probe_start(void);
/* On the simulator kernels do what this process does in their place. */
void probe_declare_kernels(void);

#endif
