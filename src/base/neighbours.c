#include "neighbours.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "proc_stat.h"
#include "wrap.h"

#define MAGIC UINT64_C(0x31306e6769656e73) /* "sneign01": changes with the layout */

/* Sleeps while *word is `seen`, for `timeout_ns` at most; 0: without limit. May return early, so callers look again. The
   futex is shared between processes, hence without FUTEX_PRIVATE_FLAG. */
static void neighbours_wait_for_change(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
        .tv_nsec = (long)(timeout_ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ns ? &timeout : NULL, NULL, 0);
}

/* Wakes all that sleep on a word. */
static void neighbours_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* The start time of a process, field 22 of /proc/PID/stat; 0 for none, or one that has ended and not been waited
   for. */
static uint64_t process_start_of(pid_t pid)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    const char *at = sg_proc_stat_read(path, text, sizeof text); /* field 3 */
    if (!at || *at == 'Z' || *at == 'X')
        return 0;
    for (int field = 3; field < 22 && at; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    uint64_t started = 0;
    for (; at && *at >= '0' && *at <= '9'; at++)
        started = started * 10 + (uint64_t)(*at - '0');
    return started;
}

/* True if the row's process runs. The start time tells it from a later process that has the same id. */
static bool neighbour_is_alive(struct sg_neighbour *row, pid_t pid)
{
    uint64_t started = process_start_of(pid);
    return started && started == atomic_load(&row->started);
}

/* Checks that a file is the user's own and that nobody else may write to it. Another user's table could have this process
   trimmed at will. 0 or a negative errno. Not by fstat(), which glibc binds to a version that older ones lack. */
static int neighbours_check_file(int file, uid_t user, uint64_t *ret_bytes)
{
    struct statx status;
    if (syscall(SYS_statx, file, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status) != 0)
        return -errno;
    if ((status.stx_mode & S_IFMT) != S_IFREG || status.stx_uid != user || (status.stx_mode & 022))
        return -EPERM;
    *ret_bytes = status.stx_size;
    return 0;
}

/* Takes the memory of the whole table before it is mapped: full shared memory is an error here, and a SIGBUS later. */
static int neighbours_take_room(int file)
{
    int error;
    do
        error = posix_fallocate(file, 0, sizeof(struct sg_neighbours));
    while (error == EINTR); /* of shared memory: where a signal is pending */
    return error ? -ENOSPC : 0;
}

int sg_neighbours_map(uid_t user, bool create, struct sg_neighbours **ret)
{
    char path[64];
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "/dev/shm/segalloc-%lu", (unsigned long)user);
    /* O_NOFOLLOW: in /dev/shm another user could have put a link there. O_NONBLOCK: or a FIFO, which would be waited for. */
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (create ? O_CREAT : 0), 0600);
    if (file < 0)
        return -errno;
    void *memory = MAP_FAILED;
    int error = neighbours_check_file(file, user, &bytes);
    if (!error && bytes < sizeof(struct sg_neighbours))
        error = neighbours_take_room(file);
    if (!error) {
        memory = mmap(NULL, sizeof(struct sg_neighbours), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        error = memory == MAP_FAILED ? -errno : 0;
    }
    close(file);
    if (error)
        return error;
    struct sg_neighbours *table = memory;
    /* The first process writes the magic into zeros; a table of another layout has another one. */
    uint64_t magic = 0;
    if (!__atomic_compare_exchange_n(&table->magic, &magic, MAGIC, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
        magic != MAGIC) {
        munmap(memory, sizeof *table);
        return -EPROTO;
    }
    *ret = table;
    return 0;
}

void sg_neighbours_hold(struct sg_neighbours *table, const struct sg_neighbour *own, int index, uint64_t bytes,
    uint64_t idle)
{
    atomic_store(&table->held[own - table->list][index], bytes);
    atomic_store(&table->idle[own - table->list][index], idle);
}

/* Makes a row this process's own, if its id is still `before`. While the id is -1 nobody else takes it, and nobody asks
   it. */
static bool neighbours_take_row(struct sg_neighbours *table, struct sg_neighbour *row, int32_t before)
{
    if (!atomic_compare_exchange_strong(&row->pid, &before, -1))
        return false;
    for (int i = 0; i < SG_NEIGHBOUR_DEVICES; i++) {
        atomic_store(&row->devices[i], 0);
        sg_neighbours_hold(table, row, i, 0, 0);
    }
    atomic_store(&table->order[row - table->list].what,
        SG_NEIGHBOUR_NO_ORDER); /* whoever gave it to a dead process is gone */
    atomic_store(&row->wanted, 0);
    atomic_store(&row->keep, 0);
    atomic_store(&row->given, 0);
    atomic_store(&row->answered, atomic_load(&row->asked));
    atomic_store(&row->started, process_start_of(getpid()));
    atomic_store(&row->pid, (int32_t)getpid());
    return true;
}

struct sg_neighbour *sg_neighbours_join(struct sg_neighbours *table)
{
    /* First a row of our own id, which an earlier process has left. Then a free one, and last one of a dead process, which
       costs a look into /proc. */
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < SG_NEIGHBOURS; i++) {
            struct sg_neighbour *row = &table->list[i];
            int32_t pid = atomic_load(&row->pid);
            bool free_for_us = pass == 0 ? pid == (int32_t)getpid()
                               : pass == 1 ? pid == 0 : pid > 0 && !neighbour_is_alive(row, pid);
            if (free_for_us && neighbours_take_row(table, row, pid))
                return row;
        }
    }
    return NULL;
}

