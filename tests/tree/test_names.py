"""No layer has more functions of one word, or with a name that another file has too, than names.txt allows; and `names`
counts what it says.

Usage: test_names.py SOURCE_ROOT"""
import importlib.machinery
import importlib.util
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("names", str(ROOT / "tests/tree/names"))
names = importlib.util.module_from_spec(importlib.util.spec_from_loader("names", LOADER))
LOADER.exec_module(names)

CODE = """#define TAKES(x) { x }
static int take(int (*call)(int), const char *text) /* int put(void) { */
{
    if (text) { return call('{'); }
    return cu_given("static int said(void) {");
}
static __attribute__((cold)) void *
region_of(struct sg_range range) SG_REQUIRES(lock)
{
    struct { int x; } y = {0};
    return 0;
}
int declared(void);
struct sg_row rows[] = {{take}, {region_of}};
CPU_KERNEL(add, int a)
{
}
"""


class Names(unittest.TestCase):
    def test_tree(self):
        rows, limits = names.measure(names.sources(ROOT)), names.limits()
        self.assertEqual(list(names.above(rows, limits)), [])
        self.assertEqual(sorted(set(limits) - set(rows)), [], "layers that are gone")

    def test_tests_have_names_of_several_words(self):
        found = [f"{path.name}: {name}" for path in sorted((ROOT / "tests").rglob("*.[ch]"))
                 for name in re.findall(r"\bcmocka_unit_test(?:_\w+)?\((?:test_)?(\w+)", path.read_text()) if "_" not in name]
        self.assertEqual([name for name in found if not name.endswith(": name")], [], "a test's name says what is held to what")

    def test_reads(self):
        self.assertEqual(names.functions(CODE), {"take", "region_of"})

    def test_measures(self):
        rows = names.measure([("src/a/a.c", CODE), ("src/a/b.c", "int take(void)\n{\n}\nint cuInit(int x)\n{\n}\n"),
                              ("tools/b/x/y.c", "int cuInit(int x)\n{\n}\nint main(void)\n{\n}\nint region_of(void)\n{\n}\n")])
        count = {name: {kind: len(found) for kind, found in row.items()} for name, row in rows.items()}
        self.assertEqual(count, {"src/a": {"all": 4, "one word": 2, "shared": 3}, "tools/b": {"all": 3, "one word": 0, "shared": 1}})
        self.assertEqual(list(names.above(rows, {"src/a": (2, 3), "tools/b": (0, 1)})), [])
        self.assertEqual([line.split(": ")[0] for line in names.above(rows, {"src/a": (1, 2)})], ["src/a", "src/a", "tools/b"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
