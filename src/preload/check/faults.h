/* Errors of the GPU, as any hooked call may return them first: which guarded blocks they may be about.

   Why. Such an error is said some calls after the work that made it, and names no address. Guarded blocks are the only ones
   whose ends and whose freed addresses are unmapped, so it is most likely about one of them.

   Why not in the core. It knows errors after which the driver answers nothing else, and stops then. Which blocks the program may
   have misused is not its affair.

   How. Whoever sees one of these errors first says it, with up to 8 guarded blocks. On the simulated GPU the address is
   known, and the nearest blocks come first. Else those that were freed last come first. The kernel's log has the address
   of a real one, as "MMU Fault ... faulted @ 0x7f10_00200000" (NVIDIA's "Xid errors", number 31).

   Limits. Only errors that a wrong address makes are said: 700 (illegal address), 717 (wrong address space) and 719 (launch failed,
   which some accesses end with too). One of them is said in a process, since the context is lost by it. A call that is not
   hooked may be the first to return it; then the next hooked one says it.

   Without guarded blocks the error is said with what `guard` could show. So a user who runs `--check` alone learns of it.

   For example, a kernel reads a block of 5,000 bytes after its free. cuStreamSynchronize answers 700. The text names the
   call, the block, the lines that allocated and freed it, and its addresses. */
#ifndef SG_FAULTS_H
#define SG_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "driver/cuda_abi.h"

/* True while `check` is on and none was seen. No lock. */
extern atomic_bool sg_faults_watched __attribute__((visibility("hidden")));

/* From here on errors are looked for; once. In a forked child: no more. */
void sg_faults_open(void);
void sg_faults_close(void);

/* The slow half. Any thread, no lock of ours but as in a signal handler. */
void sg_fault_say(CUresult result, const char *call);

/* A call of the driver has returned `result`. */
static inline void sg_fault_seen(CUresult result, const char *call)
{
    if (__builtin_expect(result != CUDA_SUCCESS, false) &&
        atomic_load_explicit(&sg_faults_watched, memory_order_relaxed) &&
        (result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_INVALID_ADDRESS_SPACE ||
            result == CUDA_ERROR_LAUNCH_FAILED))
        sg_fault_say(result, call);
}

#endif
