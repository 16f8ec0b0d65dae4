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
    void *(*malloc_on)(size_t bytes, void *stream);
    int (*free)(void *address);
    int (*record_stream)(void *address, void *stream);
    int (*stats)(int device, struct segalloc_stat *ret, int count);
    void (*set_current_stream)(void *stream);
    void *(*tensor)(size_t bytes);
    void (*release)(void *address);
};
extern struct extras extras;

/* Makes the primary context of the first device current, and finds the extras. */
CUcontext begin(void);

/* A PyTorch as far as the library sees it, whose record_stream nobody hears of. */
void find_torch(void);

CUdeviceptr number(void *address);
CUstream stream_of(unsigned flags);

/* So that the stream is followed, and known not to have come after anything by then. */
void show_events(CUstream stream);

/* A block of that owner, which is not 0: PyTorch's; that with work on it queued in its stream; and one of who names
   streams, the same. */
void *bare_tensor_on(CUstream stream, uint64_t owner);
void *tensor_on(CUstream stream, uint64_t owner);
void *block_on(CUstream stream, uint64_t owner);

/* By an event of what `stream` has been given so far. */
void wait_for(CUstream waits, CUstream stream);

/* The current context waits for an event of that stream. */
void context_wait_for(CUstream stream);

/* Of a function of the host: it has run. */
extern atomic_bool ran;
void run(void *unused);

#endif
