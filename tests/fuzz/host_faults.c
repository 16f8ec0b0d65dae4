/* Preloaded before libsegalloc.so: lets calls of the host's fail by number, as on a machine that is short of something.

     HOST_FAULTS=KIND:N[+]      the Nth call of a kind fails, with + every later one too
     HOST_FAULTS_BY=NAME        of those calls that are made from files whose name contains NAME; libsegalloc.so
     HOST_FAULTS_COUNTS=FILE    of at least a page: how many calls of each kind there were, 8 bytes each

   Kinds: memory (malloc, calloc, realloc), map (mmap), protect (mprotect, munlock, madvise), open, write (write, pwrite,
   ftruncate, posix_fallocate, rename, mkdir), thread (pthread_create), syscall (descriptors, membarrier, statx). */
#undef _FILE_OFFSET_BITS /* both names of each function are defined here */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER ((uintptr_t)__builtin_return_address(0))

enum kind { MEMORY, MAP, PROTECT, OPEN, WRITE, THREAD, SYSCALL, KINDS };
static const char *const kind_names[KINDS] = {"memory", "map", "protect", "open", "write", "thread", "syscall"};

enum { RANGES = 64 };
static struct {
    uintptr_t begin, end;
} ranges[RANGES];
static unsigned range_count;
static atomic_uint_fast64_t own_counts[KINDS], *counts = own_counts;
static enum kind failing = KINDS;
static uint64_t at;
static bool onward;

/* glibc's own, which take no way through symbols that are replaced here. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static int note_ranges(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    const char *file = *info->dlpi_name ? info->dlpi_name : "the program itself";
    for (int i = 0; i < info->dlpi_phnum && strstr(file, name); i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || range_count == RANGES)
            continue;
        ranges[range_count].begin = info->dlpi_addr + part->p_vaddr;
        ranges[range_count++].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    return 0;
}

__attribute__((constructor(101))) static void start(void)
{
    const char *what = getenv("HOST_FAULTS"), *by = getenv("HOST_FAULTS_BY"), *file = getenv("HOST_FAULTS_COUNTS");
    int fd = file ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        long map = syscall(SYS_mmap, NULL, sizeof own_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        counts = map > 0 ? (void *)map : own_counts;
        syscall(SYS_close, fd);
    }
    for (int i = 0; what && i < KINDS; i++) {
        size_t length = strlen(kind_names[i]);
        if (strncmp(what, kind_names[i], length) != 0 || what[length] != ':')
            continue;
        char *end;
        at = strtoull(what + length + 1, &end, 10);
        onward = *end == '+';
        failing = (enum kind)i;
    }
    dl_iterate_phdr(note_ranges, (void *)(by ? by : "libsegalloc.so"));
}

/* Whether this call, which is counted, is one that fails. */
static bool fails(enum kind kind, uintptr_t caller)
{
    unsigned i = 0;
    while (i < range_count && (caller < ranges[i].begin || caller >= ranges[i].end))
        i++;
    if (i == range_count)
        return false;
    uint64_t number = atomic_fetch_add(&counts[kind], 1) + 1;
    return kind == failing && (onward ? number >= at : number == at);
}

static long failed(int error)
{
    errno = error;
    return -1;
}

EXPORT void *malloc(size_t bytes)
{
    if (!fails(MEMORY, CALLER))
        return __libc_malloc(bytes);
    errno = ENOMEM;
    return NULL;
}

EXPORT void *calloc(size_t count, size_t bytes)
{
    if (!fails(MEMORY, CALLER))
        return __libc_calloc(count, bytes);
    errno = ENOMEM;
    return NULL;
}

EXPORT void *realloc(void *old, size_t bytes)
{
    if (!fails(MEMORY, CALLER))
        return __libc_realloc(old, bytes);
    errno = ENOMEM;
    return NULL;
}

