/* Statistics files: written as they change, and once each. */
#include "recorder_fakes.h"

/* Often at first, then as events and time go by. */
static void ask_for_statistics(void)
{
    fake.now = 100 * SECOND_NS;
    EXPECT(!open_with("", "s", false).emit && sg_recorder_on);
    use(1);
    tick(1);
    EXPECT(fake.files == 1 && fake.file.count == 1 && fake.file.start_realtime_ns == fake.now);
    tick(511);
    EXPECT(fake.files == 9);
    fake.now += SECOND_NS / 4;
    tick(256);
    EXPECT(fake.files == 9);
    fake.now += SECOND_NS / 2;
    tick(256);
    EXPECT(fake.files == 10 && strcmp(fake.path, "s") == 0);
    fake.by = "cuSomethingNew";
    sg_recorder_close(core);
    EXPECT(fake.files == 11 && fake.file.untracked_by == fake.by);
}

static void statistics_are_written_as_they_change(void **state)
{
    (void)state;
    apart(ask_for_statistics);
}

static void fail_to_write(void)
{
    fake.create = -ENOSPC;
    fake.write = -EACCES;
    EXPECT(!open_with("t", "s", false).emit && sg_recorder_on);
    EXPECT(fake.said == 1);
    fake.no_stats = true;
    use(0);
    tick(4);
    EXPECT(fake.said == 2 && fake.files == 1 && fake.file.count == 0);
    fake.writer.due = true;
    sg_recorder_close(core);
    EXPECT(fake.files == 1 && fake.writer.closed == 0);
}

static void what_cannot_be_written_is_said_once(void **state)
{
    (void)state;
    apart(fail_to_write);
}

/* A device is due from its first event on, but its statistics may not be had yet. */
static void take_no_snapshot(void)
{
    open_with("t", "", false);
    use(0);
    fake.writer.due = fake.no_stats = true;
    tick(3);
    EXPECT(fake.writer.snapshots == 0);
    fake.no_stats = false;
    tick(1);
    EXPECT(fake.writer.snapshots == 1);
}

static void snapshots_are_of_devices_that_are_there(void **state)
{
    (void)state;
    apart(take_no_snapshot);
}

static void write_phase(char *text, size_t size)
{
    snprintf(text, size, "step 3");
}

/* Statistics that can be looked at while the process lives go with it; a file that was asked for stays. */
static void live_on(void)
{
    char path[64];
    EXPECT(!open_with("", "", true).emit && sg_recorder_on);
    sg_recorder_follow_phase(write_phase);
    tick(1);
    snprintf(path, sizeof path, "/dev/shm/segalloc-live-%ld", (long)getpid());
    EXPECT(strcmp(fake.path, path) == 0);
    EXPECT(fake.file.pid_namespace == sg_live_namespace() && strcmp(fake.phase, "step 3") == 0);
    FILE *file = fopen(path, "w");
    EXPECT(file && fclose(file) == 0);
    sg_recorder_close(core);
    EXPECT(access(path, F_OK) != 0 && fake.files == 1);
}

static void live_on_in_a_file(void)
{
    open_with("", "s", true);
    tick(1);
    EXPECT(strcmp(fake.path, "s") == 0);
    sg_recorder_close(core);
    EXPECT(fake.files == 2);
}

static void live_statistics_go_with_the_process(void **state)
{
    (void)state;
    apart(live_on);
    apart(live_on_in_a_file);
}

int main(int argc, char **argv)
{
    static char filler[2 * COMMAND_BYTES];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_written_as_they_change),
        cmocka_unit_test(what_cannot_be_written_is_said_once),
        cmocka_unit_test(snapshots_are_of_devices_that_are_there),
        cmocka_unit_test(live_statistics_go_with_the_process),
    };
    if (argc == 1) {
        memset(filler, 'x', sizeof filler - 1);
        execv("/proc/self/exe", (char *[]){argv[0], filler, NULL});
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
