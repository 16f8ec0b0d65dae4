#include "rehearse/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PART_BYTES = 8192 };

struct sg_relay {
    struct sg_relay *next;
    int output;      /* negative: nobody can write any more */
    bool hands_on;   /* the thread has a part that stderr has not taken yet */
    bool given_up;   /* the thread is to take nothing more: another process does */
    uint64_t handed; /* bytes so far */
    char line[SG_REHEARSE_TEXT], last_line[SG_REHEARSE_TEXT];
    size_t length; /* of the line that has no end yet */
    bool reports;  /* the library's report of running out of memory is under way */
};

/* All of them, the newest first. The lock is for what changes in them; nobody writes to stderr with it. */
static struct sg_relay *relays;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t changed_once = PTHREAD_ONCE_INIT;

static void changed_make(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static struct timespec relay_after(int ms)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += ms / 1000;
    time.tv_nsec += ms % 1000 * 1000000L;
    if (time.tv_nsec >= 1000000000L) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000L;
    }
    return time;
}

/* True if the line has more than the blanks of a traceback's frame. */
static bool relay_has_line(const struct sg_relay *relay)
{
    return relay->length > strspn(relay->line, " \t");
}

/* The library's report (inspect/oom_text.h) comes at the program's end, and is none of its words. Its first line is the last
   line only where the program has said nothing; the rest is indented, and never is. */
static void relay_end_line(struct sg_relay *relay)
{
    static const char report[] = "segalloc: out of memory", indent[] = "  ";
    if (!relay_has_line(relay) || (relay->reports && strncmp(relay->line, indent, sizeof indent - 1) == 0))
        return;
    relay->reports = strncmp(relay->line, report, sizeof report - 1) == 0;
    if (!relay->reports || !*relay->last_line)
        memcpy(relay->last_line, relay->line, relay->length + 1);
}

static void relay_take(struct sg_relay *relay, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bool ends = bytes[i] == '\n' || bytes[i] == '\r';
        if (ends) {
            relay_end_line(relay);
            relay->length = 0;
        } else if (relay->length < sizeof relay->line - 1)
            relay->line[relay->length++] = bytes[i];
        relay->line[relay->length] = '\0';
    }
}

/* False: nobody reads the tool's own stderr any more. */
static bool hand_on(const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t put = write(STDERR_FILENO, bytes, size);
        if (put < 0 && errno != EINTR)
            return errno != EPIPE;
        if (put > 0) {
            bytes += put;
            size -= (size_t)put;
        }
    }
    return true;
}

/* Reads a part where there is one. False: the pipe has come to its end. */
static bool relay_read(int output, char bytes[PART_BYTES], size_t *ret_size)
{
    ssize_t got = read(output, bytes, PART_BYTES);
    *ret_size = got > 0 ? (size_t)got : 0;
    return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

static void *relay_run(void *argument)
{
    struct sg_relay *relay = argument;
    char bytes[PART_BYTES];
    struct pollfd ready = {.fd = relay->output, .events = POLLIN};
    pthread_mutex_lock(&lock);
    for (bool open = true; open && !relay->given_up;) {
        size_t size;
        pthread_mutex_unlock(&lock);
        (void)poll(&ready, 1, -1);
        pthread_mutex_lock(&lock);
        if (relay->given_up)
            break;
        open = relay_read(relay->output, bytes, &size);
        relay_take(relay, bytes, size);
        relay->hands_on = true;
        pthread_mutex_unlock(&lock);
        open &= hand_on(bytes, size);
        pthread_mutex_lock(&lock);
        relay->hands_on = false;
        relay->handed += size;
        if (!open) {
            close(relay->output);
            relay->output = -1;
        }
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

struct sg_relay *sg_relay_begin(int output)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, before; /* signals are the main thread's */
    struct sg_relay *relay = calloc(1, sizeof *relay);
    if (!relay) {
        close(output);
        return NULL;
    }
    pthread_once(&changed_once, changed_make);
    relay->output = output;
    (void)fcntl(output, F_SETFL, O_NONBLOCK);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&lock);
    relay->next = relays;
    bool made = pthread_create(&thread, &detached, relay_run, relay) == 0;
    if (made)
        relays = relay;
    pthread_mutex_unlock(&lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (made)
        return relay;
    close(output);
    free(relay);
    return NULL;
}

bool sg_relay_wait(struct sg_relay *relay, int ms)
{
    struct timespec end = relay_after(ms);
    pthread_mutex_lock(&lock);
    while (relay->output >= 0 && pthread_cond_timedwait(&changed, &lock, &end) != ETIMEDOUT)
        continue;
    bool ended = relay->output < 0;
    pthread_mutex_unlock(&lock);
    return ended;
}

void sg_relay_drain(struct sg_relay *relay)
{
    enum { MOST_MS = 3000 };
    struct timespec end = relay_after(MOST_MS);
    int held = 0;
    pthread_mutex_lock(&lock);
    if (relay->output >= 0)
        (void)ioctl(relay->output, FIONREAD, &held);
    uint64_t until = relay->handed + (uint64_t)held;
    while (relay->output >= 0 && (relay->handed < until || relay->hands_on) &&
           pthread_cond_timedwait(&changed, &lock, &end) != ETIMEDOUT)
        continue;
    pthread_mutex_unlock(&lock);
}

void sg_relay_last_line(struct sg_relay *relay, char ret[SG_REHEARSE_TEXT])
{
    pthread_mutex_lock(&lock);
    relay_end_line(relay);
    memcpy(ret, relay->last_line, SG_REHEARSE_TEXT);
    pthread_mutex_unlock(&lock);
}

/* In a process of its own, with nothing open but this pipe and stderr. */
static void relay_go_on(int output)
{
    enum { FILES_MOST = 4096 };
    char bytes[PART_BYTES];
    size_t size;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    for (int i = STDERR_FILENO + 1; i < FILES_MOST; i++)
        if (i != output)
            close(i);
    (void)fcntl(output, F_SETFL, 0); /* it may wait */
    while (relay_read(output, bytes, &size) && hand_on(bytes, size))
        continue;
}

static void relay_leave(struct sg_relay *relay)
{
    enum { MOST_MS = 1000 };
    struct timespec end = relay_after(MOST_MS);
    relay->given_up = true;
    while (relay->hands_on && pthread_cond_timedwait(&changed, &lock, &end) != ETIMEDOUT)
        continue;
    if (relay->output < 0 || fork() != 0)
        return;
    setsid();
    relay_go_on(relay->output);
    _exit(0);
}

void sg_relay_leave(void)
{
    pthread_mutex_lock(&lock);
    for (struct sg_relay *relay = relays; relay; relay = relay->next)
        relay_leave(relay);
    pthread_mutex_unlock(&lock);
}
