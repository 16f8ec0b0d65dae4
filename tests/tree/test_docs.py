"""What the pages name is there: files, functions, constants, tests and links.

Usage: test_docs.py SOURCE_ROOT

Records of experiments keep the names of their day, so only their links are followed. KEPT is none of them: its tests are there."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
KEPT = "docs/experiments/by-use.md"
# Files that a reader makes, or that stand in other trees.
ELSEWHERE = {"cuda.h", "cudaTypedefs.h", "cuda_runtime.h", "nvml.h", "uvm_pmm_gpu.c"}


def tree(root):
    """Files of the sources, without build folders and what starts with a dot."""
    files = []
    for folder, folders, names in os.walk(root):
        if "build.ninja" in names:
            folders[:] = []
            continue
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        files += [pathlib.Path(folder, name).relative_to(root).as_posix() for name in names]
    return files


def names(text):
    """What stands between single backquotes, outside of indented code."""
    prose = re.sub(r"^ {4}.*$", "", text, flags=re.M)
    return re.findall(r"`([^`\n]+)`", prose)


def anchors(text):
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Checker:
    def __init__(self, root):
        self.root = root
        self.files = tree(root)
        self.ends = {"/".join(path.split("/")[n:]) for path in self.files for n in range(path.count("/") + 1)}
        self.folders = {path.rsplit("/", n)[0] for path in self.files for n in range(1, path.count("/") + 1)}
        code = (path for path in self.files if path.endswith((".c", ".h", ".def", ".map")))
        self.words = set()
        for path in code:
            self.words.update(re.findall(r"\w+", (root / path).read_text(errors="replace")))

    def missing_files(self, text):
        for name in names(text):
            if re.fullmatch(r"[\w.-]+(/[\w.-]+)*\.(c|h|def)|([\w.-]+/)+[\w.-]+\.(py|sh|md|txt)", name):
                if name not in self.ends and name not in ELSEWHERE and not name.startswith("../"):
                    yield name
            elif re.fullmatch(r"(src|tests|tools|docs)(/[\w.-]+)*/?", name):
                if name.rstrip("/") not in self.folders and name not in self.ends:
                    program = name.rsplit("/", 1)
                    if len(program) < 2 or not self.is_program(*program):
                        yield name

    def is_program(self, folder, name):
        """A test program is named as it is built, in the folder of its sources."""
        build = self.root / folder / "meson.build"
        return build.exists() and re.search(rf"\b{re.escape(name)}\b", build.read_text()) is not None

    def missing_names(self, text):
        for name in names(text):
            word = re.fullmatch(r"(?:struct |enum )?(sg_\w+|SG_\w+|SEGALLOC_RECORD_\w+)(?:\(\))?", name)
            if word and word[1] not in self.words:
                yield name

    def missing_tests(self, text):
        for file, cases in re.findall(r"`((?:test_\w+|matrix)\.(?:c|py))`:\s+((?:`\w+`(?:,\s+|\b)?)+)", text):
            if file.endswith(".py") and not any(path.endswith("/" + file) for path in self.files):
                yield file
            there = {word for path in self.files if path.endswith("/" + file)
                     for word in re.findall(r"\w+", (self.root / path).read_text())}
            yield from (f"{file}: {case}" for case in re.findall(r"`(\w+)`", cases) if case not in there)
        for name in names(text):
            scenario = re.fullmatch(r"(\w+) (\w+)", name)
            path = scenario and self.root / "tests/hazard" / f"{scenario[1]}.c"
            if path and path.exists() and not re.search(rf"\b{scenario[2]}\b", path.read_text()):
                yield name

    def broken_links(self, page, text):
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
            file, _, anchor = link.partition("#")
            if re.match(r"\w+:", link):
                continue
            path = (self.root / page).parent / file if file else self.root / page
            if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
                yield link


class Docs(unittest.TestCase):
    def setUp(self):
        self.checker = Checker(ROOT)

    def pages(self, all_of_them=False):
        for page in sorted(path for path in self.checker.files if path.endswith(".md")):
            if all_of_them or page == KEPT or not page.startswith(("docs/experiments/", "tests/data/")):
                yield page, (ROOT / page).read_text()

    def complains_of_nothing(self, complaints, **kind):
        for page, text in self.pages(**kind):
            with self.subTest(page=page):
                self.assertEqual(list(complaints(page, text)), [])

    def test_pictures(self):
        """Pictures that are made from text are what their text says."""
        texts = sorted((ROOT / "docs/pictures").glob("*.txt"))
        self.assertTrue(texts)
        drawn = subprocess.run([sys.executable, ROOT / "docs/pictures/draw", "--check", *texts], stdout=subprocess.PIPE, text=True)
        self.assertEqual((drawn.returncode, drawn.stdout), (0, ""))

    def test_files(self):
        self.complains_of_nothing(lambda page, text: self.checker.missing_files(text))

    def test_names(self):
        self.complains_of_nothing(lambda page, text: self.checker.missing_names(text))

    def test_tests(self):
        self.complains_of_nothing(lambda page, text: self.checker.missing_tests(text))

    def test_links(self):
        self.complains_of_nothing(self.checker.broken_links, all_of_them=True)

    def test_no_section_stands_twice(self):
        """As merging a section that was moved with one that was changed may leave it."""
        for page, text in self.pages(all_of_them=True):
            sections = re.findall(r"^## .*", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
            with self.subTest(page=page):
                self.assertEqual([section for section in set(sections) if sections.count(section) > 1], [])

    def test_the_check_itself(self):
        text = ("`core/no_such.c` `src/nothing` `sg_no_such_call()` `SG_NO_SUCH` `test_core_order.c`: `no_such_case` "
                "`test_abi.py`: `test_no_such`\n"
                "`core/core.h` `sg_core_malloc()` [page](no-such.md) [part](README.md#no-such-part) [here](README.md)")
        checker = self.checker
        self.assertEqual(list(checker.missing_files(text)), ["core/no_such.c", "src/nothing"])
        self.assertEqual(list(checker.missing_names(text)), ["sg_no_such_call()", "SG_NO_SUCH"])
        self.assertEqual(list(checker.missing_tests(text)), ["test_core_order.c: no_such_case", "test_abi.py: test_no_such"])
        self.assertEqual(list(checker.broken_links("README.md", text)), ["no-such.md", "README.md#no-such-part"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