void sg_neighbours_leave(struct sg_neighbour *own)
{
    int32_t pid = (int32_t)getpid();
    if (!atomic_compare_exchange_strong(&own->pid, &pid, -1))
        return; /* it was taken for a dead one's, and is another's now */
    atomic_store(&own->answered, atomic_load(&own->asked));
    neighbours_wake(&own->answered);
    atomic_store(&own->pid, 0); /* last: what the next owner is asked may not count as answered */
}

struct sg_neighbour *sg_neighbours_find(struct sg_neighbours *table, pid_t pid)
{
    for (int i = 0; pid > 0 && i < SG_NEIGHBOURS; i++) {
        if (atomic_load(&table->list[i].pid) == (int32_t)pid && neighbour_is_alive(&table->list[i], pid))
            return &table->list[i];
    }
    return NULL;
}

void sg_neighbour_ask(struct sg_neighbour *other, uint32_t wanted, uint64_t keep)
{
    /* The request is written before `asked` rises, so that whoever sees the new count sees what is wanted. */
    atomic_store(&other->keep, keep);
    atomic_fetch_or(&other->wanted, wanted);
    atomic_fetch_add(&other->asked, 1);
    neighbours_wake(&other->asked);
}

bool sg_neighbour_order(struct sg_neighbours *table, struct sg_neighbour *other, enum sg_neighbour_order what,
    const char *tag)
{
    size_t at = (size_t)(other - table->list);
    uint32_t none = SG_NEIGHBOUR_NO_ORDER;
    uint64_t words[SG_NEIGHBOUR_TAG / 8] = {0};
    if (!atomic_compare_exchange_strong(&table->order[at].what, &none, SG_NEIGHBOUR_BEING_ORDERED))
        return false;
    if (tag)
        memcpy(words, tag, strnlen(tag, SG_NEIGHBOUR_TAG - 1));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        atomic_store(&table->order[at].tag[i], words[i]);
    atomic_store(&table->order[at].bytes, 0);
    atomic_store(&table->order[at].result, UINT32_MAX);
    atomic_store(&table->order[at].what, what);
    atomic_fetch_add(&other->asked, 1);
    neighbours_wake(&other->asked);
    return true;
}

bool sg_neighbour_order_end(struct sg_neighbours *table, struct sg_neighbour *other, uint32_t *ret_result,
    uint64_t *ret_bytes)
{
    size_t at = (size_t)(other - table->list);
    *ret_result = atomic_load(&table->order[at].result);
    *ret_bytes = atomic_load(&table->order[at].bytes);
    atomic_store(&table->order[at].what, SG_NEIGHBOUR_NO_ORDER);
    return *ret_result != UINT32_MAX;
}

enum sg_neighbour_order sg_neighbour_take_order(struct sg_neighbours *table, const struct sg_neighbour *own,
    char *ret_tag)
{
    size_t at = (size_t)(own - table->list);
    enum sg_neighbour_order what = (enum sg_neighbour_order)atomic_load(&table->order[at].what);
    if (what <= SG_NEIGHBOUR_BEING_ORDERED || atomic_load(&table->order[at].result) != UINT32_MAX)
        return SG_NEIGHBOUR_NO_ORDER;
    for (size_t i = 0; i < SG_NEIGHBOUR_TAG / 8; i++) {
        uint64_t word = atomic_load(&table->order[at].tag[i]);
        memcpy(ret_tag + 8 * i, &word, sizeof word);
    }
    ret_tag[SG_NEIGHBOUR_TAG - 1] = '\0';
    return what;
}

void sg_neighbour_note_order(struct sg_neighbours *table, const struct sg_neighbour *own, uint32_t result,
    uint64_t bytes)
{
    atomic_store(&table->order[own - table->list].bytes, bytes);
    atomic_store(&table->order[own - table->list].result, result);
}

