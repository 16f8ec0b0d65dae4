/* The driver's own functions, looked up once for all hooks.

   Where libcuda is not loaded yet, the answers come from a table of functions that all say CUDA_ERROR_NOT_INITIALIZED,
   as the driver does before cuInit. The real table is filled on a thread's stack and copied under SG_LOCK_REAL. The
   look-ups take the loader's lock, and no lock of ours may be held then. */
#include "process/hooks.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "process/hook_table.h"
#include "process/locks.h"
#include "process/symbols.h"

static CUresult hooks_missing(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

static const struct sg_real absent_table = {
#define HOOK(symbol, base, version, threads, parameters) .symbol = (CUresult(*) parameters)(sg_any_fn *)hooks_missing,
#include "process/hooks.def"
};

/* The driver's own functions. The table is written once, under SG_LOCK_REAL. */
static struct {
    struct sg_real table;
    atomic_bool loaded;
} real;

/* Fills the table with the driver's functions. A function that the driver lacks stays the one that answers
   CUDA_ERROR_NOT_INITIALIZED. */
static void load_real(struct sg_real *table)
{
    *table = absent_table;
    for (int i = 0; i < SG_HOOK_COUNT; i++) {
        void *function = sg_cuda_symbol(sg_hooks[i].symbol);
        if (function)
            memcpy((char *)table + sg_hooks[i].offset, &function, sizeof function);
    }
}

/* Two threads may fill a table at once; both find the same, and the first copy stays. */
const struct sg_real *sg_real(void)
{
    if (atomic_load_explicit(&real.loaded, memory_order_acquire))
        return &real.table;
    if (!sg_cuda_loaded())
        return &absent_table;
    struct sg_real table;
    load_real(&table);
    sg_process_lock(SG_LOCK_REAL);
    if (!atomic_load_explicit(&real.loaded, memory_order_relaxed)) {
        real.table = table;
        atomic_store_explicit(&real.loaded, true, memory_order_release);
    }
    sg_process_unlock(SG_LOCK_REAL);
    return &real.table;
}

void *sg_hook_real(const struct sg_hook_row *hook)
{
    void *function;
    memcpy(&function, (const char *)sg_real() + hook->offset, sizeof function);
    return function == sg_address_of((sg_any_fn *)hooks_missing) ? NULL : function;
}
