#include "rehearse/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rehearse/ends.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* The lower half of an argument, on machines that are little-endian. */
#define ARGUMENT(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (n))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define ASK BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)
#define IS(number, instructions) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, (instructions))
#define ASK_ALWAYS(number) IS(number, 1), ASK
/* Not where the signal, which is the second argument, is none: that only asks whether a process is there. */
#define ASK_OF_SIGNAL(number) IS(number, 4), ARGUMENT(1), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), ASK, ALLOW
/* Only where the flags, which are the argument of that number, say that the file may be changed and need not be new. */
#define ASK_OF_FLAGS(number, n)                                                                              \
    IS(number, 7), ARGUMENT(n), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_CREAT | O_EXCL),                     \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_CREAT | O_EXCL, 3, 0), ARGUMENT(n),                          \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_TRUNC, 0, 1), ASK, ALLOW

#ifdef THIS_ARCH
static const struct sock_filter program[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
    ALLOW,
    LOAD(nr),
#ifdef __NR_open
    ASK_OF_FLAGS(__NR_open, 1),
    ASK_ALWAYS(__NR_creat),
    ASK_ALWAYS(__NR_rename),
    ASK_ALWAYS(__NR_unlink),
#endif
    ASK_OF_FLAGS(__NR_openat, 2),
    ASK_ALWAYS(__NR_openat2),
    ASK_ALWAYS(__NR_renameat),
    ASK_ALWAYS(__NR_renameat2),
    ASK_ALWAYS(__NR_unlinkat),
    ASK_ALWAYS(__NR_truncate),
    ASK_ALWAYS(__NR_exit_group),
    ASK_OF_SIGNAL(__NR_kill),
    ASK_OF_SIGNAL(__NR_rt_sigqueueinfo),
    ASK_OF_SIGNAL(__NR_pidfd_send_signal),
    ALLOW,
};
#endif

/* The file by which the tool is asked; negative where the system does not let it. */
static int keep_install_watch(void)
{
#ifdef THIS_ARCH
    const struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = (struct sock_filter *)program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
#else
    return -1;
#endif
}

bool sg_keep_possible(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        if (keep_install_watch() < 0)
            _exit(1);
        raise(SIGKILL); /* nobody would answer an exit, nor a kill() */
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status);
}

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
};

void sg_keep_install(int socket)
{
    union control control = {.room = {0}};
    char byte = 0;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int listener = keep_install_watch();
    if (listener < 0)
        return;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof listener);
    memcpy(CMSG_DATA(header), &listener, sizeof listener);
    (void)!sendmsg(socket, &message, 0);
    close(listener);
}

int sg_keep_receive(int socket)
{
    union control control;
    char byte;
    int listener = -1;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    while ((got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
    }
    struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&listener, CMSG_DATA(header), sizeof listener);
    return listener;
}

