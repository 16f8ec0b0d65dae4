/* The environment as it was when the library was loaded: programs clear or overwrite theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "process/environment.h"

enum { KEPT_BYTES = 8192 };

static void set(char **list)
{
    environ = list;
}

static void value_is_the_one_now(void **state)
{
    char conf[] = "SEGALLOC_CONF=a:b", longer[] = "SEGALLOC_CONFX=no",
         file[] = "SEGALLOC_CONF_FILE=", other[] = "X=1=2", bare[] = "BARE", changed[] = "SEGALLOC_CONF=changed";
    char *list[] = {longer, bare, other, conf, file, NULL}, *none[] = {NULL}, *later[] = {changed, NULL};
    (void)state;
    set(list);
    assert_string_equal(sg_environment("SEGALLOC_CONF"), "a:b");
    assert_string_equal(sg_environment("SEGALLOC_CONF_FILE"), "");
    assert_string_equal(sg_environment("X"), "1=2");
    assert_null(sg_environment("BARE"));
    assert_null(sg_environment("SEGALLOC_CON"));
    assert_null(sg_environment("SEGALLOC_TRACE"));
    sg_environment_keep();
    set(later);
    assert_string_equal(sg_environment("SEGALLOC_CONF"), "changed");
    assert_string_equal(sg_environment("SEGALLOC_CONF_FILE"), "");
    assert_null(sg_environment("X")); /* which is not meant for us */
    conf[strlen("SEGALLOC_CONF=")] = '!'; /* as a program that overwrites it */
    set(none);
    assert_string_equal(sg_environment("SEGALLOC_CONF"), "a:b");
    set(NULL); /* clearenv() */
    assert_string_equal(sg_environment("SEGALLOC_CONF"), "a:b");
    assert_null(sg_environment("SEGALLOC_STATS"));
    sg_environment_keep();
    assert_string_equal(sg_environment("SEGALLOC_CONF"), "a:b");
}

/* Kept in their order, as far as there is room: to the byte. */
static void as_much_is_kept_as_there_is_room_for(void **state)
{
    static char first[KEPT_BYTES + 64], second[KEPT_BYTES + 64], third[] = "SEGALLOC_STATS=s";
    char *list[] = {third, second, first, NULL};
    (void)state;
    for (int more = 1; more >= 0; more--) {
        const size_t half = KEPT_BYTES / 2;
        memset(first, 'a', sizeof first);
        memset(second, 'b', sizeof second);
        memcpy(first, "SEGALLOC_CONF=", 14);
        memcpy(second, "SEGALLOC_TRACE=", 15);
        first[14 + half - 1] = '\0';             /* half of the room with its end */
        second[15 + half - 3 + more] = '\0';     /* all but 2 or 1 bytes of the other half */
        set(list);
        sg_environment_keep();
        set(NULL);
        assert_int_equal(strlen(sg_environment("SEGALLOC_CONF")), half - 1);
        assert_int_equal(sg_environment("SEGALLOC_CONF")[0], 'a');
        assert_int_equal(strlen(sg_environment("SEGALLOC_TRACE")), half - 3 + (size_t)more);
        assert_int_equal(sg_environment("SEGALLOC_TRACE")[0], 'b');
        if (more)
            assert_null(sg_environment("SEGALLOC_STATS")); /* it takes 2 bytes, and 1 is left */
        else
            assert_string_equal(sg_environment("SEGALLOC_STATS"), "s");
    }
    memset(first, 'a', sizeof first - 1);
    memcpy(first, "SEGALLOC_CONF=", 14);
    first[14 + KEPT_BYTES] = '\0'; /* more than there is room for, by its end */
    third[strlen("SEGALLOC_STATS=")] = 't';
    second[15 + 10] = '\0';
    set(list);
    sg_environment_keep();
    set(NULL);
    assert_int_equal(strlen(sg_environment("SEGALLOC_TRACE")), 10);
    assert_string_equal(sg_environment("SEGALLOC_STATS"), "t"); /* the others have room */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(value_is_the_one_now),
        cmocka_unit_test(as_much_is_kept_as_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
