/* Confines itself as a sandbox does, and goes on: memory, output, an orderly end. What the filter does not name kills the
   process. Usage: confined filter|strict */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int confine(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect),
        ALLOW(madvise), ALLOW(getrandom), ALLOW(exit_group), ALLOW(rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

static void work(void)
{
    char line[64];
    size_t sum = 0;
    for (size_t bytes = 1; bytes < 64 << 20; bytes *= 3) {
        char *memory = malloc(bytes);
        if (memory) {
            memset(memory, 1, bytes);
            sum += (size_t)memory[bytes - 1] * bytes;
        }
        free(memory);
    }
    int length = snprintf(line, sizeof line, "%zu bytes\n", sum);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(3);
}

int main(int count, char **argument)
{
    if (count > 1 && strcmp(argument[1], "strict") == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) != 0)
            return 77;
        const char line[] = "strict\n";
        syscall(SYS_write, STDOUT_FILENO, line, sizeof line - 1);
        syscall(SYS_exit, 4);
    }
    if (!confine())
        return 77; /* this kernel has none */
    work();
    exit(5);
}
