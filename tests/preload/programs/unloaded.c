/* On the simulator, natively and preloaded: libraries with CUDA calls are loaded, used and unloaded, again and again, where
   another one lay before, with memory held across it; the driver itself, and the allocator loaded late, as well.
   Usage: unloaded USER12 USER13 [LIBSEGALLOC] */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 30, MUCH = 60, SUCCESS = 0, MEMORY_ALLOCATION = 2 };

struct user {
    void *handle;
    int (*malloc)(void **, size_t);
    int (*free)(void *);
    int (*error)(void);
};

static int failures;

static void expect(bool good, const char *what, int round)
{
    if (!good)
        printf("not so in round %d: %s\n", round, what);
    failures += !good;
}

static void *find(void *handle, const char *major, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "user_%s_%s", major, what);
    void *symbol = dlsym(handle, name);
    if (!symbol)
        printf("no %s\n", name);
    return symbol;
}

static struct user load(const char *path, const char *major)
{
    struct user user = {.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!user.handle) {
        printf("%s\n", dlerror());
        exit(2);
    }
    void *symbol = find(user.handle, major, "malloc");
    memcpy(&user.malloc, &symbol, sizeof symbol);
    symbol = find(user.handle, major, "free");
    memcpy(&user.free, &symbol, sizeof symbol);
    symbol = find(user.handle, major, "error");
    memcpy(&user.error, &symbol, sizeof symbol);
    return user;
}

/* Whose error it is tells whose runtime was called. */
static void use(const struct user *user, void **held, int round)
{
    void *block[8];
    expect(user->malloc(&block[0], (size_t)1 << MUCH) == MEMORY_ALLOCATION, "too much is refused", round);
    expect(user->error() == MEMORY_ALLOCATION, "its runtime keeps the error", round);
    expect(user->error() == SUCCESS, "once", round);
    for (int i = 0; i < 8; i++)
        expect(user->malloc(&block[i], (size_t)1000 << i) == SUCCESS, "allocated", round);
    for (int i = 0; i < 8; i++)
        expect(user->free(block[i]) == SUCCESS, "freed", round);
    if (*held)
        expect(user->free(*held) == SUCCESS, "freed by another library", round);
    expect(user->malloc(held, 100000) == SUCCESS, "held", round);
}

static void the_driver(int round)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(unsigned), (*count)(int *), devices = 0;
    void *symbol = handle ? dlsym(handle, "cuInit") : NULL;
    memcpy(&init, &symbol, sizeof symbol);
    symbol = handle ? dlsym(handle, "cuDeviceGetCount") : NULL;
    memcpy(&count, &symbol, sizeof symbol);
    expect(handle && init(0) == SUCCESS && count(&devices) == SUCCESS && devices > 0, "the driver says something",
        round);
    if (handle)
        dlclose(handle);
}

int main(int arguments, char **argument)
{
    void *held = NULL, *late = NULL;
    uintptr_t where[2] = {0};
    bool same_place = false;
    for (int round = 0; round < ROUNDS; round++) {
        the_driver(round);
        if (round == ROUNDS / 3 && arguments > 3) {
            late = dlopen(argument[3], RTLD_NOW | RTLD_GLOBAL);
            expect(late != NULL, "the library can be loaded late", round);
        }
        int which = round % 3 == 2; /* 12, 12, 13 */
        struct user user = load(argument[1 + which], which ? "13" : "12");
        memcpy(&where[which], &user.malloc, sizeof *where);
        same_place |= where[0] >> 12 == where[1] >> 12;
        use(&user, &held, round);
        dlclose(user.handle);
        if (round == 2 * ROUNDS / 3 && late)
            dlclose(late);
    }
    if (!same_place)
        fprintf(stderr, "no library ever lay where another one had been\n");
    printf("%d failures\n", failures);
    return failures != 0;
}
