/* Rows that many processes take and leave: what the owner of one is asked, only the owner answers. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "neighbours.h"

enum { PROCESSES = 4, ROUNDS = 3000, SHORT_NS = 1 };

/* In place of libc's, for a table that is this test's alone: the first times it is as if a signal were pending. */
static char own_table[] = "/tmp/test-neighbours-XXXXXX";
static int interruptions;

int open(const char *path, int flags, ...)
{
    const char *found = strncmp(path, "/dev/shm/", 9) == 0 ? own_table : path;
    return (int)syscall(SYS_openat, AT_FDCWD, found, flags, 0600);
}

int posix_fallocate(int file, off_t from, off_t bytes)
{
    if (interruptions > 0) {
        interruptions--;
        return EINTR;
    }
    return ftruncate(file, from + bytes) == 0 ? 0 : errno;
}

static void test_made_where_signals_come(void **state)
{
    (void)state;
    struct sg_neighbours *table = NULL;
    int file = mkstemp(own_table);
    assert_true(file >= 0);
    close(file);
    interruptions = 3;
    assert_int_equal(sg_neighbours_map(geteuid(), true, &table), 0);
    assert_int_equal(interruptions, 0);
    assert_non_null(sg_neighbours_join(table));
    munmap(table, sizeof *table);
    unlink(own_table);
}

/* Takes a row, is asked, and must find itself asked; ROUNDS times. */
static int come_and_go(struct sg_neighbours *table)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct sg_neighbour *own = sg_neighbours_join(table);
        if (!own)
            return 2;
        for (int look = 0; look < 10; look++) {
            sg_neighbour_ask(own, 1, 0);
            if (!sg_neighbour_sleep(own, SHORT_NS))
                return 1;
        }
        sg_neighbours_leave(own);
    }
    return 0;
}

static void test_nobody_else_answers(void **state)
{
    (void)state;
    struct sg_neighbours *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(table, MAP_FAILED);
    pid_t child[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0)
            _exit(come_and_go(table));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    munmap(table, sizeof *table);
}

/* Whose row is asked goes while it is, and another takes the row, from whose beginning it counts. */
static void test_row_changes_hands_while_asked(void **state)
{
    enum { ID = 7, GIVEN = 1000 };
    (void)state;
    struct sg_neighbours *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(table, MAP_FAILED);
    pid_t asked = fork();
    assert_true(asked >= 0);
    if (asked == 0) {
        struct sg_neighbour *own = sg_neighbours_join(table);
        atomic_store(&own->devices[0], ID);
        atomic_store(&own->given, GIVEN);
        while (!sg_neighbour_sleep(own, SHORT_NS)) {
        }
        atomic_store(&own->given, 0); /* as the next owner does */
        sg_neighbours_leave(own);
        _exit(0);
    }
    while (atomic_load(&table->list[0].given) != GIVEN)
        usleep(100);
    assert_int_equal(sg_neighbours_ask_all(table, NULL, ID, UINT64_C(60) * 1000000000, 0), 0);
    int status = -1;
    assert_int_equal(waitpid(asked, &status, 0), asked);
    assert_int_equal(status, 0);
    munmap(table, sizeof *table);
}

/* A process that takes its time is waited for, as on a busy machine. One that owes an answer is not for as long: this would
   last for an hour. */
static void test_who_owes_an_answer(void **state)
{
    enum { ID = 7, GIVEN = 1000, LATE_US = 20000 };
    const uint64_t hour = UINT64_C(3600) * 1000000000;
    (void)state;
    struct sg_neighbours *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(table, MAP_FAILED);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        struct sg_neighbour *own = sg_neighbours_join(table);
        atomic_store(&own->devices[0], ID);
        while (!sg_neighbour_sleep(own, SHORT_NS)) {
        }
        usleep(LATE_US);
        atomic_fetch_add(&own->given, GIVEN);
        atomic_store(&own->answered, atomic_load(&own->asked));
        sg_neighbour_answered(own);
        for (;;)
            pause();
    }
    while (atomic_load(&table->list[0].devices[0]) != ID)
        usleep(100);
    assert_int_equal(sg_neighbours_ask_all(table, NULL, ID, hour, 1), GIVEN);
    sg_neighbour_ask(&table->list[0], 1, 0);
    assert_int_equal(sg_neighbours_ask_all(table, NULL, ID, hour, 1), 0);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    munmap(table, sizeof *table);
}

