/* Pages that killed processes have left: recognised by the process, its beginning and its namespace, and removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "writer/live_pages.h"
#include "writer/stats_file.h"

static const uint64_t SECOND_NS = 1000000000, DAY_NS = 86400 * UINT64_C(1000000000);

static char *environment(const char *name)
{
    (void)name;
    return NULL;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void age_file(const char *path, uint64_t age_s)
{
    const struct timespec time = {.tv_sec = (time_t)(now_ns() / SECOND_NS - age_s)};
    assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){time, time}, 0), 0);
}

/* A process id that nobody has, until the caller calls again. */
static uint64_t dead_pid(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return (uint64_t)child;
}

static void write_page(uint64_t pid, uint64_t namespace, uint64_t start_ns, char path[SG_LIVE_PATH])
{
    const struct sg_stats_file file = {.pid = pid,
        .pid_namespace = namespace,
        .start_realtime_ns = start_ns,
        .command = "\"pid\":1,\"pid_namespace\":1",
        .phase = "step \"1\"",
        .is_private = true};
    assert_int_equal(sg_stats_file_write(sg_live_page_path(pid, path), environment, &file), 0);
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void pages_of_the_dead_go(void **state)
{
    (void)state;
    char mine[SG_LIVE_PATH], dead[SG_LIVE_PATH];
    uint64_t namespace = sg_live_namespace(), pid = (uint64_t)getpid();
    assert_true(namespace != 0 && sg_live_is_alive(pid, now_ns()));
    write_page(pid, namespace, now_ns(), mine);
    write_page(dead_pid(), namespace, now_ns(), dead);
    (void)sg_live_sweep(); /* a process that begins meanwhile may do the same */
    assert_true(is_there(mine) && !is_there(dead));
    assert_int_equal(unlink(mine), 0);
}

/* One of a process that had this number before. */
static void pages_of_a_former_process_go(void **state)
{
    (void)state;
    char mine[SG_LIVE_PATH];
    write_page((uint64_t)getpid(), sg_live_namespace(), now_ns() - DAY_NS, mine);
    assert_false(sg_live_is_alive((uint64_t)getpid(), now_ns() - DAY_NS));
    (void)sg_live_sweep();
    assert_false(is_there(mine));
}

/* In another container the number is another process's, which may run. A page without a namespace is an older library's,
   and goes once it is old. */
static void pages_of_other_namespaces_stay(void **state)
{
    (void)state;
    char path[SG_LIVE_PATH];
    uint64_t others[] = {sg_live_namespace() + 1, 0};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        write_page(dead_pid(), others[i], now_ns(), path);
        (void)sg_live_sweep();
        assert_true(is_there(path));
        age_file(path, 7200);
        (void)sg_live_sweep();
        assert_int_equal(is_there(path), others[i] != 0);
        (void)unlink(path);
    }
}

static void make_file(const char *path, const char *text, uint64_t age_s)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
    age_file(path, age_s);
}

/* A page is written beside its place first. */
static void begun_pages_go_in_time(void **state)
{
    (void)state;
    char path[SG_LIVE_PATH], begun[SG_LIVE_PATH + 32];
    snprintf(begun, sizeof begun, "%s.7.new", sg_live_page_path(dead_pid(), path));
    make_file(begun, "{", 0);
    (void)sg_live_sweep();
    assert_true(is_there(begun));
    make_file(begun, "{", 3600);
    (void)sg_live_sweep();
    assert_false(is_there(begun));
}

/* Nothing that is no page: whatever it says, and whoever it leads to. */
static void other_files_stay(void **state)
{
    (void)state;
    static const char *const names[] = {SG_LIVE_PREFIX, SG_LIVE_PREFIX "x", SG_LIVE_PREFIX "1x", SG_LIVE_PREFIX "0",
        "segalloc-other-1"};
    char path[SG_LIVE_PATH], text[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, SG_LIVE_FOLDER "/%s", names[i]);
        snprintf(text, sizeof text, "{\"pid\":0,\"pid_namespace\":%llu}", (unsigned long long)sg_live_namespace());
        make_file(path, text, 3600);
        (void)sg_live_sweep();
        assert_true(is_there(path));
        assert_int_equal(unlink(path), 0);
    }
    char target[SG_LIVE_PATH], link[SG_LIVE_PATH];
    uint64_t pid = dead_pid();
    write_page(pid, sg_live_namespace(), now_ns(), target);
    snprintf(path, sizeof path, SG_LIVE_FOLDER "/segalloc-test-%ld", (long)getpid());
    assert_int_equal(rename(target, path), 0);
    assert_int_equal(symlink(path, sg_live_page_path(pid, link)), 0);
    (void)sg_live_sweep();
    struct stat status;
    assert_true(lstat(link, &status) == 0 && is_there(path));
    assert_int_equal(unlink(link) | unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_the_dead_go),
        cmocka_unit_test(pages_of_a_former_process_go),
        cmocka_unit_test(pages_of_other_namespaces_stay),
        cmocka_unit_test(begun_pages_go_in_time),
        cmocka_unit_test(other_files_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
