/* What small programs have in common that play one rule of order each, under the allocator on the simulated GPU: blocks
   that are declared to its hazard checker, streams, and waits. All of it is for one thread at a time, and a call that
   fails ends the program with a line that says which. */
#ifndef STAGE_H
#define STAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_proto.h"
#include "segalloc/segalloc.h"

enum { MIB = 1024 * 1024, BLOCK = 4 * MIB };

void expect(int held, const char *what, const char *file, int line);
#define EXPECT(condition) expect(condition, #condition, __FILE__, __LINE__)
#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

/* What the library and the simulator have beside the driver's calls; the last three: find_torch(). */
struct extras {
    void (*owner)(uint64_t address, uint64_t bytes, uint64_t owner);
    uint64_t (*hazards)(void);
    void (*touches)(uint64_t address, uint64_t bytes,
        int write); /* the next work of this thread's does, whatever it is */
    void *(*malloc_on)(size_t bytes, void *stream);
    int (*free)(void *address);
    int (*record_stream)(void *address, void *stream);
    int (*stats)(int device, struct segalloc_stat *ret, int count);
    void *(*torch_malloc)(size_t bytes, int device, void *stream);
    void (*torch_free)(void *address, size_t bytes, int device, void *stream);
    void (*set_current_stream)(void *stream);
    void *(*tensor)(size_t bytes);
    void (*release)(void *address);
};
extern struct extras extras;

/* Makes the primary context of the first device current, and finds the extras. */
CUcontext begin(void);

/* Plays the rule of that name, and says what the program ends with. */
struct rule {
    const char *name;
    void (*play)(void);
};
int play(const struct rule *rules, size_t count, const char *name);

/* A PyTorch as far as the library sees it, whose record_stream nobody hears of. start_following(): and it has
   allocated, which is when streams begin to be followed. */
void find_torch(void);
void start_following(void);

CUdeviceptr number(void *address);
CUstream stream_of(unsigned flags);

/* So that the stream is followed, and known not to have come after anything by then. */
void show_events(CUstream stream);

/* A new one of which that is so, and which has been given work since: who came after it before that has not come after
   what it is given next. For who has begun to follow. */
CUstream followed(unsigned flags);

/* A block of that owner, which is not 0: PyTorch's; that with work on it queued in its stream, of BLOCK or another
   size; and one of who names streams, the same. */
void *bare_tensor_on(CUstream stream, uint64_t owner);
void *tensor_on(CUstream stream, uint64_t owner);
void *tensor_of(CUstream stream, uint64_t owner, size_t bytes);
void *block_on(CUstream stream, uint64_t owner);

/* A tensor of the first stream is used on the second one and freed; then that size is asked for on the first one again,
   and nobody has it who may still be at work. */
void use(void *tensor, CUstream second, size_t bytes);
void ask_again(CUstream first, size_t bytes);
void use_and_ask_again(void *tensor, CUstream first, CUstream second);

/* By an event of what `stream` has been given so far. */
void wait_for(CUstream waits, CUstream stream);

/* The current context waits for an event of that stream. */
void context_wait_for(CUstream stream);

/* The host waits for a stream; or for a function to have run there: without a schedule it runs at once, on a thread of
   the driver's. */
void by_host(CUstream stream);
void by_function(CUstream stream);

/* How often a program looks for what happens by itself, 0.1 ms apart. Under a schedule nothing does between two calls of the
   driver: what has not happened by the first look never will. */
int stage_patience(void);

/* Of a function of the host: it has run. */
extern atomic_bool ran;
void run(void *unused);

#endif
