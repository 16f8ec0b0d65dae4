/* Names that a program looks up: those that are hooked are ours, all others are the loader's. */
#include "symbols_fakes.h"

/* A runtime asks for hundreds of names under a lock of its own. A name that can't be ours is answered without a look at what is
   loaded. */
static void names_that_cannot_be_ours_are_not_looked_up(void **state)
{
    static const char *const names[] = {"cuDeviceGet", "cuDeviceGetName", "cuTexRefSetArray", "cuStreamGetPriority",
        "cuMemAllocs", "cuMulticastBindMem"};
    (void)state;
    fake.answers = &other_code[0];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ptr_equal(answer_to(names[i], 12000, 0), &other_code[0]);
    for (int i = 0; i < ROWS; i++) {
        fake.answers = &driver_code[i];
        if (strncmp(rows[i].symbol, "cuGetProcAddress", 16) != 0)
            (void)answer_to(rows[i].base, 12000, 0);
    }
    assert_int_equal(fake.named, 0);
}

/* dlsym(): what the loader itself finds decides whether ours is meant. */
static void names_that_are_hooked(void **state)
{
    enum found { NOTHING, OURS, THEIRS, ANOTHERS, FOUND };
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        for (int way = 0; way < FOUND * 16; way++) {
            enum found found = (enum found)(way % FOUND);
            bool next = way / FOUND & 1, lacks = way / FOUND & 2, watched = way / FOUND & 4, inside = way / FOUND & 8;
            if (strncmp(rows[i].symbol, "cuGetProcAddress", 16) == 0)
                continue;
            void *ours = address_of(rows[i].ours), *theirs = lacks ? NULL : &driver_code[i];
            start_afresh(state);
            fake.lacks = lacks ? rows[i].symbol : NULL;
            fake.watched = watched;
            fake.inside = inside;
            fake.found = found == OURS ? ours : found == THEIRS ? theirs : found == ANOTHERS ? &other_code[0] : NULL;
            struct answer answer = sg_dlsym_answer(next ? RTLD_NEXT : &other_handle, rows[i].symbol, NULL);
            bool another = found == ANOTHERS || (!fake.found && (!lacks || !next));
            if (inside || another) {
                assert_null(answer.value);
                assert_ptr_equal(answer.real, look_up);
                assert_int_equal(fake.asked_of_libc, 0);
            } else {
                assert_null(answer.real);
                assert_ptr_equal(answer.value, lacks ? NULL : watched ? theirs : ours);
                assert_int_equal(fake.asked_of_libc, lacks); /* for the text of the error */
            }
            assert_int_equal(fake.opened, fake.asked_of_libc);
            if (!inside)
                assert_string_equal(fake.asked_name, rows[i].symbol);
        }
    }
}

static void names_that_nobody_knows(void **state)
{
    for (size_t i = 0; i < sizeof unknown_names / sizeof *unknown_names; i++) {
        for (int way = 0; way < 5; way++) {
            start_afresh(state);
            fake.exported = way == 1 ? NULL : unknown_names[i].name; /* the driver lacks it */
            fake.exported_at = &other_code[1];
            fake.found = way == 2 ? &other_code[2] : &other_code[1]; /* another library's of that name */
            fake.watched = way == 3;
            fake.inside = way == 4;
            struct answer answer = sg_dlsym_answer(&other_handle, unknown_names[i].name, NULL);
            bool stub = way == 0 && unknown_names[i].kind >= 0;
            assert_ptr_equal(answer.value, stub ? &stub_code[unknown_names[i].kind] : NULL);
            assert_ptr_equal(answer.real, stub ? NULL : look_up);
            assert_int_equal(fake.stubs, stub);
        }
    }
}

/* Names of other libraries than the driver's are only there where their library is. */
static void names_of_other_libraries(void **state)
{
    static const char *const names[] = {"cudaMalloc", "cudaFree", "_ZN3c105utils9check_envEPKc"};
    static const char *const libraries[] = {"/a/libcudart.so.12", "libcudart.so", "/b/libc10.so"};
    for (int i = 0; i < 3; i++) {
        for (int way = 0; way < 24; way++) {
            int found = way % 3; /* nothing, ours, another's */
            bool next = way / 3 & 1, loaded = way / 3 & 2, inside = way / 3 & 4;
            start_afresh(state);
            fake.paths[0] = "/a/other/libother.so";
            fake.paths[1] = loaded ? libraries[i] : NULL;
            fake.found = found ? &other_code[0] : NULL;
            fake.ours = found == 1;
            fake.inside = inside;
            struct answer answer = sg_dlsym_answer(next ? RTLD_NEXT : &other_handle, names[i], NULL);
            bool absent = (found == 1 || (!found && next)) && !loaded;
            assert_null(answer.value);
            assert_ptr_equal(answer.real, absent ? NULL : look_up);
            assert_int_equal(fake.asked_of_libc, absent);
            assert_string_equal(fake.asked_name, names[i]);
        }
    }
}

static void other_names_are_the_loaders(void **state)
{
    static const char *const names[] = {NULL, "", "c", "cblas", "_", "_Y", "malloc", "_ZOther", "cudaMallocx", "ucu"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct answer answer = sg_dlsym_answer(RTLD_NEXT, names[i], NULL);
        assert_null(answer.value);
        assert_ptr_equal(answer.real, look_up);
        assert_null(fake.asked_name); /* nobody was asked for it */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_that_cannot_be_ours_are_not_looked_up),
        TEST(names_that_are_hooked),
        TEST(names_that_nobody_knows),
        TEST(names_of_other_libraries),
        TEST(other_names_are_the_loaders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
