/* Three streams of a device, for tests of what is believed of their order. What the functions say of streams is told to
   the core in the calls that the library makes. */
#ifndef TEST_ORDER_STAGE_H
#define TEST_ORDER_STAGE_H

#include "rooms.h"

extern struct sg_core *core;
extern struct sg_device *device;
extern sg_slot own, other, third;

/* For the setup of a test, and for its end. */
int start(void **state);
int stop(void **state);

/* `key`: none of the three streams', which have 1 to 3. */
sg_slot add_stream(uint64_t key, unsigned flags, bool per_thread);

void work(sg_slot slot);
/* An event on the stream: what it comes after. */
struct sg_vector_clock record(sg_slot slot);
void wait_for(sg_slot slot, const struct sg_vector_clock *clock);
void wait_for_stream(sg_slot slot, sg_slot whom);
void complete(const struct sg_vector_clock *clock);

/* What a block of `own` comes after that is freed now and was used on `others` (bits) too. */
struct sg_after freed(uint64_t others, bool unseen);
bool is_usable(struct sg_after after, sg_slot slot);

#endif
