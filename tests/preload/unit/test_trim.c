/* Memory for others, against a table of processes, a driver and a core made up here: who gives what back when, and what
   is left as it was. */
#include "trim_fakes.h"

/* The program. */
static void open_it(bool on_request)
{
    const struct sg_conf conf = {.trim_on_request = on_request, .trim_idle_s = 2.5};
    sg_trim_open(&conf);
}

/* The devices of the tests before are still known. */
static int start(void **state)
{
    uint64_t devices[SG_NEIGHBOUR_DEVICES];
    (void)state;
    memcpy(devices, fake.own.devices, sizeof devices);
    memset(&fake, 0, sizeof fake);
    memcpy(fake.own.devices, devices, sizeof devices);
    fake.idle = 3 * mib;
    fake.total = 160 * mib;
    fake.available = 9 * mib;
    fake.stats.value[SG_STAT_reserved_bytes] = mib;
    open_it(true);
    sg_trim_use(0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sg_trim_forget();
    return fake.uses + fake.pushes + fake.relaxed;
}

static void help(void)
{
    fake.looks = 0;
    fake.over = false;
    assert_null(fake.helper(NULL));
}

/* A process that has allocated nothing with us asks too; it has no row. */
static void who_has_no_row_asks_and_counts_too(void **state)
{
    (void)state;
    sg_trim_forget();
    fake.outside = true;
    fake.unwilling = true;
    assert_false(sg_trim_ask_others_of(-1));
    assert_int_equal(sg_trim_idle_of_others(), 0);
    fake.unwilling = false;
    fake.given = 5 * mib;
    fake.current = 1;
    assert_true(sg_trim_ask_others_of(-1));
    uint64_t of_current = fake.asked_id;
    assert_true(sg_trim_ask_others_of(2));
    assert_int_not_equal(fake.asked_id, of_current);
    assert_int_equal(fake.asks, 2);
    assert_int_equal(sg_trim_idle_of_others(), 5 * mib);
    assert_int_equal(fake.asked_id, of_current);
    fake.current = -1; /* none is: whoever uses any device */
    fake.devices = 3;
    assert_true(sg_trim_ask_others_of(-1));
    assert_int_equal(fake.asks, 2 + 3);
    assert_int_equal(sg_trim_idle_of_others(), 0);
    fake.given = 0;
    fake.current = 0;
    assert_false(sg_trim_ask_others_of(-1));
    assert_int_equal(fake.asks, 2 + 3 + 1 + 3);
    assert_false(sg_trim_ask_others_of(1));
    fake.uuid = CUDA_ERROR_NOT_SUPPORTED;
    assert_false(sg_trim_ask_others_of(0));
}

/* An answer says what would go back, of what is held; nothing during a capture without a relaxed mode. */
static void idle_memory_is_told(void **state)
{
    (void)state;
    fake.idle = 700;
    fake.asked[0] = fake.asked[1] = true;
    help();
    assert_int_equal(fake.said_idle[0], 700);
    fake.idle = 7000; /* more than is held */
    help();
    assert_int_equal(fake.said_idle[0], fake.held[0]);
    fake.live = true;
    fake.captures_left = -1;
    help();
    assert_int_equal(fake.said_idle[0], fake.held[0]);
    fake.cannot_relax = true;
    help();
    assert_int_equal(fake.said_idle[0], 0);
    assert_int_equal(fake.naps, 0); /* nobody wants more than an answer */
}

static void use_another(void)
{
    sg_trim_use(1);
}

/* A device is entered once, by the name that it has in all processes; by one thread at a time. The first of these
   tests. */
static void devices_are_entered_once(void **state)
{
    (void)state;
    uint64_t first = atomic_load(&fake.own.devices[0]);
    assert_int_not_equal(first, 0);
    fake.old = true;
    fake.meanwhile = use_another; /* that is not the time for it */
    sg_trim_use(2);
    assert_int_equal(atomic_load(&fake.own.devices[2]), 0);
    sg_trim_use(1);
    sg_trim_use(1);
    uint64_t second = atomic_load(&fake.own.devices[1]), third = atomic_load(&fake.own.devices[2]);
    assert_true(second && third && first != second && second != third);
    assert_int_equal(atomic_load(&fake.own.devices[3]), 0);
    fake.uuid = CUDA_ERROR_INVALID_DEVICE;
    sg_trim_use(3);     /* it has no name */
    fake.uuid = CUDA_SUCCESS;
    sg_trim_use(3);     /* and is not asked again */
    assert_int_equal(atomic_load(&fake.own.devices[3]), 0);
    for (int device = 4; device < 32; device++) /* more than there is room for */
        sg_trim_use(device);
    assert_int_not_equal(atomic_load(&fake.own.devices[SG_NEIGHBOUR_DEVICES - 1]), 0);
}

static void ask(int look)
{
    atomic_fetch_add(&fake.own.asked, 1);
    atomic_store(&fake.own.wanted, look < 2 ? 1u << look : 0);
    atomic_store(&fake.own.keep, 5 * mib);
}

static void gives_back_what_is_asked_for(void **state)
{
    (void)state;
    fake.before = ask;
    fake.asked[0] = fake.asked[1] = fake.asked[2] = true;
    fake.stats.value[SG_STAT_reserved_bytes] = 0;
    help();
    assert_int_equal(fake.answered, 3);
    assert_int_equal(fake.trims, 2);
    assert_int_equal(fake.trimmed, 2); /* the device at the second place */
    assert_int_equal(fake.keep, 5 * mib);
    assert_int_equal(atomic_load(&fake.own.given), 2 * fake.idle);
    assert_int_equal(fake.held[1], 1002); /* for who has asked */
    assert_int_equal(fake.looks, LOOKS);
}

/* Whoever asks is answered all the same. */
static void gives_nothing_where_it_cannot(void **state)
{
    (void)state;
    fake.before = ask;
    fake.stats.value[SG_STAT_reserved_bytes] = 0;
    for (int i = 0; i < 4; i++) {
        fake.asked[0] = true;
        fake.no_core = i == 0;
        fake.gone = i == 1;
        fake.push = i == 2 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
        fake.live = i == 3;
        fake.captures_left = -1;
        fake.cannot_relax = i == 3;
        help();
        assert_int_equal(fake.answered, i + 1);
        assert_int_equal(fake.uses + fake.pushes, 0);
    }
    assert_int_equal(fake.trims, 0);
    assert_int_equal(atomic_load(&fake.own.given), 0);
    assert_in_range(fake.naps, 1, 1000);
}

/* Idle memory goes back at once in a capture. Where there is none, the capture may keep some until it ends. */
static void waits_a_little_for_captures(void **state)
{
    (void)state;
    fake.before = ask;
    fake.asked[0] = true;
    fake.stats.value[SG_STAT_reserved_bytes] = 0;
    fake.live = true;
    fake.captures_left = 3;
    help();
    assert_true(fake.naps == 0 && fake.trims == 1);
    fake.idle = 0;
    help();
    assert_true(fake.naps == 3 && fake.trims == 3);
}

/* Memory that a pool gets back once somebody waits is given as well. */
static void waits_for_pools(void **state)
{
    (void)state;
    fake.asked[0] = true;
    fake.before = ask;
    fake.idle = 0;
    fake.leaving = 3 * mib;
    fake.stats.value[SG_STAT_reserved_bytes] = 0;
    uint64_t given[4];
    for (int i = 0; i < 4; i++) {
        fake.uses_pools = i > 0;
        fake.info = i == 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        uint64_t before = atomic_load(&fake.own.given);
        help();
        given[i] = atomic_load(&fake.own.given) - before;
        fake.live = i == 2; /* in a capture too */
        fake.captures_left = 1;
    }
    assert_true(given[0] == 0 && given[1] == 3 * mib && given[2] == 0 && given[3] == 3 * mib);
}

static void work(int look)
{
    if (look < 3)
        fake.stats.value[SG_STAT_allocs]++;
}

/* After a while in which nothing happened, on a card that is nearly full. */
static void gives_back_what_is_idle(void **state)
{
    (void)state;
    fake.before = work;
    help();
    assert_int_equal(fake.trims, SG_NEIGHBOUR_DEVICES * (LOOKS - 3));
    assert_int_equal(fake.keep, 0);
    fake.before = NULL;
    for (int i = 0; i < 7; i++) {
        fake.live = i == 0;
        fake.available = i == 1 ? 10 * mib : 9 * mib; /* not nearly full */
        fake.stats.value[SG_STAT_allocated_bytes] = i == 2 ? mib : 0; /* nothing is idle */
        fake.info = i == 3 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
        fake.gone = i == 4;
        fake.no_stats = i == 5;
        fake.no_core = i == 6;
        fake.trims = 0;
        help();
        assert_int_equal(fake.trims, 0);
    }
}

static void be_taken_for_dead(int look)
{
    if (look == 1)
        atomic_store(&fake.own.pid, OTHER);
}

static void ends_where_the_row_is_anothers(void **state)
{
    (void)state;
    fake.before = be_taken_for_dead;
    fake.asked[1] = true; /* that is the next owner */
    help();
    assert_true(fake.looks == 2 && fake.answered == 0);
    sg_trim_close();
    assert_int_equal(fake.left, 1);
    help(); /* there is no row */
    assert_int_equal(fake.looks, 0);
}

static bool ask_others(size_t bytes)
{
    return sg_trim_ask_others(sg_process_driver(), 0, bytes);
}

/* Where it is the device that is short, and others use it. */
static void others_are_asked_where_the_device_is_short(void **state)
{
    size_t margin = 64 * mib;
    (void)state;
    fake.given = 1;
    fake.available = mib + margin;
    assert_true(ask_others(mib));
    assert_int_equal(fake.asked_id, atomic_load(&fake.own.devices[0]));
    fake.available++;
    assert_false(ask_others(mib));
    fake.available = 0;
    assert_true(ask_others(fake.total));
    assert_false(ask_others(fake.total + 1)); /* nobody could have so much */
    assert_false(sg_trim_ask_others(sg_process_driver(), 63, mib));  /* it is not known */
    fake.given = 0;
    assert_false(ask_others(mib));
    fake.given = 1;
    fake.info = CUDA_ERROR_UNKNOWN;
    assert_false(ask_others(mib));
    fake.info = CUDA_SUCCESS;
    sg_trim_forget();
    assert_false(ask_others(mib));
}

static void others_are_named(void **state)
{
    struct sg_neighbour_holds holds;
    (void)state;
    assert_true(ask_others(mib) == (fake.given > 0));
    assert_int_equal(sg_trim_others(0, &holds, 1), 1);
    assert_true(holds.pid == 77 && holds.bytes == 1000);
    assert_int_equal(fake.asked_id, atomic_load(&fake.own.devices[0]));
    assert_int_equal(sg_trim_others(1, &holds, 1), 1); /* it has served nothing there */
    assert_int_not_equal(fake.asked_id, atomic_load(&fake.own.devices[0]));
    sg_trim_forget();
}

static void an_order_is_carried_out_before_the_answer(void **state)
{
    (void)state;
    fake.order = SG_NEIGHBOUR_PAUSE;
    strcpy(fake.order_tag, "kv");
    fake.asked[0] = true;
    help();
    assert_int_equal(fake.order_result, CUDA_SUCCESS);
    assert_int_equal(fake.order_bytes, 7 * mib);
    assert_int_equal(fake.answered, 1);
    fake.answered = 0;
    fake.order = SG_NEIGHBOUR_RESUME;
    fake.order_tag[0] = '\0';
    help();
    assert_int_equal(fake.order_result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake.answered, 1);
}

static void nobody_helps_where_it_is_not_to(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        sg_trim_forget();
        fake.helper = NULL;
        fake.map = i == 1 ? -1 : 0;
        fake.full = i == 2;
        fake.no_thread = i == 3;
        open_it(i != 0);
        assert_int_equal(fake.helper != NULL, i == 3);
        assert_int_equal(fake.left, i == 3);
        assert_false(ask_others(mib));
        sg_trim_use(40);
        sg_trim_close();
        assert_int_equal(fake.left, i == 3);
    }
}

