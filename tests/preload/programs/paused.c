/* Preloaded: memory of a tag leaves and comes back. Contents, addresses and a captured graph stay good; other memory goes
   on meanwhile; a full card keeps it paused. Under `check` and without regions a pause is refused. Natively, and where the
   library passes all on, the functions say so. The argument says which. */
#include <stdlib.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)

static int (*push)(const char *tag, unsigned flags), (*pop)(void), (*pause_tag)(const char *tag),
    (*resume_tag)(const char *tag);

static void *tagged(const char *tag, unsigned flags, size_t bytes)
{
    void *address = NULL;
    EXPECT(push(tag, flags) == 0);
    EXPECT(cudaMalloc(&address, bytes) == cudaSuccess);
    EXPECT(pop() == 0);
    return address;
}

static int all_are(const void *address, size_t bytes, unsigned char value)
{
    unsigned char *host = malloc(bytes);
    size_t wrong = 0;
    EXPECT(cudaMemcpy(host, address, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (size_t i = 0; i < bytes; i++)
        wrong += host[i] != value;
    free(host);
    return wrong == 0;
}

static size_t device_free(void)
{
    size_t available = 0, total;
    EXPECT(cudaMemGetInfo(&available, &total) == cudaSuccess);
    return available;
}

static CUgraphExec capture(void *address, size_t bytes, cudaStream_t stream)
{
    CUgraph graph;
    CUgraphExec exec = NULL;
    EXPECT(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    EXPECT(pause_tag("weights") == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cudaMemsetAsync(address, 0x77, bytes, stream) == cudaSuccess);
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    EXPECT(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
    EXPECT(cuGraphDestroy(graph) == CUDA_SUCCESS);
    return exec;
}

static void pauses(void)
{
    void *rest, *other, *refused;
    cudaStream_t stream;
    EXPECT(pop() == CUDA_ERROR_INVALID_VALUE && pause_tag(NULL) == 0 && resume_tag(NULL) == 0);
    void *weights = tagged("weights", 0, 64 * MIB + 4711), *small = tagged("weights", 0, 1000),
         *gone = tagged("weights", 0, 6 * MIB), *kv = tagged("kv", SEGALLOC_TAG_DISCARD, 32 * MIB);
    EXPECT(cudaMalloc(&other, 3 * MIB) == cudaSuccess);
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    EXPECT(cudaMemset(kv, 0x33, 32 * MIB) == cudaSuccess && cudaMemset(other, 0x44, 3 * MIB) == cudaSuccess);
    EXPECT(cudaMemset(small, 0x22, 1000) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    EXPECT(cudaMemsetAsync(weights, 0x11, 64 * MIB + 4711, stream) == cudaSuccess); /* which the pause waits for */
    EXPECT(pause_tag("none") == CUDA_ERROR_NOT_FOUND && resume_tag("weights") == 0);
    uint64_t reserved = statistic(0, "reserved_bytes"), allocated = statistic(0, "allocated_bytes");
    size_t before = device_free();
    EXPECT(pause_tag("weights") == 0 && pause_tag("weights") == 0);
    EXPECT(statistic(0, "paused_bytes") >= 70 * MIB && statistic(0, "reserved_bytes") <= reserved - 70 * MIB);
    EXPECT(statistic(0, "allocated_bytes") + statistic(0, "paused_bytes") == allocated);
    EXPECT(device_free() >= before + 70 * MIB);
    EXPECT(push("weights", 0) == 0);
    EXPECT(cudaMalloc(&refused, 4096) == 800 && cudaMalloc(&refused, 4096) == 800);
    EXPECT(push(NULL, 0) == 0 && cudaMalloc(&rest, 4096) == cudaSuccess && cudaFree(rest) == cudaSuccess);
    EXPECT(pop() == 0 && pop() == 0);
    EXPECT(cudaGetLastError() == 800 || 1);
    EXPECT(all_are(other, 3 * MIB, 0x44) && all_are(kv, 32 * MIB, 0x33));
    EXPECT(cudaFree(gone) == cudaSuccess);
    EXPECT(resume_tag("weights") == 0 && resume_tag("weights") == 0);
    EXPECT(all_are(weights, 64 * MIB + 4711, 0x11) && all_are(small, 1000, 0x22));
    /* A full card. */
    EXPECT(pause_tag("kv") == 0);
    EXPECT(cudaMalloc(&rest, device_free() / (2 * MIB) * 2 * MIB) == cudaSuccess);
    EXPECT(resume_tag("kv") == CUDA_ERROR_OUT_OF_MEMORY && resume_tag("kv") == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cudaFree(rest) == cudaSuccess && resume_tag("kv") == 0);
    EXPECT(all_are(kv, 32 * MIB, 0) && all_are(other, 3 * MIB, 0x44)); /* what is discarded comes back as zeros */
    /* A graph, and all tags. */
    CUgraphExec exec = capture(weights, 64 * MIB, stream);
    EXPECT(pause_tag(NULL) == 0);
    EXPECT(statistic(0, "reserved_bytes") <= statistic(0, "allocated_bytes") + 6 * MIB);
    EXPECT(resume_tag(NULL) == 0 && all_are(weights, 64 * MIB + 4711, 0x11));
    EXPECT(cuGraphLaunch(exec, stream) == CUDA_SUCCESS && cudaStreamSynchronize(stream) == cudaSuccess);
    EXPECT(all_are(weights, 64 * MIB, 0x77));
    EXPECT(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    EXPECT(cudaFree(weights) == cudaSuccess && cudaFree(small) == cudaSuccess && cudaFree(kv) == cudaSuccess);
    EXPECT(cudaFree(other) == cudaSuccess && statistic(0, "paused_bytes") == 0);
}

static void refuses(int answer)
{
    void *address = tagged("kv", 0, 3 * MIB);
    EXPECT(pause_tag("kv") == answer && pause_tag(NULL) == answer && resume_tag("kv") == 0 && resume_tag(NULL) == 0);
    EXPECT(cudaMemset(address, 1, 3 * MIB) == cudaSuccess && cudaFree(address) == cudaSuccess);
}

/* Whole pages of a tag go over and over, and what is left costs no more than the last page of each kind. */
static void costs(void)
{
    static const size_t sizes[] = {1000, 70000, 3 * MIB, 9 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        (void)tagged(i % 2 ? "odd" : "even", 0, sizes[i]);
    EXPECT(statistic(0, "reserved_bytes") <= 4 * 2 * MIB + 16 * MIB);
}

/* The limit falls below what the program has. A paused tag of which nothing is left comes back all the same. */
static void limited(void)
{
    size_t (*set_limit)(int device, size_t bytes);
    void *other;
    find("segalloc_set_limit", &set_limit);
    EXPECT(cudaMalloc(&other, 64 * MIB) == cudaSuccess);
    void *left = tagged("weights", 0, 8 * MIB), *gone = tagged("kv", 0, 8 * MIB);
    EXPECT(pause_tag(NULL) == 0 && cudaFree(gone) == cudaSuccess);
    EXPECT(set_limit(0, 32 * MIB) == 32 * MIB);
    EXPECT(resume_tag("weights") == CUDA_ERROR_OUT_OF_MEMORY && resume_tag("kv") == 0);
    EXPECT(set_limit(0, 256 * MIB) == 256 * MIB && resume_tag("weights") == 0);
    EXPECT(cudaFree(left) == cudaSuccess && cudaFree(other) == cudaSuccess);
}

/* The driver serves a block of a tag, because it makes no more pages. A pause leaves it, and says so once. */
static void passed_on(void)
{
    char text[1024] = "";
    void *block = tagged("kv", SEGALLOC_TAG_DISCARD, 40 * MIB);
    FILE *said = tmpfile();
    int standard = dup(STDERR_FILENO);
    EXPECT(cudaMemset(block, 0x55, 40 * MIB) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    EXPECT(said && standard >= 0 && dup2(fileno(said), STDERR_FILENO) == STDERR_FILENO);
    int paused_it = pause_tag("kv"), resumed = resume_tag("kv"), again = pause_tag("kv");
    EXPECT(dup2(standard, STDERR_FILENO) == STDERR_FILENO && lseek(fileno(said), 0, SEEK_SET) == 0);
    EXPECT(read(fileno(said), text, sizeof text - 1) > 0);
    const char *line = strstr(text, "memory of tag \"kv\" stays");
    EXPECT(paused_it == 0 && resumed == 0 && again == 0 && line && !strstr(line + 1, "memory of tag"));
    EXPECT(all_are(block, 40 * MIB, 0x55) && resume_tag("kv") == 0);
    EXPECT(cudaFree(block) == cudaSuccess);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "pauses";
    find("segalloc_tag_push", &push);
    find("segalloc_tag_pop", &pop);
    find("segalloc_pause", &pause_tag);
    find("segalloc_resume", &resume_tag);
    if (strcmp(what, "pauses") == 0) {
        pauses();
    } else if (strcmp(what, "passed_on") == 0) {
        passed_on();
    } else if (strcmp(what, "limited") == 0) {
        limited();
    } else if (strcmp(what, "costs") == 0) {
        costs();
    } else if (strcmp(what, "passes") == 0) {
        EXPECT(push("kv", 0) == 801 && pop() == 801 && pause_tag(NULL) == 801 && resume_tag("kv") == 801);
    } else {
        refuses(atoi(what));
    }
    return failures != 0;
}
