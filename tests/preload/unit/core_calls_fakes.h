/* A driver and a core made up for all hooks of driver calls. They say each call with every argument, and answer by
   chance, but as a driver and a core may. Every run says the same.

   Chance begins anew with each step, from the numbers of the program and of the step. Handles, blocks, slots and times
   are made from the number of the step too. So a step that says more than before does not change what later steps say,
   but where they depend on it. For example, the second block of step 21 is at 0x100000 + (21 * 16 + 1) * 0x10000, however
   many blocks steps 1 to 20 have made. */
#ifndef CORE_CALLS_FAKES_H
#define CORE_CALLS_FAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "fakes.h"
#include "random.h"

enum {
    STREAM_COUNT = 8,
    EVENT_COUNT = 8,
    MADE_COUNT = 6,
    STEPS = 120,
    IDS_A_STEP = 16,
    BLOCKS_MOST = (STEPS + 1) * IDS_A_STEP,
    PARAMETERS_MOST = 14,
    REGION_BYTES = 512,
    STREAMS_AT = 0x1000,
    EVENTS_AT = 0x2000,
    PRIMARIES_AT = 0x3000,
    MADE_AT = 0x3200,
    GREENS_AT = 0x5000
};
#define BLOCKS_AT UINT64_C(0x100000)
#define BLOCK_STEP UINT64_C(0x10000)
#define DRIVERS_AT UINT64_C(0x1000000000)

/* A parameter of a call of the driver, by its type and name. */
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
    struct random random;  /* of the program's step */
    struct random answers; /* of the driver and the core, in that step */
    int step, made;        /* its number, from 1 on; ids that it has made */
    char *text;            /* what was said */
    size_t length, room;
    bool over, has_core, old; /* the process ends; the core is made; the driver lacks calls */
    bool direct, passing, declares;
    bool gentle;           /* nobody refuses anything */
    struct sg_conf conf;
    CUcontext current;
    bool alive[MADE_COUNT + 2]; /* contexts: two primary ones, and others */
    unsigned long long context_id[MADE_COUNT + 2], stream_id[STREAM_COUNT + 3], capture[STREAM_COUNT + 3];
    struct {
        CUdeviceptr address;
        size_t bytes;
        int device;
        CUcontext context;
        bool live;
    } block[BLOCKS_MOST]; /* of size 0: none has been made */
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

/* True if something happens now in driver or core that happens once in so many times. */
bool happens(uint64_t one_in);
/* Says what a call answers, but success, and returns it. */
CUresult answered(CUresult result);

/* Says that the driver was called: its function and what `signature` makes of the arguments. */
void say_driver_call(const char *name, const struct signature *signature, const uintptr_t *a);

/* A value of a parameter of this kind, and what lies where it points to. `at`: which parameter. */
uintptr_t argument_for(const struct parameter *parameter, int at);

CUstream any_stream(void);
CUevent any_event(void);
CUcontext any_context(void);
CUdeviceptr any_address(void);
bool chance(uint64_t one_in);

/* Begins a step. And a number of its own for something that the step makes. */
void begin_step(int program, int step);
int new_id(void);

/* One block by chance that was made in the last steps, or -1. It is chosen by a number for each, so that one block more
   or less changes few choices. */
int any_block(bool live);

/* Says and answers a call of the driver. The second puts functions with outputs into its table. The last one starts all
   of it, once the program's settings are known. */
CUresult driver_call(const struct fakes_function *function);
void fill_driver(void);
void begin_fakes(void);

/* The core makes nothing of it; the graphs that hold an object are gone. */
struct sg_core *core_calls_core(void);
void drop_a_graph(void);

#endif
