/* dlopen: libraries loaded later count as those that were there from the start. The real dlopen looks for a library
   where its caller says (DT_RUNPATH), and finds the caller by the return address. So it is jumped to with that address
   still in place, and only the beginning of a load is seen here. Our own calls name a version of it, and don't come
   here.

   For example, a program allocates, then loads UCX. The count of loads goes from 0 to 1. The next allocation takes the
   slow path, since 1 is not looked at, and finds UCX (track/ipc.h). */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "track/ipc.h"
#include "process/symbols.h"

/* Called from assembly only, which a compiler that sees the whole library at link time does not look into. */
#if defined(__has_attribute)
#if __has_attribute(externally_visible)
__attribute__((externally_visible))
#endif
#endif
__attribute__((used)) void *sg_loading_called(const char *path, int flags);

/* Returns where to go on. */
void *sg_loading_called(const char *path, int flags)
{
    static _Atomic(void *) cached;
    void *real = atomic_load_explicit(&cached, memory_order_relaxed);
    if (path && !(flags & RTLD_NOLOAD))
        sg_ipc_loading();
    if (!real) {
        real = sg_dlsym()(RTLD_NEXT, "dlopen");
        atomic_store_explicit(&cached, real, memory_order_relaxed);
    }
    return real;
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlopen\n"
        ".type dlopen, @function\n"
        "dlopen:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "subq $24, %rsp\n"
        ".cfi_adjust_cfa_offset 24\n"
        "movq %rdi, 8(%rsp)\n"
        "movq %rsi, (%rsp)\n"
        "call sg_loading_called\n"
        "movq (%rsp), %rsi\n"
        "movq 8(%rsp), %rdi\n"
        "addq $24, %rsp\n"
        ".cfi_adjust_cfa_offset -24\n"
        "jmp *%rax\n"
        ".cfi_endproc\n"
        ".size dlopen, . - dlopen\n");
#else
__asm__(".text\n"
        ".globl dlopen\n"
        ".type dlopen, %function\n"
        "dlopen:\n"
        ".cfi_startproc\n"
        "hint #34\n"
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "mov x29, sp\n"
        "stp x0, x1, [sp, #16]\n"
        "bl sg_loading_called\n"
        "mov x16, x0\n"
        "ldp x0, x1, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "br x16\n"
        ".cfi_endproc\n"
        ".size dlopen, . - dlopen\n");
#endif