/* Idle memory goes as far as a limit wants it back, and the rest of it stays. */
static void limits_are_heeded(void **state)
{
    (void)state;
    fake.stats.value[SG_STAT_reserved_bytes] = 100 * mib;
    fake.stats.value[SG_STAT_allocated_bytes] = 40 * mib;
    fake.wanted = 25 * mib;
    fake.available = fake.total; /* nothing else makes it give back */
    help();
    assert_int_equal(fake.trims, 1);
    assert_int_equal(fake.keep, 35 * mib);
    fake.wanted = 400 * mib;
    help();
    assert_int_equal(fake.trims, 2);
    assert_int_equal(fake.keep, 0);
    fake.wanted = mib;
    fake.stats.value[SG_STAT_allocated_bytes] = 100 * mib; /* all is in use */
    help();
    assert_int_equal(fake.trims, 2);
    fake.no_core = true;
    fake.wanted = mib;
    help();
    assert_int_equal(fake.trims, 2);
}

/* Where limits are looked at more often than idle memory, that one still has its turn after 2.5 s of sleep. */
static void looks_at_limits_between(void **state)
{
    (void)state;
    const uint64_t second = 1000000000;
    fake.look_ns = second;
    fake.available = 9 * mib; /* nearly full */
    fake.stats.value[SG_STAT_allocs] = 1;
    help();
    const uint64_t slept[LOOKS] = {second, second, second / 2, second, second, second / 2, second, second};
    assert_memory_equal(fake.slept, slept, sizeof slept);
    /* The first look at idle memory finds that something has happened, the second does not. */
    assert_int_equal(fake.trims, SG_NEIGHBOUR_DEVICES);
    fake.look_ns = 4 * second;
    help();
    assert_int_equal(fake.slept[0], 2500000000);
    assert_int_equal(fake.slept[LOOKS - 1], 2500000000);
}