static void *map(uintptr_t caller, void *address, size_t bytes, int access, int flags, int fd, off_t offset)
{
    long result = fails(MAP, caller) ? failed(ENOMEM) : syscall(SYS_mmap, address, bytes, access, flags, fd, offset);
    return (void *)result;
}

EXPORT void *mmap(void *address, size_t bytes, int access, int flags, int fd, off_t offset)
{
    return map(CALLER, address, bytes, access, flags, fd, offset);
}

EXPORT void *mmap64(void *address, size_t bytes, int access, int flags, int fd, off64_t offset)
{
    return map(CALLER, address, bytes, access, flags, fd, offset);
}

EXPORT int mprotect(void *address, size_t bytes, int access)
{
    return (int)(fails(PROTECT, CALLER) ? failed(ENOMEM) : syscall(SYS_mprotect, address, bytes, access));
}

EXPORT int munlock(const void *address, size_t bytes)
{
    return (int)(fails(PROTECT, CALLER) ? failed(ENOMEM) : syscall(SYS_munlock, address, bytes));
}

EXPORT int madvise(void *address, size_t bytes, int advice)
{
    return (int)(fails(PROTECT, CALLER) ? failed(EFAULT) : syscall(SYS_madvise, address, bytes, advice));
}

static int open_file(uintptr_t caller, const char *path, int flags, va_list more)
{
    int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, int) : 0;
    return (int)(fails(OPEN, caller) ? failed(EMFILE) : syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int fd = open_file(CALLER, path, flags, more);
    va_end(more);
    return fd;
}

EXPORT int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int fd = open_file(CALLER, path, flags, more);
    va_end(more);
    return fd;
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
    return fails(WRITE, CALLER) ? failed(ENOSPC) : syscall(SYS_write, fd, data, bytes);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return fails(WRITE, CALLER) ? failed(ENOSPC) : syscall(SYS_pwrite64, fd, data, bytes, offset);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
    return fails(WRITE, CALLER) ? failed(ENOSPC) : syscall(SYS_pwrite64, fd, data, bytes, offset);
}

EXPORT int ftruncate(int fd, off_t bytes)
{
    return (int)(fails(WRITE, CALLER) ? failed(ENOSPC) : syscall(SYS_ftruncate, fd, bytes));
}

EXPORT int ftruncate64(int fd, off64_t bytes)
{
    return (int)(fails(WRITE, CALLER) ? failed(ENOSPC) : syscall(SYS_ftruncate, fd, bytes));
}

EXPORT int posix_fallocate(int fd, off_t from, off_t bytes)
{
    return fails(WRITE, CALLER) ? ENOSPC : syscall(SYS_fallocate, fd, 0, from, bytes) == 0 ? 0 : errno;
}

EXPORT int posix_fallocate64(int fd, off64_t from, off64_t bytes)
{
    return fails(WRITE, CALLER) ? ENOSPC : syscall(SYS_fallocate, fd, 0, from, bytes) == 0 ? 0 : errno;
}

EXPORT int rename(const char *from, const char *to)
{
    return (int)(fails(WRITE, CALLER) ? failed(ENOSPC) : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    return (int)(fails(WRITE, CALLER) ? failed(ENOSPC) : syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (fails(THREAD, CALLER))
        return EAGAIN;
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "pthread_create", "GLIBC_2.34");
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "pthread_create", "GLIBC_2.2.5");
    return real(thread, attributes, run, user);
}

/* What may be refused is what asks for something. */
EXPORT long syscall(long number, ...)
{
    static long (*real)(long, ...);
    va_list more;
    long a[6];
    va_start(more, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "syscall", "GLIBC_2.2.5");
    bool asks = number == SYS_fcntl || number == SYS_membarrier || number == SYS_statx || number == SYS_fstat;
    if (asks && fails(SYSCALL, CALLER))
        return failed(number == SYS_fcntl ? EMFILE : number == SYS_membarrier ? ENOSYS : EACCES);
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
