/* Spans: what a range of addresses is to a copy, and whose memory lies there. */
#ifndef SIM_SPAN_H
#define SIM_SPAN_H

#include "space/memory_table.h"

/* From the first byte to the last of `count` rows of `width` bytes, `pitch` apart; of one row only its width counts.
   UINT64_MAX where that overflows, which is more than any memory has. */
static inline uint64_t sim_extent(uint64_t count, uint64_t pitch, uint64_t width)
{
    uint64_t extent;
    if (__builtin_mul_overflow(count - 1, pitch, &extent) || __builtin_add_overflow(extent, width, &extent))
        return UINT64_MAX;
    return extent;
}

/* The kind of memory that [address, address + size) is to a copy. */
enum sim_span { SIM_SPAN_PAGEABLE, SIM_SPAN_PINNED, SIM_SPAN_DEVICE, SIM_SPAN_BAD };
/* Locked. The device whose memory lies there; NULL for the host's, and where nothing is mapped. */
struct sim_device *sim_device_at(uint64_t address);
/* Locked. BAD: begins in memory of a device, and is not wholly usable there by the device `by` (NULL: by any). */
enum sim_span sim_span(uint64_t address, uint64_t size, bool write, const struct sim_device *by);
/* Locked. The first address of [address, address + size) that lies in a reservation and has no memory with that right;
   0: there is none. */
uint64_t sim_span_lost(uint64_t address, uint64_t size, bool write);

#endif