/* The others are asked what they hold idle, each that has nothing else to answer. Who does not answer is waited for once. */
static void test_what_others_hold_idle(void **state)
{
    enum { ID = 7, IDLE = 3000 };
    (void)state;
    struct sg_neighbours *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(table, MAP_FAILED);
    assert_int_equal(sg_neighbours_idle(table, NULL, ID, SHORT_NS), 0);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        struct sg_neighbour *own = sg_neighbours_join(table);
        atomic_store(&own->devices[2], ID);
        for (int answers = 0; answers < 2;) {
            if (!sg_neighbour_sleep(own, SHORT_NS))
                continue;
            sg_neighbours_hold(table, own, 2, 2 * IDLE, atomic_load(&own->wanted) ? 1 : IDLE);
            atomic_store(&own->answered, atomic_load(&own->asked));
            sg_neighbour_answered(own);
            answers++;
        }
        for (;;)
            pause();
    }
    while (atomic_load(&table->list[0].devices[2]) != ID)
        usleep(100);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sg_neighbours_idle(table, NULL, ID + 1, SHORT_NS), 0);
        assert_int_equal(sg_neighbours_idle(table, &table->list[0], ID, SHORT_NS), 0);
        assert_int_equal(sg_neighbours_idle(table, NULL, ID, UINT64_C(60) * 1000000000), IDLE);
    }
    uint32_t asked = atomic_load(&table->list[0].asked);
    for (int i = 0; i < 3; i++) /* it does not answer any more */
        assert_int_equal(sg_neighbours_idle(table, NULL, ID, SHORT_NS), 0);
    assert_int_equal(atomic_load(&table->list[0].asked), asked + 1);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    munmap(table, sizeof *table);
}

/* Living processes that hold memory of the device are found, and a row's next owner begins with none. */
static void test_who_holds_a_device(void **state)
{
    enum { ID = 7 };
    struct sg_neighbour_holds holds[4];
    (void)state;
    struct sg_neighbours *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(table, MAP_FAILED);
    struct sg_neighbour *own = sg_neighbours_join(table);
    assert_non_null(own);
    atomic_store(&own->devices[3], ID);
    sg_neighbours_hold(table, own, 3, 5000, 0);
    assert_int_equal(sg_neighbours_holding(table, own, ID, holds, 4), 0);
    assert_int_equal(sg_neighbours_holding(table, NULL, ID + 1, holds, 4), 0);
    assert_int_equal(sg_neighbours_holding(table, NULL, ID, holds, 4), 1);
    assert_true(holds[0].pid == getpid() && holds[0].bytes == 5000);
    assert_int_equal(sg_neighbours_holding(table, NULL, ID, holds, 0), 0);
    atomic_store(&own->started, 1); /* of a process that has ended */
    assert_int_equal(sg_neighbours_holding(table, NULL, ID, holds, 4), 0);
    sg_neighbours_leave(own);
    assert_ptr_equal(sg_neighbours_join(table), own);
    atomic_store(&own->devices[3], ID);
    assert_int_equal(sg_neighbours_holding(table, NULL, ID, holds, 4), 0);
    munmap(table, sizeof *table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nobody_else_answers),
        cmocka_unit_test(test_row_changes_hands_while_asked), cmocka_unit_test(test_what_others_hold_idle),
        cmocka_unit_test(test_who_owes_an_answer), cmocka_unit_test(test_who_holds_a_device),
        cmocka_unit_test(test_made_where_signals_come)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
