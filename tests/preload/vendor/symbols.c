/* All calls that are hooked, as functions that do nothing; driver.c has better ones of some. */
#define HOOK(symbol, base, version, threads, parameters) \
    __attribute__((visibility("default"), weak)) int vendor_##symbol(void) __asm__(#symbol); \
    int vendor_##symbol(void) \
    { \
        return 0; \
    }
#include "process/hooks.def"
