/* Pages that others remember behind our back keep their addresses for the life of the process. */
#ifndef SG_PINS_H
#define SG_PINS_H

#include <stddef.h>

#include "cuda_abi.h"

/* The pages behind a range may not move any more; nothing where the address isn't ours. */
void sg_pin(CUdeviceptr address, size_t bytes);

#endif
