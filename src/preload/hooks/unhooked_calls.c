/* 64 stubs of 16 bytes in assembly. A stub puts its number into a register that no parameter uses. The common part
   saves all registers that may hold one, notes the call and jumps to the driver's function. */
#include "hooks/unhooked_calls.h"

#include <stdint.h>
#include <stdio.h>

#include "hooks/pin_hooks.h"
#include "process/process.h"
#include "track/streams.h"

enum { STUBS = 64, STUBS_OF_ORDER = 48, STUB_BYTES = 16 };

/* An entry is complete before its stub is handed out, and stays. The last ones name what found no room, by its kind. */
static struct {
    struct entry {
        void *real;
        enum sg_untracked what;
        char name[64];
    } list[STUBS + SG_UNTRACKED_KINDS];
    int used;
} untracked;

/* The stubs, in assembly below. */
extern const char sg_untracked_stubs[] __attribute__((visibility("hidden")));

static void count_as_called(const struct entry *entry)
{
    if (entry->what == SG_UNTRACKED_PAGES)
        sg_pin_all(entry->name);
    else
        sg_streams_untrack(entry->name);
}

/* The place of a function, found or made; STUBS or beyond: it has no stub. */
static int unhooked_place_of_locked(enum sg_untracked what, const char *name, void *real)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_UNTRACKED);
    int most = what == SG_UNTRACKED_PAGES ? STUBS : STUBS_OF_ORDER, i = 0;
    while (i < untracked.used && untracked.list[i].real != real)
        i++;
    if (i < untracked.used)
        return i;
    i = i < most ? untracked.used++ : STUBS + (int)what;
    if (!untracked.list[i].real) { /* of those without one the first is named */
        snprintf(untracked.list[i].name, sizeof untracked.list[i].name, "%s", name);
        untracked.list[i].what = what;
        untracked.list[i].real = real;
    }
    return i;
}

/* Each function has one stub for good, however often it is asked for. */
void *sg_untracked_stub(enum sg_untracked what, const char *name, void *real)
{
    sg_process_lock(SG_LOCK_UNTRACKED);
    int i = unhooked_place_of_locked(what, name, real);
    sg_process_unlock(SG_LOCK_UNTRACKED);
    if (i < STUBS)
        return (void *)((uintptr_t)sg_untracked_stubs + (uintptr_t)i * STUB_BYTES);
    count_as_called(&untracked.list[i]);
    return real;
}

/* Called from assembly only, which a compiler that sees the whole library at link time does not look into. */
#if defined(__has_attribute)
#if __has_attribute(externally_visible)
__attribute__((externally_visible))
#endif
#endif
__attribute__((used)) void *sg_untracked_called(unsigned stub);

/* Returns where to go on. */
void *sg_untracked_called(unsigned stub)
{
    const struct entry *entry = &untracked.list[stub];
    count_as_called(entry);
    return entry->real;
}

