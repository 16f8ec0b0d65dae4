/* Handlers around a line of Python: which of them go on after running out of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "rehearse/handlers.h"

/* Asks about the line that has f() in it. */
static bool is_around(const char *source)
{
    char path[] = "/tmp/segalloc-handlers-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w");
    fputs(source, file);
    fclose(file);
    uint64_t line = 1;
    for (const char *at = source; at < strstr(source, "f()"); at++)
        line += *at == '\n';
    bool around = sg_handler_is_around(path, line);
    unlink(path);
    return around;
}

static void handlers_that_go_on(void **state)
{
    static const char *const sources[] = {
        "try:\n    f()\nexcept RuntimeError:\n    pass\n",
        "while True:\n    try:\n        x = f()\n    except ValueError:\n        raise\n    except:\n        pass\n",
        "try:\n    if a:\n        for b in c:\n            f()\n\nexcept torch.cuda.OutOfMemoryError as e:\n    pass\n",
        "try: f()\nexcept torch.OutOfMemoryError: pass\n",
        "def g():\n    try: f(); g()\n    except Exception: pass\n",
        "try:\n    f()\nexcept (\n    ValueError,\n    RuntimeError,\n):\n    pass\n",
        "with contextlib.suppress(RuntimeError):\n    f()\n",
        "with suppress(ValueError, torch.OutOfMemoryError): f()\n",
        "for a in b:\n    with suppress(torch.cuda.OutOfMemoryError):\n        if a:\n            f()\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (!is_around(sources[i]))
            fail_msg("no handler found:\n%s", sources[i]);
}

static void other_handlers_do_not(void **state)
{
    static const char *const sources[] = {
        "f()\n",
        "try:\n    f()\nexcept ValueError:\n    pass\n",
        "try:\n    f()\nexcept (\n    ValueError,\n    KeyError,\n):\n    raise RuntimeError\n",
        "try:\n    f()\nfinally:\n    pass\n",
        "try: g()\nexcept RuntimeError: pass\nf()\n",
        "try:\n    g()\nexcept RuntimeError:\n    f()\n",
        "try:\n    def g():\n        f()\nexcept RuntimeError:\n    pass\n",
        "with contextlib.suppress(ValueError):\n    f()\n",
        "with torch.no_grad():\n    f()\n",
        "with suppress(RuntimeError):\n    g()\nf()\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (is_around(sources[i]))
            fail_msg("a handler found:\n%s", sources[i]);
    assert_false(sg_handler_is_around("/nowhere", 1));
}

static void threads_end_errors(void **state)
{
    (void)state;
    assert_true(sg_handler_ends_errors("/usr/lib/python3.11/threading.py"));
    assert_true(sg_handler_ends_errors("/usr/lib/python3.11/concurrent/futures/thread.py"));
    assert_true(sg_handler_ends_errors("/usr/lib/python3.11/asyncio/events.py"));
    assert_false(sg_handler_ends_errors("/usr/lib/python3.11/concurrent/futures/_base.py"));
    assert_false(sg_handler_ends_errors("/usr/lib/python3.11/my_threading.py"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(handlers_that_go_on), cmocka_unit_test(other_handlers_do_not),
        cmocka_unit_test(threads_end_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
