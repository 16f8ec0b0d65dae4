/* Programs that are hard on an allocator: each is a sequence of allocations and frees, the same in every run. */
#ifndef BENCH_ADVERSARY_H
#define BENCH_ADVERSARY_H

#include <stddef.h>
#include <stdint.h>

struct event {
    uint32_t block;  /* a number; used again after its free */
    uint64_t bytes;  /* of an allocation; 0: a free */
};

struct events {
    struct event *event;
    size_t count, room;
    uint32_t blocks; /* all block numbers are below */
    uint32_t *unused;
    size_t unused_count, unused_room;
};

struct adversary {
    const char *name, *text;
    void (*write)(struct events *events);
    const char *torch_conf; /* PyTorch's settings under which it is told of, beside the default and expandable ones; or
                               NULL */
};

extern const struct adversary adversaries[];
extern const size_t adversary_count;

/* Appends an allocation, and returns its block; appends a free. */
uint32_t events_take(struct events *events, uint64_t bytes);
void events_give(struct events *events, uint32_t block);
void events_free(struct events *events);

/* Appends the program of this number, for pages of so many bytes: random, and the same in every run. */
void adversary_random(struct events *events, uint64_t seed, uint64_t page);

#endif
