"""tests/tree/figures counts what it says.

Usage: test_counts.py SOURCE_ROOT"""
import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("figures", str(ROOT / "tests/tree/figures"))
figures = importlib.util.module_from_spec(importlib.util.spec_from_loader("figures", loader))
loader.exec_module(figures)

FILES = {
    "src/core/a.h": "extern int shared, *other;\nextern const int fixed;\nint sg_a(void);\nvoid sg_b(int (*call)(int)) __attribute__((cold));\n",
    "src/core/a.c": '#include "a.h"\n#include "up/c.h"\nint sg_a(void)\n{\n    if (1) { return 2; }\n    return 3;\n}\n',
    "src/core/b.c": '#include "a.h"\nenum { MOST = 12, OTHER };\nvoid sg_b(int (*call)(int))\n{\n}\nstatic int sg_c(void)\n{\n    return 0;\n}\n',
    "src/core/up/c.h": '/* #include "a.h" is no include. */\nint sg_c(void);\n',
    "tests/tree/test_tree.py": 'FLOORS = {"core": [r"[^/]*", r"up/.*"]}\n',
}


class Counts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        root = pathlib.Path(self.folder.name)
        for path, text in FILES.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        self.tree = figures.Tree(root, sorted(FILES))

    def test_folders(self):
        self.assertEqual(dict(self.tree.in_folders()), {"src/core": 3, "src/core/up": 1})

    def test_arrows(self):
        self.assertEqual(self.tree.against_floors(), ["src/core/a.c -> src/core/up/c.h"])

    def test_headers(self):
        self.assertEqual(self.tree.headers_of_several(), {"src/core/a.h": ["src/core/a.c", "src/core/b.c"]})

    def test_globals_and_numbers(self):
        self.assertEqual(self.tree.globals(), ["src/core/a.h: other", "src/core/a.h: shared"])
        self.assertEqual(self.tree.numbers(), ([], ["src/core/b.c: MOST"]))

    def test_words(self):
        self.assertEqual(self.tree.words(), {})
        (self.tree.root / "src/core/a.c").write_text("struct sg_place best;")
        (self.tree.root / "src/preload").mkdir()
        (self.tree.root / "src/preload/s.c").write_text("struct sg_place found;")
        tree = figures.Tree(self.tree.root, [*FILES, "src/preload/s.c"])
        self.assertEqual(list(tree.words()), ["place"])

    def test_order(self):
        self.assertEqual(figures.count_back([("a", "b"), ("b", "c"), ("a", "c")]), 0)
        self.assertEqual(figures.count_back([("a", "b"), ("b", "c"), ("c", "a")]), 1)
        self.assertEqual(figures.count_back([("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
