/* What is text stays, and what a terminal or a reader would take for anything else does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plain_text.h"

static void expect(const char *text, const char *plain)
{
    char copy[128];
    snprintf(copy, sizeof copy, "%s", text);
    assert_string_equal(sg_plain_text(copy), plain);
    assert_string_equal(sg_plain_text(copy), plain); /* and stays so */
}

static void text_stays(void **state)
{
    (void)state;
    expect("", "");
    expect("a b~", "a b~");
    expect("</script><img src=x>\"'%s", "</script><img src=x>\"'%s");
    expect("é € 𝄞 مرحبا 中", "é € 𝄞 مرحبا 中");
    expect("\xf4\x8f\xbf\xbf\xc2\xa0",
        "\xf4\x8f\xbf\xbf\xc2\xa0"); /* the last code point, and a space that is no control */
}

static void controls_go(void **state)
{
    (void)state;
    expect("\x1b[31m\x1b]0;t\x07", "?[31m?]0;t?");
    expect("a\nb\r\tc\x7f", "a?b??c?");
    expect("\xc2\x9b"
           "31m\xc2\x80\xc2\x85",
        "?31m??"); /* C1 in UTF-8 */
    expect("a\xe2\x80\xa8"
           "b\xe2\x80\xa9",
        "a?b?"); /* separators */
    expect("\xe2\x80\xae"
           "evil\xe2\x81\xa6\xe2\x80\x8f\xd8\x9c",
        "?evil???");
}

static void what_is_no_utf_8_goes(void **state)
{
    (void)state;
    expect("\xff\xfe\x80", "???");
    expect("\x9b"
           "31m",
        "?31m");
    expect("\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf", "?????????"); /* overlong */
    expect("\xed\xa0\x80", "???");                               /* a surrogate */
    expect("\xf4\x90\x80\x80\xf5", "?????");                     /* beyond the last code point */
    expect("a\xc3", "a?");                                       /* cut off */
    expect("\xe2\x82", "??");
    expect("\xf0\x9d\x84x", "???x");
}

static void characters_have_their_length_in_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } rows[] = {{"a", 1}, {"é", 2}, {"€", 3}, {"𝄞", 4}, {"\x80", 0}, {"\xc1\x81", 0}, {"\xe2\x82", 0}, {"\xf8", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(sg_utf8_length(rows[i].text), rows[i].length);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays),
        cmocka_unit_test(controls_go),
        cmocka_unit_test(what_is_no_utf_8_goes),
        cmocka_unit_test(characters_have_their_length_in_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
