/* Stands in for libibverbs over the simulated GPU: a registration of device memory by nvidia_peermem, which takes no range over
   several handles (kvcache-ai/Mooncake#351). Other memory is registered. */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

__attribute__((visibility("default"))) void *ibv_reg_mr(void *domain, void *address, size_t length, int access);

void *ibv_reg_mr(void *domain, void *address, size_t length, int access)
{
    int (*handles)(uint64_t, uint64_t);
    void *symbol = dlsym(RTLD_DEFAULT, "segalloc_sim_handles");
    (void)domain, (void)access;
    memcpy(&handles, &symbol, sizeof handles);
    if (symbol && handles((uint64_t)(uintptr_t)address, length) > 1) {
        errno = EFAULT;
        return NULL;
    }
    return address;
}
