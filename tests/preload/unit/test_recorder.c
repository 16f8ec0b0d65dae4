/* The trace: what is written to it, when, and by which thread. */
#include "recorder_fakes.h"

static void ask_for_nothing(void)
{
    EXPECT(!open_with("", "", false).emit && !sg_recorder_on);
    use(0);
    tick(10);
    sg_recorder_close(core);
    sg_recorder_forget();
    EXPECT(fake.files + fake.asked + fake.writer.closed + fake.writer.forked == 0);
}

static void nothing_is_written_unasked(void **state)
{
    (void)state;
    apart(ask_for_nothing);
}

static void tick_once(void)
{
    tick(1);
}

/* One thread writes; what another would write meanwhile is older. */
static void write_from_two_threads(void)
{
    open_with("t", "s", false);
    fake.meanwhile = tick_once;
    tick(1);
    EXPECT(fake.files == 1 && !fake.meanwhile);
    tick(2); /* the third event is none to write at */
    EXPECT(fake.files == 2);
}

static void one_thread_writes_at_a_time(void **state)
{
    (void)state;
    apart(write_from_two_threads);
}

/* What the driver says of a device is asked once. */
static void use_devices(void)
{
    open_with("", "s", false);
    use(0);
    use(0);
    fake.lacks_granularity = true;
    use(1);
    fake.lacks_granularity = false;
    fake.granularity = fake.total = CUDA_ERROR_INVALID_DEVICE;
    use(2);
    EXPECT(fake.asked == 2);
    tick(1);
    EXPECT(fake.file.count == 3);
    EXPECT(fake.devices[0].granularity == 4096 && fake.devices[0].total_bytes == 1000);
    EXPECT(fake.devices[0].limit_bytes == 500);
    EXPECT(fake.devices[1].granularity == 0 && fake.devices[1].total_bytes == 1000);
    EXPECT(fake.devices[2].granularity == 0 && fake.devices[2].total_bytes == 0);
}

static void devices_are_as_the_driver_says(void **state)
{
    (void)state;
    apart(use_devices);
}

/* Each once, as soon as there is a snapshot; in the file of statistics too. */
static void name_devices(void)
{
    fake.model = "simulated GPU 1";
    open_with("t", "s", false);
    use(1);
    EXPECT(fake.models == 0 && !sg_recorder_path());
    fake.writer.due = true;
    tick(3);
    EXPECT(strcmp(sg_recorder_path(), "the trace") == 0);
    EXPECT(fake.models == 1 && fake.uuids == 1 && strcmp(fake.devices[0].model, fake.model) == 0);
    EXPECT(strcmp(fake.devices[0].uuid, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfe01") == 0);
    sg_recorder_close(core);
    EXPECT(fake.models == 1 && fake.uuids == 1);
}

/* A buffer that the driver has written to before it failed is no name. */
static void name_no_device(void)
{
    fake.model = "simulated GPU 1";
    fake.naming = CUDA_ERROR_INVALID_DEVICE;
    open_with("t", "s", false);
    use(1);
    fake.writer.due = true;
    tick(3);
    EXPECT(fake.models == 0 && fake.uuids == 0 && fake.file.count > 0 && !*fake.devices[0].model);
}

static void models_of_devices_are_told(void **state)
{
    (void)state;
    apart(name_devices);
    apart(name_no_device);
}

static void definitions_go_to_the_trace(void **state)
{
    (void)state;
    apart(define);
}

/* In pieces of a record each, filled up with zeros, as soon as the trace has a snapshot. */
static void lose_order(void)
{
    static const char name[] = "cuStreamWhichHasANameOf39CharactersInAll";
    EXPECT(open_with("t", "", false).sink == &fake.writer);
    use(0);
    use(SG_DEVICES_MAX - 1);
    fake.writer.due = true;
    tick(3);
    EXPECT(fake.writer.snapshots == 3 && fake.pieces == 0);
    fake.by = name;
    tick(3);
    EXPECT(fake.pieces == 3 && fake.lasts == 1);
    sg_recorder_close(core);
    EXPECT(fake.pieces == 3 && fake.writer.closed == 1 && fake.writer.snapshots == 8);
    static char expected[sizeof fake.text];
    memcpy(expected, name, sizeof name);
    EXPECT(memcmp(fake.text, expected, sizeof expected) == 0);
}

static void trace_says_by_which_call_order_was_lost(void **state)
{
    (void)state;
    apart(lose_order);
}

static void lose_order_at_last(void)
{
    open_with("t", "", false);
    use(0);
    fake.by = "cuLast";
    fake.no_stats = true;
    fake.writer.due = true;
    sg_recorder_close(core);
    EXPECT(fake.pieces == 1 && fake.lasts == 1 && strcmp(fake.text, "cuLast") == 0);
    EXPECT(fake.writer.snapshots == 0);
}

static void trace_says_so_at_its_end_too(void **state)
{
    (void)state;
    apart(lose_order_at_last);
}

/* The statistics are written all the same. */
static void end_with_a_held_writer(void)
{
    open_with("t", "s", false);
    use(0);
    fake.writer.due = fake.writer.held = true;
    sg_recorder_close(core);
    EXPECT(fake.writer.snapshots == 0 && fake.writer.closed == 0 && fake.files == 1);
}

static void nobody_waits_for_a_writer_held_for_good(void **state)
{
    (void)state;
    apart(end_with_a_held_writer);
}

static void fork_away(void)
{
    open_with("t", "s", false);
    sg_recorder_forget();
    tick(4);
    EXPECT(fake.writer.forked == 1 && fake.files == 0);
}

static void the_files_are_the_parents(void **state)
{
    (void)state;
    apart(fork_away);
}

/* This program's own, which main() has made too long; also where standard input is closed, whose number a file gets. */
static void read_command(void)
{
    close(STDIN_FILENO);
    open_with("t", "", false);
    EXPECT(strlen(fake.options.command) == COMMAND_BYTES - 1);
    EXPECT(strstr(fake.options.command, "test_recorder xxx"));
    tick(1);
    EXPECT(fake.pieces == 0);
}

static void command_is_cut(void **state)
{
    (void)state;
    apart(read_command);
}

int main(int argc, char **argv)
{
    static char filler[2 * COMMAND_BYTES];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_written_unasked),
        cmocka_unit_test(one_thread_writes_at_a_time),
        cmocka_unit_test(devices_are_as_the_driver_says),
        cmocka_unit_test(models_of_devices_are_told),
        cmocka_unit_test(definitions_go_to_the_trace),
        cmocka_unit_test(trace_says_by_which_call_order_was_lost),
        cmocka_unit_test(trace_says_so_at_its_end_too),
        cmocka_unit_test(nobody_waits_for_a_writer_held_for_good),
        cmocka_unit_test(the_files_are_the_parents),
        cmocka_unit_test(command_is_cut),
    };
    if (argc == 1) {
        memset(filler, 'x', sizeof filler - 1);
        execv("/proc/self/exe", (char *[]){argv[0], filler, NULL});
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
