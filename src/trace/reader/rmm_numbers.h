/* Numbers of a file, threads or streams, each with an index of its own from 1 on. The table has open addressing and is half full at
   most. An entry keeps how the file spelt the number last, as flags of its definition.

   For example, the streams 0x55d0, 0 and 0x55d0 get the indexes 1, 2 and 1. */
#ifndef SG_RMM_NUMBERS_H
#define SG_RMM_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

struct sg_rmm_number {
    uint64_t value;
    uint32_t index; /* 0: the place is empty */
    uint8_t flags;  /* spelling that was defined last */
};

/* All zero: empty. `entry` is the owner's to free. */
struct sg_rmm_numbers {
    struct sg_rmm_number *entry;
    uint32_t room, used;
};

/* The entry of `value`, made if there is none; *ret_new says that. NULL: no memory. Entries move where `room` changes. */
struct sg_rmm_number *sg_rmm_number_intern(struct sg_rmm_numbers *numbers, uint64_t value, bool *ret_new);

#endif
