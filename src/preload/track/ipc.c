/* Libraries that give memory away by legacy handles, looked for by name (process/modules.def) and by variables of the
   environment.

   A load is seen at its begin only. So the thread that loads looks at its own next allocation, by which the load is
   done. Other threads ask the loader how many libraries it has added; 64 looks in vain end that.

   For example, thread A is in a dlopen() of 2 s and thread B allocates 1,000 times meanwhile. B takes the slow path 64
   times, then the short one again. A's next allocation finds what was loaded. */
#include "process/glibc_symver.h"

#include "track/ipc.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "track/captures.h"
#include "process/environment.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/rehearsal.h"
#include "process/symbols.h"

atomic_uint sg_ipc_loads, sg_ipc_looked;

/* The loader's count of what it has loaded, and how often another thread than the one that loads has found the same. */
static struct {
    _Atomic(unsigned long long) added;
    atomic_uint looks_in_vain;
} loader;

/* A thread that loads and never allocates must not keep the others on the long way. */
enum { LOOKS_MOST = 64 };

enum sharing { LOCAL, SHARES };

static const struct module {
    const char *prefix, *unless;
    enum sharing sharing;
} modules[] = {
#define MODULE(prefix, caller, shares, unless) {prefix, unless, shares},
#include "process/modules.def"
};

/* Read as NCCL reads its parameters (ncclLoadParam() in src/misc/param.cc): a text that is no number counts as not set.
   PyTorch can have NCCL in a library of its own. */
static bool nccl_shares(void)
{
    const char *value = sg_environment("NCCL_CUMEM_ENABLE");
    char *end = NULL;
    bool off = value && strtoll(value, &end, 0) == 0 && end != value;
    return off && (sg_library_loaded("libnccl.so") || sg_library_loaded("libtorch_cuda.so"));
}

/* MPI is in many programs that run alone, or is built without CUDA. */
static bool mpi_shares(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    const char *size = NULL;
    for (int i = 0; i < 3 && !size; i++)
        size = sg_environment(sizes[i]);
    void *mpi = size && strcmp(size, "1") != 0 ? sg_library_find("libmpi") : NULL;
    int (*with_cuda)(void) = NULL;
    void *symbol = mpi ? sg_dlsym()(mpi, "MPIX_Query_cuda_support") : NULL;
    memcpy(&with_cuda, &symbol, sizeof with_cuda);
    bool shares = mpi && (!with_cuda || with_cuda());
    if (mpi)
        sg_library_close(mpi);
    return shares;
}

/* The library that gives memory away here; NULL: none that is known. */
static const char *find_sharer(void)
{
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const struct module *module = &modules[i];
        if (module->sharing == SHARES && sg_library_loaded(module->prefix) &&
            !(module->unless && sg_library_loaded(module->unless)))
            return module->prefix;
    }
    return nccl_shares() ? "NCCL_CUMEM_ENABLE=0" : mpi_shares() ? "libmpi" : NULL;
}

bool sg_ipc_needed(void)
{
    return find_sharer() != NULL;
}

static int count_added(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    *(unsigned long long *)user = info->dlpi_adds;
    return 1; /* each says the same */
}

static unsigned long long read_added(void)
{
    unsigned long long count = 0;
    dl_iterate_phdr(count_added, &count);
    return count;
}

bool sg_ipc_decide(void)
{
    atomic_store(&loader.added, read_added());
    return sg_process_conf()->ipc == SG_IPC_AUTO && find_sharer();
}

/* This thread goes the long way until it has allocated; the others do once, since they can't know when the load is
   done. */
void sg_ipc_loading(void)
{
    if (!sg_process_core_made())
        return; /* it is all looked at with the first allocation */
    sg_self.loads = true;
    atomic_fetch_add(&sg_ipc_loads, 1);
    atomic_fetch_add(&sg_fast_path_epoch, 1);
}

/* The thread that has loaded comes here once that is over, or from within what it loads; others while it goes on. */
void sg_ipc_look(void)
{
    if (!sg_self.loads && !sg_ipc_undecided())
        return;
    unsigned loads = atomic_load(&sg_ipc_loads);
    unsigned long long count = read_added();
    bool own = sg_self.loads, grown = atomic_exchange(&loader.added, count) != count;
    const char *sharer = own || grown ? find_sharer() : NULL;
    sg_self.loads = false;
    if (own || grown || atomic_fetch_add(&loader.looks_in_vain, 1) % LOOKS_MOST == LOOKS_MOST - 1)
        atomic_store(&sg_ipc_looked, loads);
    if (!sharer || sg_process_share() != SG_SHARE_BEGINS)
        return;
    char line[256];
    snprintf(line, sizeof line,
        "%s: memory is given to other processes or network cards; what is allocated from here on can be "
        "(SEGALLOC_CONF=ipc:always: from the start)",
        sharer);
    sg_log_line(line);
}

/* The driver's answer for memory of its own. Where it has no such handles, as on WSL 2, other memory changes nothing.
   Not asked while a capture is active, which that could ruin. */
static CUresult ipc_ask_driver(void)
{
    const struct sg_real *real = sg_real();
    CUdeviceptr probe;
    CUipcMemHandle handle;
    if (sg_captures_active() || real->cuMemAlloc_v2(&probe, 1) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    CUresult result = real->cuIpcGetMemHandle(&handle, probe);
    (void)real->cuMemFree_v2(probe);
    return result;
}

/* Says the way out once, and changes what is allocated from here on, if `ipc` allows it. The program's call fails this
   time. */
CUresult sg_ipc_refused(bool legacy)
{
    static atomic_flag explained = ATOMIC_FLAG_INIT;
    static const char *const ways_out[] = {
        [SG_SHARE_FORBIDDEN] = "with SEGALLOC_CONF=ipc:always each block is an allocation that can",
        [SG_SHARE_BEGINS] = "what is allocated from here on can (SEGALLOC_CONF=ipc:always: from the start)",
        [SG_SHARE_GOES_ON] = "it was allocated before that was so (SEGALLOC_CONF=ipc:always: from the start)",
    };
    char line[320];
    CUresult native = ipc_ask_driver();
    if (native != CUDA_SUCCESS)
        return native;
    enum sg_share share = sg_process_share();
    if (share != SG_SHARE_FORBIDDEN)
        sg_rehearsal_ask_for("ipc:always");
    if (atomic_flag_test_and_set(&explained) && share != SG_SHARE_BEGINS)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(line, sizeof line, "cuIpcGetMemHandle: %s; %s",
        legacy ? "this block lies inside a larger allocation of the driver's, which is what a legacy handle gives away"
               : "memory that is mapped piece by piece can't be given to another process by a legacy handle",
        ways_out[share]);
    sg_log_line(line);
    return CUDA_ERROR_INVALID_VALUE;
}
