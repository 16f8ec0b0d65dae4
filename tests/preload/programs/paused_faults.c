/* Preloaded: tags of two devices leave and come back, and each call of the driver that they make on the way fails in turn. The answer
   is an error or not; what is not paused has its contents, and what was repeated ends well.

   The first argument says where contents go: `host` or `files`. The program plays once and counts, then has itself run anew for each of
   those calls. A second argument says that it is one of these runs. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extra.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)
enum { DEVICES = 2, BLOCKS = 5, TRIES = 4, ROWS = 2048, EACH_MOST = 24 };

static int (*push)(const char *tag, unsigned flags), (*pop)(void), (*pause_tag)(const char *tag),
    (*resume_tag)(const char *tag);
static segalloc_sim_calls_fn sim_calls;
static segalloc_sim_hazards_fn sim_hazards;
static struct segalloc_sim_call before[ROWS], after[ROWS];
static size_t rows;

static const struct {
    int device;
    const char *tag;
    unsigned flags;
    size_t bytes;
} kinds[BLOCKS] = {{0, "weights", 0, 5 * MIB + 17}, {0, "weights", 0, 1000}, {0, "kv", SEGALLOC_TAG_DISCARD, 3 * MIB},
    {1, "weights", 0, 4 * MIB}, {1, "weights", 0, 70000}};
static unsigned char *block[BLOCKS];
static bool files;

static bool all_are(const void *address, size_t bytes, int value)
{
    unsigned char *host = malloc(bytes);
    int result = cudaMemcpy(host, address, bytes, cudaMemcpyDeviceToHost);
    if (result != cudaSuccess) /* it may be the call that fails */
        result = cudaMemcpy(host, address, bytes, cudaMemcpyDeviceToHost);
    bool right = result == cudaSuccess;
    for (size_t i = 0; right && i < bytes; i++)
        right = host[i] == value;
    free(host);
    return right;
}

static void find_in_driver(const char *name, void *ret)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *symbol = driver ? dlsym(driver, name) : NULL;
    EXPECT(symbol);
    memcpy(ret, &symbol, sizeof symbol);
}

static void make(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(cudaSetDevice(kinds[i].device) == cudaSuccess && push(kinds[i].tag, kinds[i].flags ? kinds[i].flags
                                                                                   : files        ? SEGALLOC_TAG_FILE
                                                                                                  : 0) == 0);
        EXPECT(cudaMalloc((void **)&block[i], kinds[i].bytes) == cudaSuccess && pop() == 0);
        EXPECT(cudaMemset(block[i], i + 1, kinds[i].bytes) == cudaSuccess);
        EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    }
}

/* Nothing is paused. Contents that a pause has given up may be zeros. */
static void look(bool given_up)
{
    for (int i = 0; i < BLOCKS; i++) {
        bool zeros = given_up && kinds[i].flags;
        EXPECT(all_are(block[i], kinds[i].bytes, zeros ? 0 : i + 1) ||
               (kinds[i].flags && all_are(block[i], kinds[i].bytes, 0)));
    }
}

/* A pause that fails is half done at most: then a resume mends it. */
static void pause_once(void)
{
    int answer = pause_tag(NULL);
    for (int tries = 1; answer != 0 && tries < TRIES; tries++) {
        if (statistic(0, "paused_bytes") + statistic(1, "paused_bytes") == 0)
            look(false);
        answer = pause_tag(NULL);
    }
    EXPECT(answer == 0);
    for (int device = 0; device < DEVICES; device++)
        EXPECT(statistic(device, "paused_bytes") > 0);
}

static void resume_once(void)
{
    int answer = resume_tag(NULL);
    for (int tries = 1; answer != 0 && tries < TRIES; tries++)
        answer = resume_tag(NULL);
    EXPECT(answer == 0);
    for (int device = 0; device < DEVICES; device++)
        EXPECT(statistic(device, "paused_bytes") == 0);
}

static void play(void)
{
    make();
    rows = sim_calls(before, ROWS);
    pause_once();
    resume_once();
    (void)sim_calls(after, ROWS);
    look(true);
    for (int i = 0; i < BLOCKS; i++)
        EXPECT(cudaFree(block[i]) == cudaSuccess);
    EXPECT(sim_hazards() == 0);
}

/* Runs this program anew, and has the Nth call of a name fail. */
static void play_with_fault(const char *program, const char *card, const char *name, unsigned long long at)
{
    char setting[256];
    int status = -1;
    const char *version = strstr(name, "_v"); /* a setting names the call in each of its versions */
    snprintf(setting, sizeof setting, "%s,fail=%.*s:%llu", card, (int)(version ? version - name : (long)strlen(name)),
        name, at);
    pid_t child = fork();
    if (child == 0) {
        setenv("SEGALLOC_SIM", setting, 1);
        execl(program, program, files ? "files" : "host", "once", (char *)NULL);
        _exit(127);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0)
        fprintf(stderr, "with %s: status %d\n", setting, status);
    EXPECT(status == 0);
}

int main(int argc, char **argv)
{
    char card[128];
    unsigned long long faults = 0;
    files = argc > 1 && strcmp(argv[1], "files") == 0;
    snprintf(card, sizeof card, "%s", getenv("SEGALLOC_SIM") ? getenv("SEGALLOC_SIM") : "");
    find("segalloc_tag_push", &push);
    find("segalloc_tag_pop", &pop);
    find("segalloc_pause", &pause_tag);
    find("segalloc_resume", &resume_tag);
    find_in_driver("segalloc_sim_calls", &sim_calls);
    find_in_driver("segalloc_sim_hazards", &sim_hazards);
    if (failures)
        return 1;
    play();
    for (size_t i = 0; argc == 2 && i < rows && i < ROWS && !failures; i++) {
        for (uint64_t at = before[i].calls + 1; at <= after[i].calls && at <= before[i].calls + EACH_MOST; at++) {
            play_with_fault(argv[0], card, before[i].symbol, at);
            faults++;
        }
    }
    if (argc == 2)
        printf("%llu calls failed in turn\n", faults);
    return failures != 0;
}
