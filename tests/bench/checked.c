/* What `check` costs: pairs of an allocation and a free, and recorded programs, on the simulated GPU with the library preloaded.

     checked pairs BYTES COUNT    so many pairs on a stream that has work in between; prints ns of this thread a pair
     checked play                 allocations and frees of RMM's CSV from stdin, each block touched by its stream

   Why there is work in between: `check` gives a stream work only where the program has (check_run.h), as programs do. */
#include <inttypes.h>
#include <time.h>

#include "base/idmap.h"
#include "../preload/check/program.h"

enum { STREAMS_MOST = 64 };

/* The processor's time of this thread: what else the machine does, and the simulator's own threads, are not in it. */
static uint64_t checked_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static CUdeviceptr checked_take(size_t bytes, CUstream stream)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)malloc_on(bytes, stream);
    if (address)
        return address;
    fprintf(stderr, "checked: no memory for %zu bytes\n", bytes);
    exit(1);
}

/* The host waits now and then, beside the clock: a thread that waits does the simulator's work. */
static void play_pairs(size_t bytes, long count)
{
    enum { EACH = 16 };
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr own = checked_take(64, stream);
    uint64_t ns = 0;
    for (long i = -EACH; i < count; i += EACH) {
        uint64_t began = checked_now();
        for (int k = 0; k < EACH; k++) {
            MUST(cuMemsetD8Async(own, 1, 64, stream));
            CUdeviceptr address = checked_take(bytes, stream);
            MUST(cuMemsetD8Async(own, 1, 64, stream));
            if (free_on((void *)(uintptr_t)address))
                exit(1);
        }
        ns += i < 0 ? 0 : checked_now() - began;
        MUST(cuStreamSynchronize(stream));
    }
    printf("%.1f\n", (double)ns / (double)count);
}

/* The stream of a number of the recording. */
static CUstream play_stream(unsigned long number)
{
    static CUstream stream[STREAMS_MOST];
    CUstream *at = &stream[number % STREAMS_MOST];
    if (!*at)
        MUST(cuStreamCreate(at, CU_STREAM_NON_BLOCKING));
    return *at;
}

static int play_recorded(void)
{
    char line[256], action[32];
    struct sg_idmap live;
    if (!sg_idmap_init(&live))
        return 1;
    for (long events = 0; fgets(line, sizeof line, stdin); events++) {
        uint64_t pointer, bytes;
        unsigned long number;
        if (sscanf(line, "%*[^,],%*[^,],%31[^,],%" SCNx64 ",%" SCNu64 ",%lx", action, &pointer, &bytes, &number) != 4)
            continue;
        CUstream stream = play_stream(number);
        if (strcmp(action, "allocate") == 0 && bytes) {
            CUdeviceptr address = checked_take(bytes, stream);
            MUST(cuMemsetD8Async(address, 1, 1, stream));
            (void)sg_idmap_put(&live, pointer, address);
        } else if (strcmp(action, "free") == 0) {
            CUdeviceptr address = sg_idmap_take(&live, pointer);
            if (address) {
                MUST(cuMemsetD8Async(address, 1, 1, stream));
                (void)free_on((void *)(uintptr_t)address);
            }
        }
        if (events % 64 == 0)
            MUST(cuStreamSynchronize(stream));
    }
    sg_idmap_fini(&live);
    return 0;
}

int main(int count, char **argument)
{
    if (count < 2) {
        fputs("usage: segalloc run --sim SIZE -- checked pairs BYTES COUNT | checked play < CSV\n", stderr);
        return 2;
    }
    begin_program();
    if (strcmp(argument[1], "play") == 0)
        return play_recorded();
    if (strcmp(argument[1], "pairs") != 0 || count != 4)
        return 2;
    play_pairs(strtoull(argument[2], NULL, 10), atol(argument[3]));
    return 0;
}
