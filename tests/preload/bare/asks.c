/* Preloaded: a driver that lacks what the library needs serves the program itself. */
#include <stdbool.h>
#include <stddef.h>

#include "bare.h"
#include "../programs/served.h"

static void *find_in(void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);
    EXPECT(symbol != NULL);
    return symbol;
}

#define FIND(function, handle, name) memcpy(&(function), &(void *){find_in(handle, name)}, sizeof(void *))

int main(void)
{
    int (*initialize)(unsigned), (*alloc)(unsigned long long *, size_t), (*release)(unsigned long long), (*live)(void);
    void *(*alloc_on)(size_t, void *);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    EXPECT(driver != NULL);
    FIND(initialize, driver, "cuInit");
    FIND(alloc, RTLD_DEFAULT, "cuMemAlloc_v2");
    FIND(release, RTLD_DEFAULT, "cuMemFree_v2");
    FIND(live, driver, "bare_live");
    FIND(alloc_on, RTLD_DEFAULT, "segalloc_malloc_on");
    if (failures)
        return 1;
    EXPECT(is_ours((const void *)(uintptr_t)alloc));
    unsigned long long address[2] = {0};
    EXPECT(initialize(0) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(alloc(&address[i], 1000) == 0 && address[i] == BARE_ADDRESS);
    EXPECT(live() == 2 && statistic(0, "allocations") == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(release(address[i]) == 0);
    EXPECT(live() == 0);
    EXPECT((unsigned long long)(uintptr_t)alloc_on(1000, NULL) == BARE_ADDRESS && live() == 1);
    return failures != 0;
}
