"""No circle of files or folders, and no call upward, but those that circles.txt lists; and `circles` finds what it says.

Usage: test_circles.py BUILD COMPILER…"""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, COMPILER = sys.argv[1], sys.argv[2:]
del sys.argv[1:]
HERE = pathlib.Path(__file__).resolve().parent
LOADER = importlib.machinery.SourceFileLoader("circles", str(HERE / "circles"))
circles = importlib.util.module_from_spec(importlib.util.spec_from_loader("circles", LOADER))
sys.dont_write_bytecode = True
LOADER.exec_module(circles)


class Circles(unittest.TestCase):
    def test_build(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = circles.main([BUILD])
        self.assertEqual(status, 0, said.getvalue())

    def test_finds(self):
        self.assertEqual(circles.circles({("a", "b"), ("b", "c"), ("a", "c")}), [])
        self.assertEqual(circles.circles({("a", "b"), ("b", "a"), ("b", "c")}), [["a", "b"]])
        self.assertEqual(circles.circles({("a", "b"), ("b", "c"), ("c", "a"), ("d", "e"), ("e", "d"), ("c", "d")}),
                         [["a", "b", "c"], ["d", "e"]])

    def test_symbols(self):
        with tempfile.TemporaryDirectory() as folder:
            source, file = pathlib.Path(folder) / "a.c", pathlib.Path(folder) / "a.o"
            source.write_text("int used(void); extern int seen; static int own(void) { return used() + seen; }\n"
                              "int made; int sg_a(void) { return own() + made; }\n")
            subprocess.run([*COMPILER, "-c", "-o", str(file), str(source)], check=True)
            defines, uses = circles.symbols_of([file])[str(file)]
        self.assertEqual(defines & {"sg_a", "made", "own", "used"}, {"sg_a", "made"})
        self.assertEqual(uses & {"used", "seen", "own", "sg_a"}, {"used", "seen"})

    def test_judges(self):
        listed = [("core", "files", "a reason", ["a.c", "b.c", "c.c"])]
        self.assertEqual(circles.judge([("core", "files", ["a.c", "b.c", "c.c"])], listed), ([], listed))
        for found, word in ((("core", "files", ["a.c", "b.c", "c.c", "d.c"]), "not listed"),
                            (("core", "files", ["x.c", "y.c"]), "not listed"),
                            (("core", "folders", ["a.c", "b.c", "c.c"]), "not listed"),
                            (("core", "files", ["a.c", "b.c"]), "smaller")):
            with self.subTest(found=found):
                self.assertIn(word, "\n".join(circles.judge([found], listed)[0]))
        self.assertIn("gone", circles.judge([], listed)[0][0])

    def test_summary(self):
        """A tree without circles has nothing that is to be parted."""
        circle = ("core", "files", ["a.c", "b.c"])
        self.assertEqual(circles.summary([], [], 7),
                         "circles: 7 references between files; circles of files: 0, of folders: 0; calls upward: 0")
        self.assertEqual(circles.summary([circle], ["core/a.c -> replay/b.c: f"], 7), "circles: 7 references between files; "
                         "circles of files: 1, of folders: 0, all to be parted; calls upward: 1")

    def test_usage(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, tempfile.TemporaryDirectory() as folder:
            self.assertEqual(circles.main([]), 2)
            self.assertEqual(circles.main([folder]), 2)
        self.assertIn(folder, said.getvalue())


if __name__ == "__main__":
    unittest.main(verbosity=2)
