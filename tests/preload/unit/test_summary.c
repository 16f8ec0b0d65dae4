/* The line at the end of a run, against a core, a recorder and a terminal made up here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "process/environment.h"
#include "process/process.h"
#include "services/recorder.h"
#include "report/summary.h"

enum { DEVICES = 2 };

static struct {
    char asked[32];
    bool is_terminal;
    struct {
        bool is_known;
        uint64_t allocs, ooms;
    } device[DEVICES];
    const char *trace;
    char said[1024];
} fake;

char *sg_environment(const char *name)
{
    assert_string_equal(name, "SEGALLOC_SUMMARY");
    return *fake.asked ? fake.asked : NULL;
}

/* In place of isatty(). */
int is_terminal(int file);
int is_terminal(int file)
{
    assert_int_equal(file, STDERR_FILENO);
    return fake.is_terminal;
}

bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret)
{
    (void)core;
    if (device >= DEVICES || !fake.device[device].is_known)
        return false;
    memset(ret, 0, sizeof *ret);
    ret->value[SG_STAT_allocs] = fake.device[device].allocs;
    ret->value[SG_STAT_ooms] = fake.device[device].ooms;
    ret->peak[SG_STAT_reserved_bytes] = 2 << 20;
    ret->peak[SG_STAT_allocated_bytes] = 1 << 20;
    return true;
}

const char *sg_recorder_path(void)
{
    return fake.trace;
}

void sg_log_line(const char *line)
{
    assert_false(*fake.said);
    snprintf(fake.said, sizeof fake.said, "%s", line);
}

#define PEAK "2.00 MiB reserved at the peak for 1.00 MiB allocated"
#define NEXT ". To see what holds it: segalloc run --sites -o run.trace -- CMD"

static void expect(const char *line)
{
    *fake.said = '\0';
    sg_summary_print(NULL);
    assert_string_equal(fake.said, line);
}

static int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    snprintf(fake.asked, sizeof fake.asked, "always@%ld", (long)getpid());
    return 0;
}

static void only_where_it_is_asked_for(void **state)
{
    (void)state;
    fake.device[0].is_known = true;
    fake.device[0].allocs = 1;
    expect(PEAK NEXT);
    snprintf(fake.asked, sizeof fake.asked, "terminal@%ld", (long)getpid());
    expect("");
    fake.is_terminal = true;
    expect(PEAK NEXT);
    snprintf(fake.asked, sizeof fake.asked, "file@%ld", (long)getpid());
    expect("");
    *fake.asked = '\0';
    expect("");
}

/* A device counts once it has served something; a failed allocation counts in any case. */
static void only_what_there_was(void **state)
{
    (void)state;
    expect("");
    fake.device[0].is_known = fake.device[1].is_known = true;
    expect("");
    fake.device[0].ooms = 1;
    expect("1 allocation failed" NEXT);
    fake.device[1].allocs = 3;
    expect(PEAK "; 1 allocation failed" NEXT);
    fake.device[0].allocs = 2;
    fake.device[1].ooms = 1;
    expect("device 0: " PEAK "; device 1: " PEAK "; 2 allocations failed" NEXT);
}

/* A trace in the working folder has no folder before its name. */
static void the_trace_is_named_from_here(void **state)
{
    char path[4096];
    (void)state;
    fake.device[0].is_known = true;
    fake.device[0].allocs = 1;
    assert_non_null(getcwd(path, sizeof path - 16));
    size_t length = strlen(path);
    fake.trace = path;
    strcpy(path + length, "/run.trace");
    expect(PEAK ". To see what held it: segalloc report run.trace");
    char line[4200];
    strcpy(path + length, "_run.trace"); /* beside it */
    snprintf(line, sizeof line, PEAK ". To see what held it: segalloc report %s", path);
    expect(line);
    fake.trace = "/no/such/run.trace";
    expect(PEAK ". To see what held it: segalloc report /no/such/run.trace");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(only_where_it_is_asked_for, start_afresh),
        cmocka_unit_test_setup(only_what_there_was, start_afresh),
        cmocka_unit_test_setup(the_trace_is_named_from_here, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