/* The first test, which finds no device known. */
static void a_device_is_watched_once(void **state)
{
    (void)state;
    sg_trim_use(0);
    assert_int_equal(fake.watched, 1);
    assert_int_equal(fake.last_watched, 0);
    uint32_t asked = atomic_load(&fake.own.asked);
    fake.wake();
    assert_int_equal(atomic_load(&fake.own.asked), asked + 1);
    assert_int_equal(atomic_load(&fake.own.wanted), 0);
    atomic_store(&fake.own.asked, asked);
    sg_trim_forget();
    fake.wake(); /* there is nobody to wake */
    assert_int_equal(atomic_load(&fake.own.asked), asked);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_device_is_watched_once),
        TEST(devices_are_entered_once),
        TEST(gives_back_what_is_asked_for),
        TEST(gives_nothing_where_it_cannot),
        TEST(waits_a_little_for_captures),
        TEST(waits_for_pools),
        TEST(gives_back_what_is_idle),
        TEST(ends_where_the_row_is_anothers),
        TEST(others_are_asked_where_the_device_is_short),
        TEST(others_are_named),
        TEST(an_order_is_carried_out_before_the_answer),
        TEST(nobody_helps_where_it_is_not_to),
        TEST(who_has_no_row_asks_and_counts_too),
        TEST(idle_memory_is_told),
        TEST(limits_are_heeded),
        TEST(looks_at_limits_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
