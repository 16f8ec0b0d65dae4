/* Rows of the probe: each asks a driver about one thing and prints what it said, as lines of JSON. */
#ifndef PROBE_H
#define PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_proto.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

struct probe_driver {
    void *library;
#define CALL(symbol) __typeof__(&symbol) symbol;
#include "calls.def"
};

/* Functions of kernels.cu; NULL where there is no compiler for them. */
struct probe_kernels {
    CUfunction spin;    /* (u64 ns) keeps one thread busy for so long */
    CUfunction nothing; /* () */
    CUfunction sweep;   /* (u32 *words, u64 count, u32 *sum) reads all of them, with all multiprocessors */
    CUfunction put;     /* (u32 *words, u64 count, u32 value) word i becomes value ^ i */
    CUfunction put_part; /* (u32 *words, u64 count, u32 value, u32 sector, u32 which) every second sector of so many words */
    CUfunction judge;   /* (const u32 *words, u64 count, u32 value, u32 *bad) adds how many words differ */
    CUfunction judge_cached, judge_read_only, judge_asynchronous, judge_bulk, put_programmatic, judge_programmatic;
};

struct probe {
    struct probe_driver cu;
    struct probe_kernels kernels;
    int ordinal; /* of the device that is asked */
    CUdevice device;
    CUcontext context;
    CUstream load; /* where a kernel runs while calls are timed */
    size_t granule;
    int rounds;       /* of each measurement */
    bool quick;       /* smaller sizes and fewer rounds: to see that it works */
    bool simulated;   /* times are then the simulator's own, by its table of costs: */
    uint64_t (*virtual_ns)(void);
    int patience; /* times as long as its row says may each take, on a machine that others use; 0 is 1 */
    bool gentle; /* on a card that others use: little memory, few mappings */
    const char *kernels_path; /* compiled by nvcc; NULL: none are */
    bool compiles;            /* without: NVRTC is asked for them */
    const char *row;  /* the row that is being run */
    const char *refused; /* the call that failed last within a function of several */
    const char *verb; /* the word of the command line before a role; NULL: none */
};

extern struct probe probe;

/* Prints a line {"row": …, …}. `format` is as printf's, with ' for ". One write: lines are whole, whatever follows. */
void probe_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints that the row isn't possible here, and why. Always true: the rows after it are. */
bool probe_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints that a call failed natively. Always false: what it leaves behind is gone with this process. */
bool probe_refused(const char *call, CUresult result);
/* A call within a function of several, which is noted where it fails: a row's message then names it in place of that function. */
CUresult probe_answered(const char *symbol, CUresult result);
#define ASK(symbol, ...) probe_answered(#symbol, probe.cu.symbol(__VA_ARGS__))
/* CUDA_SUCCESS, or leaves the row. */
#define NEED(call)                                \
    do {                                          \
        CUresult need_ = (call);                  \
        if (need_ != CUDA_SUCCESS)                \
            return probe_refused(#call, need_);   \
    } while (0)
/* The driver has a function, or the row ends here. */
#define HAVE(symbol)                                              \
    do {                                                          \
        if (!probe.cu.symbol)                                     \
            return probe_skip("this driver has no %s", #symbol);  \
    } while (0)

uint64_t probe_real_ns(void);
/* Real time; on the simulator what its table of costs says of the calls made so far. */
uint64_t probe_ns(void);

/* Times of one kind, in ns. */
struct probe_times {
    uint64_t ns[1024];
    int count;
};

void probe_add(struct probe_times *times, uint64_t ns);
/* The value that `percent` of them do not exceed; 0 without any. Sorts them. */
uint64_t probe_at(struct probe_times *times, int percent);

/* Pages in a range of their own. */
struct probe_pages {
    CUdeviceptr address;
    size_t bytes, page;
    int count;
    CUmemGenericAllocationHandle *handle;
};

CUmemAllocationProp probe_prop(void);
/* Makes `count` handles of `page` bytes, maps them side by side and gives access. Undone on failure. */
CUresult probe_pages_make(int count, size_t page, struct probe_pages *ret);
CUresult probe_pages_map(const struct probe_pages *pages);
void probe_pages_end(struct probe_pages *pages);
CUresult probe_access(CUdeviceptr address, size_t bytes);

/* One page of a granule at two addresses, with access by both. A failure leaves it to the end of the process. */
struct probe_twice {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr a, b;
};
CUresult probe_twice_map(struct probe_twice *ret);
CUresult probe_twice_unmap(const struct probe_twice *page);

/* Bytes free by the driver's word; 0 where it has none. */
size_t probe_free_bytes(void);

/* Copies that take about so many milliseconds, of memory that is taken for them; they are measured on `load`. Undone by
   probe_work_end(), which waits for the context. */
struct probe_work {
    CUdeviceptr from, to;
    size_t bytes;
    int copies; /* of `bytes` */
};
CUresult probe_work_make(unsigned ms, struct probe_work *ret);
CUresult probe_work_queue(const struct probe_work *work, CUstream stream);
void probe_work_end(struct probe_work *work);
/* `to` goes on when `from` has come so far. */
CUresult probe_join(CUstream from, CUstream to, CUevent event);

CUresult probe_launch(CUfunction function, unsigned blocks, CUstream stream, void **parameters);
/* Keeps `stream` busy for so many microseconds. */
CUresult probe_busy(CUstream stream, unsigned us);

/* Another process of this program in a role of its own, "--grow BYTES ORDINAL" behind `verb`: it has said that it is ready. */
struct probe_child {
    int pid, in, out; /* what it is told, what it says */
};

/* `environment` NULL: this one's. False where it does not come to be. */
bool probe_child_start(const char *role, const char *argument, char *const *environment, struct probe_child *ret);
/* Lets it go on, and reads a number that it prints at its end into `ret`, if that isn't NULL. */
void probe_child_go(struct probe_child *child);
bool probe_child_end(struct probe_child *child, uint64_t *ret);
/* The other side: says that this process is ready, waits to be let go. */
void probe_ready(void);
void probe_tell(uint64_t number);

/* Roles: the program's exit status. */
int probe_role_grow(const char *bytes);
int probe_role_leave(const char *mappings);
int probe_role_hold(const char *bytes);
int probe_role_free(const char *unused);

#define ROW(group, name, function, seconds, settles) bool function(void);
#include "rows.def"

#endif
