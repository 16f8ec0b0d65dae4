"""tests/tree/prose and tests/tree/format complain about lines that a change touches, about nothing else, and never without
git; and the whole tree keeps to prose.txt.

Usage: test_prose.py SOURCE_ROOT"""
import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("prose", str(ROOT / "tests/tree/prose"))
prose = importlib.util.module_from_spec(importlib.util.spec_from_loader("prose", LOADER))
LOADER.exec_module(prose)
LONG = " ".join(["word"] * 26)
FINE = " ".join(["word"] * 25)


class Tree(unittest.TestCase):
    def test_limits(self):
        found, limits = prose.measure(prose.code_files()), prose.read_limits()
        self.assertIn(prose.SHARE, limits)
        self.assertEqual(list(prose.missed(found, limits)), [])

    def test_headers_have_a_worked_case(self):
        headers = {path: text for path, text in prose.code_files() if re.match(r"src/(core|order|preload)/.*\.h$", path)}
        self.assertGreater(len(headers), 100)
        without = [path for path, text in headers.items()
                   if not any(re.search(r"\bexample\b", sentence.text, re.I) for sentence in prose.comments(text))]
        self.assertEqual(without, [])

    def test_counts(self):
        text = "/* What a is. A word, as b is.\n   As c is. */\nint a; /* Whether. By default none. */\n\n// By a.\nchar *b = \"/* Of */\";\n"
        found = prose.measure([("src/a/a.c", text), ("src/sim/b/c.h", "int c;\n")])
        self.assertEqual(dict(found["src/a"]), {"lines": 5, "comment": 3, "sentences": 6, "long": 0, "openings": 4})
        self.assertEqual(round(prose.share(prose.without_sim(found))), 60)
        self.assertEqual(list(prose.missed(found, {"src/a": 4, prose.SHARE: 60})), [])
        self.assertEqual(len(list(prose.missed(found, {"src/a": 3, prose.SHARE: 61}))), 2)

    def test_python(self):
        text = ('#!/usr/bin/env python3\n"""What a is.\n\nUsage: a\n    Of b.\n"""\n\ndef f():  # Who?\n    # A word,\n'
                '    # as b is.\n    """By a,\n    b. Whose."""\n    return "Of c."\n')
        found = prose.measure([("tools/a/a.py", text), ("tools/b.py", "# As b.\n")])
        self.assertEqual(dict(found["tools/a"]), {"lines": 11, "comment": 9, "sentences": 5, "long": 0, "openings": 4})
        self.assertEqual(list(prose.missed(found, {"tools/a": 4})),
                         ["tools: 1 sentences open with a clause, at most 0: tests/tree/prose --openings tools"])


@unittest.skipUnless(shutil.which("git"), "no git")
class Touched(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ["tests/tree", "src", "docs"]:
            (self.root / name).mkdir(parents=True)
        for name in ["tests/tree/prose", "tests/tree/format", ".clang-format"]:
            shutil.copy(ROOT / name, self.root / name)

    def git(self, *command):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@example.com", *command],
                       check=True, stdout=subprocess.DEVNULL)

    def commit(self):
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "old")

    def write(self, name, text):
        (self.root / name).write_text(text)

    def judged(self, *arguments):
        result = subprocess.run([sys.executable, self.root / "tests/tree/prose", *arguments], text=True,
                                stdout=subprocess.PIPE)
        return result.returncode, [line.split(": ")[:2] for line in result.stdout.split("\n") if line.count(": ") > 1]

    def test_old_lines_are_left_alone(self):
        self.write("src/a.c", f"/* {LONG}. */\nint a;\n")
        self.commit()
        self.write("src/a.c", f"/* {LONG}. */\nint b; /* {FINE}. */\n")
        self.assertEqual(self.judged(), (0, []))

    def test_touched_lines_are_judged(self):
        self.write("src/a.c", "int a;\n")
        self.commit()
        self.write("src/a.c", f'/* A word.\n   {LONG}. */\nint a;\n/* The same of b. */\nchar *b = "/* {LONG}. */";\n'
                              "/* The core is told. */\n/* Whether a is b. */\n")
        self.assertEqual(self.judged(), (1, [["src/a.c:2", "26 words"], ["src/a.c:4", 'begins with "The same"'],
                                             ["src/a.c:6", '"is told"'], ["src/a.c:7", 'opens with "Whether"']]))
        self.git("commit", "--quiet", "--all", "--message", "new")
        self.assertEqual(self.judged(), (0, []))
        self.assertEqual(self.judged("HEAD^")[0], 1)

    def test_touched_python_is_judged(self):
        self.write("docs/a.py", '"""A word."""\n# What a is.\n')
        self.commit()
        self.write("docs/a.py", '"""Of a."""\n# What a is.\n')
        self.assertEqual(self.judged(), (1, [["docs/a.py:1", 'opens with "Of"']]))

    def test_files_that_git_does_not_know_are_new(self):
        self.write("docs/a.md", "# A\n")
        self.commit()
        self.write("docs/b.md", f"# {LONG}\n\n    {LONG}\n\n| {LONG} |\n\n* {FINE}\n* {FINE}\n\n{LONG} `a b c`. A (b c).\n")
        self.assertEqual(self.judged(), (1, [["docs/b.md:10", "27 words"]]))

    def test_without_git_there_is_nothing_to_say(self):
        self.write("src/a.c", f"/* {LONG}. */\n")
        self.assertEqual(self.judged()[0], 0)
        self.commit()
        self.assertEqual(self.judged("no-such-commit")[0], 0)

    def test_within_another_repository_there_is_nothing_to_say(self):
        self.commit()
        inner = self.root / "inner"
        shutil.copytree(self.root / "tests", inner / "tests")
        (inner / "src").mkdir()
        (inner / "src/a.c").write_text(f"/* {LONG}. */\n")
        self.assertEqual(subprocess.run([sys.executable, inner / "tests/tree/prose"]).returncode, 0)

    @unittest.skipUnless(shutil.which("clang-format-diff"), "no clang-format")
    def test_format(self):
        def formatted():
            return subprocess.run([self.root / "tests/tree/format"], stdout=subprocess.DEVNULL).returncode == 0
        self.write("src/a.c", "int a  ;\nint b;\n")
        self.assertTrue(formatted())
        self.commit()
        self.assertTrue(formatted())
        self.write("src/a.c", "int a  ;\nint c;\n")
        self.assertTrue(formatted())
        self.write("src/a.c", "int a  ;\nint  c;\n")
        self.assertFalse(formatted())


if __name__ == "__main__":
    unittest.main(verbosity=2)
