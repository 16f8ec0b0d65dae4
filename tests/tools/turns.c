/* A program with tags of memory, which takes turns with others on one card. Its arguments are done one after the other:
     tag=NAME       what follows is of this tag; tag=NAME! of one that saves nothing, tag= of none
     NAME+KIB       allocates; NAME is a letter
     NAME-          frees
     NAME!KIB       takes memory by cuMemCreate, which is never freed
     pause, resume  all tags; pause=NAME, resume=NAME one
     fill=NAME      fills a block with its letter
     is=NAME        ends with status 1 unless that is still there
     turn=K         waits until the file that TURNS names has K bytes
     next           adds a byte to it
   Without TURNS it waits for nobody, and compares nothing, for copies may move nothing then. Any failure ends it with status 1
   after a line. */
#include "cuda_abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FLAG_DISCARD = 1, WAIT_SECONDS = 100 };

static struct {
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*current)(CUcontext);
    CUresult (*take)(CUdeviceptr *, size_t);
    CUresult (*give)(CUdeviceptr);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*set)(CUdeviceptr, unsigned char, size_t);
    CUresult (*get)(void *, CUdeviceptr, size_t);
} driver;

static int (*tag_push)(const char *, unsigned), (*tag_pop)(void), (*pause_tag)(const char *),
    (*resume_tag)(const char *);
static struct {
    CUdeviceptr at;
    size_t bytes;
} block[256]; /* by letter */

static void find(void *library, const char *name, void *ret)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "turns: no %s\n", name);
        exit(3);
    }
    memcpy(ret, &found, sizeof found);
}

static void check(int result, const char *act)
{
    if (result == 0)
        return;
    fprintf(stderr, "turns: %s: %d\n", act, result);
    exit(1);
}

static void begin(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUcontext context;
    if (!library)
        exit(2);
    find(library, "cuInit", &driver.init);
    find(library, "cuDevicePrimaryCtxRetain", &driver.retain);
    find(library, "cuCtxSetCurrent", &driver.current);
    find(library, "cuMemAlloc_v2", &driver.take);
    find(library, "cuMemFree_v2", &driver.give);
    find(library, "cuMemCreate", &driver.create);
    find(library, "cuMemsetD8_v2", &driver.set);
    find(library, "cuMemcpyDtoH_v2", &driver.get);
    find(RTLD_DEFAULT, "segalloc_tag_push", &tag_push);
    find(RTLD_DEFAULT, "segalloc_tag_pop", &tag_pop);
    find(RTLD_DEFAULT, "segalloc_pause", &pause_tag);
    find(RTLD_DEFAULT, "segalloc_resume", &resume_tag);
    check((int)driver.init(0), "cuInit");
    check((int)driver.retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check((int)driver.current(context), "cuCtxSetCurrent");
}

static void use_tag(char *name)
{
    static int pushed;
    size_t length = strlen(name);
    int discard = length && name[length - 1] == '!';
    if (pushed)
        check(tag_pop(), "segalloc_tag_pop");
    name[length - (size_t)discard] = '\0';
    pushed = *name != '\0';
    if (pushed)
        check(tag_push(name, discard ? FLAG_DISCARD : 0), "segalloc_tag_push");
}

static void take_turn(const char *act, long wanted)
{
    const char *file = getenv("TURNS");
    struct stat status;
    struct timespec rest = {.tv_nsec = 2000000};
    for (int i = 0; file && (stat(file, &status) != 0 || status.st_size < wanted); i++) {
        if (i > WAIT_SECONDS * 500)
            check(-1, act);
        nanosleep(&rest, NULL);
    }
}

static void end_turn(const char *act)
{
    const char *file = getenv("TURNS");
    int out = file ? open(file, O_WRONLY | O_APPEND) : -1;
    if (file && (out < 0 || write(out, "x", 1) != 1))
        check(-1, act);
    if (out >= 0)
        close(out);
}

static void compare(unsigned char name, const char *act)
{
    size_t bytes = block[name].bytes;
    unsigned char *host = getenv("TURNS") ? malloc(bytes) : NULL;
    if (host)
        check((int)driver.get(host, block[name].at, bytes), act);
    for (size_t i = 0; host && i < bytes; i++)
        check(host[i] != name, act);
    free(host);
}

static void on_memory(const char *act)
{
    unsigned char name = (unsigned char)act[0];
    size_t bytes = (size_t)strtoull(act + 2, NULL, 10) << 10;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    if (act[1] == '+') {
        check((int)driver.take(&block[name].at, bytes), act);
        block[name].bytes = bytes;
    } else if (act[1] == '-') {
        check((int)driver.give(block[name].at), act);
    } else if (act[1] == '!') {
        check((int)driver.create(&handle, bytes, &prop, 0), act);
    } else {
        check(-1, act);
    }
}

int main(int argc, char **argv)
{
    begin();
    for (int i = 1; i < argc; i++) {
        char *act = argv[i], *value = strchr(act, '=');
        if (strncmp(act, "tag=", 4) == 0)
            use_tag(act + 4);
        else if (strncmp(act, "pause", 5) == 0)
            check(pause_tag(value ? value + 1 : NULL), act);
        else if (strncmp(act, "resume", 6) == 0)
            check(resume_tag(value ? value + 1 : NULL), act);
        else if (strncmp(act, "fill=", 5) == 0)
            check((int)driver.set(block[(unsigned char)value[1]].at, (unsigned char)value[1],
                      block[(unsigned char)value[1]].bytes),
                act);
        else if (strncmp(act, "is=", 3) == 0)
            compare((unsigned char)value[1], act);
        else if (strncmp(act, "turn=", 5) == 0)
            take_turn(act, atol(value + 1));
        else if (strcmp(act, "next") == 0)
            end_turn(act);
        else
            on_memory(act);
    }
    return 0;
}
