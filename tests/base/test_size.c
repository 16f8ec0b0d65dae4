#include "ascii.h"
#include "size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void reads_what_people_write(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } table[] = {
        {"0", 0},
        {"512", 512},
        {"512B", 512},
        {"4k", 4 * SG_KIB},
        {"20 MB", 20 * SG_MIB},
        {"1.5GiB", SG_GIB + SG_GIB / 2},
        {".5G", SG_GIB / 2},
        {" 24 gib", 24 * SG_GIB},
        {"79.5GiB", 79 * SG_GIB + SG_GIB / 2},
        {"8191T", 8191 * SG_TIB},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint64_t bytes = 1;
        assert_true(sg_size_parse(table[i].text, &bytes));
        assert_true(bytes == table[i].bytes);
    }
}

static void refuses_the_rest(void **state)
{
    (void)state;
    static const char *const table[] = {"", " ", ".", "-1", "+1", "1X", "1KK", "1KiBs", "x", "0x10", "1e3", "1,5G",
                                        "9223372036854775808",
                                        "99999999999999999999", "8388608T", "8388607.99999999999999999999T"};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint64_t bytes = 77;
        assert_false(sg_size_parse(table[i], &bytes));
        assert_true(bytes == 77);
    }
}

static void nearest_word(void **state)
{
    (void)state;
    static const char *const names[] = {"run", "report", "replay", NULL, "doctor", "max_split_size_mb"};
    enum { COUNT = sizeof names / sizeof *names };
    assert_string_equal(sg_ascii_nearest("reprot", names, COUNT), "report");
    assert_string_equal(sg_ascii_nearest("Replay", names, COUNT), "replay");
    assert_string_equal(sg_ascii_nearest("docter", names, COUNT), "doctor");
    assert_string_equal(sg_ascii_nearest("max-split-size-mb", names, COUNT), "max_split_size_mb");
    assert_string_equal(sg_ascii_nearest("max_split", names, COUNT), "max_split_size_mb");
    assert_null(sg_ascii_nearest("zzzzzz", names, COUNT));
    assert_null(sg_ascii_nearest("", names, COUNT));
    assert_null(sg_ascii_nearest("a word that is longer than any that is worth a comparison", names, COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_people_write),
        cmocka_unit_test(refuses_the_rest),
        cmocka_unit_test(nearest_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