/* A stub puts its number where the driver's functions expect no parameter. The common part keeps whatever may be one:
   the registers of the System V ABI for x86-64, and of AAPCS64. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".balign 16\n"
        ".hidden sg_untracked_stubs\n"
        ".globl sg_untracked_stubs\n"
        ".type sg_untracked_stubs, @function\n"
        "sg_untracked_stubs:\n"
        ".set stub, 0\n"
        ".rept 64\n"
        ".balign 16\n"
        "endbr64\n"
        "movl $stub, %r11d\n"
        "jmp sg_untracked_common\n"
        ".set stub, stub + 1\n"
        ".endr\n"
        ".size sg_untracked_stubs, . - sg_untracked_stubs\n"
        ".type sg_untracked_common, @function\n"
        "sg_untracked_common:\n"
        ".cfi_startproc\n"
        "subq $200, %rsp\n" /* 16 bytes are its alignment then */
        ".cfi_adjust_cfa_offset 200\n"
        "movq %rdi, (%rsp)\n"
        "movq %rsi, 8(%rsp)\n"
        "movq %rdx, 16(%rsp)\n"
        "movq %rcx, 24(%rsp)\n"
        "movq %r8, 32(%rsp)\n"
        "movq %r9, 40(%rsp)\n"
        "movq %rax, 48(%rsp)\n"
        "movq %r10, 56(%rsp)\n"
        "movups %xmm0, 64(%rsp)\n"
        "movups %xmm1, 80(%rsp)\n"
        "movups %xmm2, 96(%rsp)\n"
        "movups %xmm3, 112(%rsp)\n"
        "movups %xmm4, 128(%rsp)\n"
        "movups %xmm5, 144(%rsp)\n"
        "movups %xmm6, 160(%rsp)\n"
        "movups %xmm7, 176(%rsp)\n"
        "movl %r11d, %edi\n"
        "call sg_untracked_called\n"
        "movq %rax, %r11\n"
        "movq (%rsp), %rdi\n"
        "movq 8(%rsp), %rsi\n"
        "movq 16(%rsp), %rdx\n"
        "movq 24(%rsp), %rcx\n"
        "movq 32(%rsp), %r8\n"
        "movq 40(%rsp), %r9\n"
        "movq 48(%rsp), %rax\n"
        "movq 56(%rsp), %r10\n"
        "movups 64(%rsp), %xmm0\n"
        "movups 80(%rsp), %xmm1\n"
        "movups 96(%rsp), %xmm2\n"
        "movups 112(%rsp), %xmm3\n"
        "movups 128(%rsp), %xmm4\n"
        "movups 144(%rsp), %xmm5\n"
        "movups 160(%rsp), %xmm6\n"
        "movups 176(%rsp), %xmm7\n"
        "addq $200, %rsp\n"
        ".cfi_adjust_cfa_offset -200\n"
        "jmp *%r11\n"
        ".cfi_endproc\n"
        ".size sg_untracked_common, . - sg_untracked_common\n");
#else
__asm__(".text\n"
        ".balign 16\n"
        ".hidden sg_untracked_stubs\n"
        ".globl sg_untracked_stubs\n"
        ".type sg_untracked_stubs, %function\n"
        "sg_untracked_stubs:\n"
        ".set stub, 0\n"
        ".rept 64\n"
        ".balign 16\n"
        "hint #34\n"
        "mov w17, #stub\n"
        "b sg_untracked_common\n"
        ".set stub, stub + 1\n"
        ".endr\n"
        ".size sg_untracked_stubs, . - sg_untracked_stubs\n"
        ".type sg_untracked_common, %function\n"
        "sg_untracked_common:\n"
        ".cfi_startproc\n"
        "stp x29, x30, [sp, #-224]!\n"
        ".cfi_def_cfa_offset 224\n"
        ".cfi_offset 29, -224\n"
        ".cfi_offset 30, -216\n"
        "mov x29, sp\n"
        "stp x0, x1, [sp, #16]\n"
        "stp x2, x3, [sp, #32]\n"
        "stp x4, x5, [sp, #48]\n"
        "stp x6, x7, [sp, #64]\n"
        "str x8, [sp, #80]\n"
        "stp q0, q1, [sp, #96]\n"
        "stp q2, q3, [sp, #128]\n"
        "stp q4, q5, [sp, #160]\n"
        "stp q6, q7, [sp, #192]\n"
        "mov w0, w17\n"
        "bl sg_untracked_called\n"
        "mov x16, x0\n"
        "ldp q6, q7, [sp, #192]\n"
        "ldp q4, q5, [sp, #160]\n"
        "ldp q2, q3, [sp, #128]\n"
        "ldp q0, q1, [sp, #96]\n"
        "ldr x8, [sp, #80]\n"
        "ldp x6, x7, [sp, #64]\n"
        "ldp x4, x5, [sp, #48]\n"
        "ldp x2, x3, [sp, #32]\n"
        "ldp x0, x1, [sp, #16]\n"
        "ldp x29, x30, [sp], #224\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "br x16\n"
        ".cfi_endproc\n"
        ".size sg_untracked_common, . - sg_untracked_common\n");
#endif