/* Reads from the asking process. False where it can't be read. */
static bool read_from(pid_t pid, uint64_t address, void *ret, size_t bytes)
{
    struct iovec here = {ret, bytes}, there = {(void *)(uintptr_t)address, bytes};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* A text, which may end just before a page that is not there. */
static bool read_text(pid_t pid, uint64_t address, char *ret, size_t size)
{
    enum { PAGE = 4096 };
    for (size_t had = 0; had < size;) {
        size_t part = PAGE - (address + had) % PAGE;
        part = part < size - had ? part : size - had;
        if (!read_from(pid, address + had, ret + had, part))
            return false;
        if (memchr(ret + had, '\0', part))
            return true;
        had += part;
    }
    return false;
}

/* The name that the process gave, from the root. */
static bool name_of(pid_t pid, int folder, uint64_t address, char ret[SG_PLACE_BYTES])
{
    char path[SG_PLACE_BYTES], base[SG_PLACE_BYTES], link[64];
    if (!read_text(pid, address, path, sizeof path) || !*path)
        return false;
    if (*path == '/') {
        memcpy(ret, path, sizeof path);
        return true;
    }
    if (folder == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/%ld/cwd", (long)pid);
    else
        snprintf(link, sizeof link, "/proc/%ld/fd/%d", (long)pid, folder);
    ssize_t length = readlink(link, base, sizeof base - 1);
    if (length <= 0)
        return false;
    base[length] = '\0';
    return snprintf(ret, SG_PLACE_BYTES, "%s/%s", base, path) < SG_PLACE_BYTES;
}

/* Names mean the same to both only where both have the same mounts and root. */
static bool has_our_files(pid_t pid)
{
    struct stat ours, theirs;
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/root/", (long)pid);
    return stat("/", &ours) == 0 && stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static bool before_open(struct sg_keep *keep, pid_t pid, int folder, uint64_t path, uint64_t flags)
{
    char name[SG_PLACE_BYTES];
    bool new = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL), writes = flags & (O_WRONLY | O_RDWR | O_TRUNC);
    if (new || !writes || (flags & O_DIRECTORY) || !name_of(pid, folder, path, name))
        return true;
    return sg_keep_before_write(keep, name, flags & O_TRUNC);
}

static bool before_rename(struct sg_keep *keep, pid_t pid, int from_folder, uint64_t from, int to_folder, uint64_t to)
{
    char name[SG_PLACE_BYTES], new_name[SG_PLACE_BYTES];
    if (!name_of(pid, from_folder, from, name) || !name_of(pid, to_folder, to, new_name))
        return true;
    return sg_keep_before_rename(keep, name, new_name);
}

static bool before_removal(struct sg_keep *keep, pid_t pid, int folder, uint64_t path)
{
    char name[SG_PLACE_BYTES];
    return !name_of(pid, folder, path, name) || sg_keep_before_removal(keep, name);
}

/* True if the call is one that ends a process, its own or another, and nothing else. */
static bool watch_note_end(const struct sg_keep *keep, const struct seccomp_notif *asked)
{
    const uint64_t *argument = (const uint64_t *)asked->data.args;
    pid_t pid = (pid_t)asked->pid, target = (pid_t)argument[0];
    switch (asked->data.nr) {
    case __NR_exit_group:
        sg_ends_note(keep->run, pid, (int)argument[0]);
        return true;
    case __NR_pidfd_send_signal:
        target = sg_ends_process_behind(pid, (int)argument[0]);
        if (!target)
            return true;
        __attribute__((fallthrough));
    case __NR_kill:
    case __NR_rt_sigqueueinfo:
        sg_ends_note_signal(keep->run, pid, target, (int)argument[1]);
        return true;
    default:
        return false;
    }
}

/* True if the call may go on. */
static bool before_call(struct sg_keep *keep, const struct seccomp_notif *asked)
{
    const uint64_t *argument = (const uint64_t *)asked->data.args;
    pid_t pid = (pid_t)asked->pid;
    struct open_how how;
    char name[SG_PLACE_BYTES];
    if (watch_note_end(keep, asked) || !keep->keeps || !has_our_files(pid))
        return true;
    switch (asked->data.nr) {
#ifdef __NR_open
    case __NR_open:
        return before_open(keep, pid, AT_FDCWD, argument[0], argument[1]);
    case __NR_creat:
        return before_open(keep, pid, AT_FDCWD, argument[0], O_WRONLY | O_CREAT | O_TRUNC);
    case __NR_rename:
        return before_rename(keep, pid, AT_FDCWD, argument[0], AT_FDCWD, argument[1]);
    case __NR_unlink:
        return before_removal(keep, pid, AT_FDCWD, argument[0]);
#endif
    case __NR_openat:
        return before_open(keep, pid, (int)argument[0], argument[1], argument[2]);
    case __NR_openat2:
        return !read_from(pid, argument[2], &how, sizeof how) ||
               before_open(keep, pid, (int)argument[0], argument[1], how.flags);
    case __NR_renameat2:
        if (argument[4] & (RENAME_NOREPLACE | RENAME_EXCHANGE))
            return true;
        return before_rename(keep, pid, (int)argument[0], argument[1], (int)argument[2], argument[3]);
    case __NR_renameat:
        return before_rename(keep, pid, (int)argument[0], argument[1], (int)argument[2], argument[3]);
    case __NR_unlinkat:
        return (argument[2] & AT_REMOVEDIR) || before_removal(keep, pid, (int)argument[0], argument[1]);
    case __NR_truncate:
        return !name_of(pid, AT_FDCWD, argument[0], name) || sg_keep_before_write(keep, name, false);
    default:
        return true;
    }
}

struct watch {
    struct sg_keep keep;
    int listener;
};

/* Watches that some process may still ask, one for each run. After so many, a run is not left behind. */
enum { WATCHES_MOST = 64 };
static struct watch *going_on[WATCHES_MOST];
static pthread_mutex_t going_on_lock = PTHREAD_MUTEX_INITIALIZER;

static void watch_replace(struct watch *before, struct watch *now)
{
    bool done = false;
    pthread_mutex_lock(&going_on_lock);
    for (int i = 0; i < WATCHES_MOST && !done; i++) {
        done = going_on[i] == before;
        if (done)
            going_on[i] = now;
    }
    pthread_mutex_unlock(&going_on_lock);
}

static void *keep_answer(void *argument)
{
    struct watch *watch = argument;
    struct seccomp_notif_sizes sizes;
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0)
        sizes = (struct seccomp_notif_sizes){sizeof(struct seccomp_notif), sizeof(struct seccomp_notif_resp), 0};
    size_t asked_bytes = sizes.seccomp_notif > sizeof(struct seccomp_notif) ? sizes.seccomp_notif : sizeof(struct seccomp_notif);
    size_t told_bytes =
        sizes.seccomp_notif_resp > sizeof(struct seccomp_notif_resp) ? sizes.seccomp_notif_resp : sizeof(struct seccomp_notif_resp);
    struct seccomp_notif *asked = calloc(1, asked_bytes);
    struct seccomp_notif_resp *told = calloc(1, told_bytes);
    struct pollfd ready = {.fd = watch->listener, .events = POLLIN};
    while (asked && told && (poll(&ready, 1, -1) > 0 || errno == EINTR)) {
        if (!(ready.revents & POLLIN)) {
            if (ready.revents & (POLLHUP | POLLERR | POLLNVAL))
                break; /* no process is left */
            continue;
        }
        memset(asked, 0, asked_bytes);
        memset(told, 0, told_bytes);
        if (ioctl(watch->listener, SECCOMP_IOCTL_NOTIF_RECV, asked) != 0)
            continue; /* a signal ended the call meanwhile */
        told->id = asked->id;
        if (before_call(&watch->keep, asked))
            told->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        else
            told->error = -EROFS;
        (void)ioctl(watch->listener, SECCOMP_IOCTL_NOTIF_SEND, told);
    }
    free(asked);
    free(told);
    watch_replace(watch, NULL);
    close(watch->listener);
    free(watch);
    return NULL;
}

static bool watch_is_open(int file)
{
    bool found = false;
    for (int i = 0; i < WATCHES_MOST; i++)
        found |= going_on[i] && going_on[i]->listener == file;
    return found;
}

/* In a process of its own, with nothing open but what it answers by. */
static void watch_go_on(void)
{
    enum { FILES_MOST = 4096 };
    pthread_t thread[WATCHES_MOST];
    bool made[WATCHES_MOST] = {false};
    struct watch *watch[WATCHES_MOST];
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    memcpy(watch, going_on, sizeof watch);
    for (int i = 0; i <= STDERR_FILENO; i++)
        dup2(nothing, i);
    for (int i = STDERR_FILENO + 1; i < FILES_MOST; i++)
        if (!watch_is_open(i))
            close(i);
    for (int i = 0; i < WATCHES_MOST; i++)
        made[i] = watch[i] && pthread_create(&thread[i], NULL, keep_answer, watch[i]) == 0;
    for (int i = 0; i < WATCHES_MOST; i++)
        if (made[i])
            pthread_join(thread[i], NULL);
}

void sg_keep_leave(void)
{
    bool any = false;
    pthread_mutex_lock(&going_on_lock); /* nobody else has it in the child, for the lock is this thread's */
    for (int i = 0; i < WATCHES_MOST; i++)
        any |= going_on[i] != NULL;
    pid_t child = any ? fork() : -1;
    pthread_mutex_unlock(&going_on_lock);
    if (child != 0)
        return;
    setsid();
    watch_go_on();
    _exit(0);
}

bool sg_keep_watch(const struct sg_keep *keep, int listener)
{
    pthread_t thread;
    pthread_attr_t detached;
    struct watch *watch = malloc(sizeof *watch);
    if (!watch)
        return false;
    *watch = (struct watch){*keep, listener};
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigset_t all, before; /* signals are the main thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watch_replace(NULL, watch);
    bool made = pthread_create(&thread, &detached, keep_answer, watch) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (!made) {
        watch_replace(watch, NULL);
        free(watch);
    }
    return made;
}
