/* Rows that many processes take and leave: what the owner of one is asked, only the owner answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "neighbours.h"

enum { PROCESSES = 4, ROUNDS = 3000, SHORT_NS = 1 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nobody_else_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