bool sg_neighbour_wait(struct sg_neighbour *other, uint64_t timeout_ns)
{
    uint32_t request = atomic_load(&other->asked);
    uint64_t end = sg_clock_ns() + timeout_ns;
    for (;;) {
        uint32_t answered = atomic_load(&other->answered);
        if (sg_ahead32(answered, request) >= 0)
            return true;
        uint64_t now = sg_clock_ns();
        if (now >= end)
            return false;
        neighbours_wait_for_change(&other->answered, answered, end - now);
    }
}

/* The index of the device `id` in a row; -1: it is not there. */
static int neighbour_index_of(struct sg_neighbour *row, uint64_t id)
{
    for (int i = 0; i < SG_NEIGHBOUR_DEVICES; i++) {
        if (atomic_load(&row->devices[i]) == id)
            return i;
    }
    return -1;
}

/* True while a request to the row is open. */
static bool neighbour_owes_answer(struct sg_neighbour *row)
{
    return atomic_load(&row->answered) != atomic_load(&row->asked);
}

uint64_t sg_neighbours_ask_all(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    uint64_t timeout_ns, uint64_t owing_ns)
{
    struct sg_neighbour *asked[SG_NEIGHBOURS];
    bool owing[SG_NEIGHBOURS];
    uint64_t before[SG_NEIGHBOURS], given = 0, begun = sg_clock_ns();
    int count = 0;
    for (int i = 0; i < SG_NEIGHBOURS; i++) {
        struct sg_neighbour *row = &table->list[i];
        int32_t pid = atomic_load(&row->pid);
        int index = row != own && pid > 0 ? neighbour_index_of(row, id) : -1;
        if (index < 0 || !neighbour_is_alive(row, pid))
            continue;
        before[count] = atomic_load(&row->given);
        owing[count] = neighbour_owes_answer(row);
        sg_neighbour_ask(row, UINT32_C(1) << index, 0);
        asked[count++] = row;
    }
    /* All were asked before the first is waited for: they work at the same time. A wait of 1 ns still looks. */
    for (int i = 0; i < count; i++) {
        uint64_t now = sg_clock_ns(), end = begun + (owing[i] ? owing_ns : timeout_ns);
        sg_neighbour_wait(asked[i], now < end ? end - now : 1);
        /* Fewer bytes than before: the row is another process's by now. */
        uint64_t after = atomic_load(&asked[i]->given);
        given += after > before[i] ? after - before[i] : 0;
    }
    return given;
}

uint64_t sg_neighbours_idle(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    uint64_t timeout_ns)
{
    int asked[SG_NEIGHBOURS], index[SG_NEIGHBOURS], count = 0;
    uint64_t idle = 0, end = sg_clock_ns() + timeout_ns;
    for (int i = 0; i < SG_NEIGHBOURS; i++) {
        struct sg_neighbour *row = &table->list[i];
        int32_t pid = atomic_load(&row->pid);
        int at = row != own && pid > 0 ? neighbour_index_of(row, id) : -1;
        if (at < 0 || !neighbour_is_alive(row, pid) || neighbour_owes_answer(row))
            continue;
        atomic_fetch_add(&row->asked, 1); /* nothing is wanted but an answer */
        neighbours_wake(&row->asked);
        index[count] = at;
        asked[count++] = i;
    }
    for (int i = 0; i < count; i++) {
        uint64_t now = sg_clock_ns();
        if (sg_neighbour_wait(&table->list[asked[i]], now < end ? end - now : 1))
            idle += atomic_load(&table->idle[asked[i]][index[i]]);
    }
    return idle;
}

size_t sg_neighbours_holding(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    struct sg_neighbour_holds *ret, size_t most)
{
    size_t count = 0;
    for (int i = 0; i < SG_NEIGHBOURS && count < most; i++) {
        struct sg_neighbour *row = &table->list[i];
        int32_t pid = atomic_load(&row->pid);
        int index = row != own && pid > 0 ? neighbour_index_of(row, id) : -1;
        uint64_t bytes = index < 0 ? 0 : atomic_load(&table->held[i][index]);
        if (bytes && neighbour_is_alive(row, pid))
            ret[count++] = (struct sg_neighbour_holds){pid, bytes};
    }
    return count;
}

void sg_neighbour_answered(struct sg_neighbour *own)
{
    neighbours_wake(&own->answered);
}

bool sg_neighbour_sleep(struct sg_neighbour *own, uint64_t timeout_ns)
{
    uint32_t answered = atomic_load(&own->answered), asked = atomic_load(&own->asked);
    if (asked == answered)
        neighbours_wait_for_change(&own->asked, asked, timeout_ns);
    return atomic_load(&own->asked) != answered;
}
