/* Preloaded, on the simulator: who calls the runtime. A library that came before any runtime did, code that no library
   has, as compilers in the process make it, and more libraries than are remembered.
   Usage: modules USER RUNTIME LINKED (a library that is linked with the allocator as well) */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "served.h"

enum { MANY = 80, INSUFFICIENT_DRIVER = 35 };

typedef int malloc_fn(void **ret, size_t bytes);
typedef int free_fn(void *address);

struct user {
    malloc_fn *malloc;
    free_fn *free;
};

static struct user load(const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL), *symbol;
    struct user user;
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    symbol = dlsym(handle, "user_12_malloc");
    memcpy(&user.malloc, &symbol, sizeof symbol);
    symbol = dlsym(handle, "user_12_free");
    memcpy(&user.free, &symbol, sizeof symbol);
    return user;
}

static void use(const struct user *user)
{
    void *block = NULL;
    EXPECT(user->malloc(&block, 5000) == 0 && block && user->free(block) == 0);
}

/* int call(void *a, size_t b, void *function): function(a, b), from memory that no library has. */
typedef int call_fn(void *a, size_t b, void *function);

static call_fn *make_call(void)
{
#if defined(__x86_64__)
    static const unsigned char code[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd2, 0x48, 0x83, 0xc4, 0x08, 0xc3};
#else
    static const unsigned code[] = {0xa9bf7bfd, 0xd63f0040, 0xa8c17bfd, 0xd65f03c0};
#endif
    void *page = mmap(NULL, sizeof code, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    call_fn *call;
    memcpy(page, code, sizeof code);
    EXPECT(mprotect(page, sizeof code, PROT_READ | PROT_EXEC) == 0);
    __builtin___clear_cache(page, (char *)page + sizeof code);
    memcpy(&call, &page, sizeof call);
    return call;
}

/* By the library's own handle: the runtime is not opened for all, so RTLD_DEFAULT finds no such name. */
static void call_from_nowhere(void)
{
    Dl_info info;
    call_fn *call = make_call();
    EXPECT(dladdr(dlsym(RTLD_DEFAULT, "segalloc_stats"), &info));
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    EXPECT(library && !dlsym(RTLD_DEFAULT, "cudaMalloc"));
    for (int i = 0; i < 4; i++) {
        void *block = NULL;
        EXPECT(call(&block, 5000, dlsym(library, "cudaMalloc")) == 0 && block);
        EXPECT(call(block, 0, dlsym(library, "cudaFree")) == 0);
    }
    dlclose(library);
}

static bool copy(const char *from, const char *to)
{
    char text[4096];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t length;
    while (in && out && (length = fread(text, 1, sizeof text, in)) > 0)
        fwrite(text, 1, length, out);
    return in && out && fclose(in) == 0 && fclose(out) == 0;
}

static void use_many(const char *path)
{
    struct user user[MANY];
    char folder[] = "/tmp/modules-XXXXXX", name[64];
    EXPECT(mkdtemp(folder));
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%s/%d.so", folder, i);
        EXPECT(copy(path, name));
        user[i] = load(name);
        unlink(name);
        use(&user[i]);
    }
    rmdir(folder);
    for (int i = 0; i < MANY; i++)
        use(&user[i]);
}

int main(int count, char **argument)
{
    void *block;
    if (count != 4)
        return 2;
    struct user user = load(argument[1]);
    EXPECT(user.malloc(&block, 5000) == INSUFFICIENT_DRIVER);
    EXPECT(user.free(NULL) == INSUFFICIENT_DRIVER);
    EXPECT(dlopen(argument[2], RTLD_NOW | RTLD_LOCAL));
    use(&user);
    call_from_nowhere();
    use_many(argument[1]);
    user = load(argument[3]);
    use(&user);
    EXPECT(statistic(0, "allocs") == 1 + 4 + 2 * MANY + 1 && statistic(0, "allocations") == 0);
    return failures != 0;
}
