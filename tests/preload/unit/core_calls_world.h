/* The hooks of the driver's calls above a driver and a core made up here, which say what they are asked with every
   argument, and answer by chance, but as a driver and a core may. What is said is the same in every run. */
#ifndef CORE_CALLS_WORLD_H
#define CORE_CALLS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "random.h"

enum {
    STREAM_COUNT = 8, EVENT_COUNT = 8, MADE_COUNT = 6, BLOCKS_MOST = 4096, PARAMETERS_MOST = 14,
    REGION_BYTES = 512, STREAMS_AT = 0x1000, EVENTS_AT = 0x2000, PRIMARIES_AT = 0x3000, MADE_AT = 0x3200,
    GREENS_AT = 0x5000
};
#define BLOCKS_AT UINT64_C(0x100000)
#define BLOCK_STEP UINT64_C(0x10000)
#define DRIVERS_AT UINT64_C(0x1000000000)

/* What a parameter of a call of the driver is, by its type and name. */
struct parameter {
    char type[40], name[24];
    bool pointer;
    unsigned bits; /* of a value */
};
struct signature {
    struct parameter list[PARAMETERS_MOST];
    int count;
};
struct signature signature_of(const char *parameters);

extern struct world {
    struct random random;  /* of the program */
    struct random answers; /* of the driver and the core */
    char *text;            /* what was said */
    size_t length, room;
    bool over, has_core, old; /* the process ends; the core is made; the driver lacks calls */
    bool direct, passing, declares;
    bool gentle;           /* nobody refuses anything */
    struct sg_conf conf;
    CUcontext current;
    bool alive[MADE_COUNT + 2]; /* contexts: two primary ones, and others */
    unsigned long long context_id[MADE_COUNT + 2], stream_id[STREAM_COUNT + 3], capture[STREAM_COUNT + 3], ids;
    int created_streams, created_events, created_contexts;
    struct {
        CUdeviceptr address;
        size_t bytes;
        int device;
        CUcontext context;
        bool live;
    } block[BLOCKS_MOST];
    int blocks;
    CUdeviceptr next_of_driver;
    struct {
        CUhostFn destroy;
        void *user;
        bool held;
    } object[512]; /* of graphs */
    int objects;
    uint64_t time_ns;
    unsigned char region[PARAMETERS_MOST][REGION_BYTES]; /* what arguments point to */
} world;

/* Adds to what was said. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A value of a parameter of this kind, and what lies where it points to. `at`: which parameter. */
uintptr_t argument_for(const struct parameter *parameter, int at);

CUstream any_stream(void);
CUevent any_event(void);
CUcontext any_context(void);
CUdeviceptr any_address(void);
bool chance(uint64_t one_in);

/* The core makes nothing of it; the graphs that hold an object are gone. */
struct sg_core *core_calls_core(void);
void drop_a_graph(void);

#endif
