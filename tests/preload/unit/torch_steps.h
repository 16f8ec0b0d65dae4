/* Steps of tests of PyTorch's names. */
#ifndef TORCH_STEPS_H
#define TORCH_STEPS_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "process/process.h"
#include "process/rehearsal.h"
#include "segalloc/segalloc.h"
#include "torch/torch_allocator.h"
#include "torch/torch_current.h"
#include "torch/torch_layout.h"
#include "torch/torch_switch.h"
#include "track/torch_mode.h"
#include "torch/torch_oom.h"
#include "torch/torch_segments.h"
#include "torch_fakes.h"

static const char *asked_for; /* of the rehearsal */

void sg_rehearsal_ask_for(const char *settings)
{
    asked_for = settings;
}

#endif
