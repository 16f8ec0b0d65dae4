"""Each file of a large folder has a line in a README, and each line of a README has its file.

Usage: test_readmes.py SOURCE_ROOT

A README lists files in tables whose first column is headed `file`. A row whose first cell is a folder in bold is the head
of a room: the names below it, up to the next bold row, are of that folder."""
import collections
import pathlib
import posixpath
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # not into the source folder
import test_docs  # noqa: E402

LARGE = 6  # a folder of more files than that is not taken in at a glance
# Inputs, records and seeded bugs, of which there is something to say as a whole only; and what has no more to say than its name.
WITHOUT_LINES = re.compile(r"tests/(data|fuzz/corpus|coverage/unreached|hazard/mutations)/.*|.*/(meson\.build|README\.md)|"
                           r".*(~|\.orig|\.rej|\.pyc)")


def listed(readme, text):
    """Paths that the tables of a README list, folders among them with a slash at their end."""
    room = None
    for line in text.split("\n"):
        if re.match(r"\| *file *\|", line):
            room = ""
        elif not line.startswith("|"):
            room = None
        elif room is not None:
            cell = line.split("|")[1].strip()
            names = re.findall(r"`([^`]+)`", cell)
            if cell.startswith("**"):
                room = next((name for name in names if name.endswith("/")), "")
                names = [""] if room else []
            for name in names:
                path = posixpath.normpath(posixpath.join(posixpath.dirname(readme), room, name))
                yield path + ("/" if (room + name).endswith("/") else "")


class Checker:
    def __init__(self, root):
        files = [path for path in test_docs.tree(root) if path.startswith(("src/", "tools/", "tests/"))]
        self.there = set(files)
        self.folders = {path.rsplit("/", n)[0] + "/" for path in files for n in range(1, path.count("/") + 1)}
        self.lines = {path: list(listed(path, (root / path).read_text())) for path in files if path.endswith("/README.md")}
        self.by_folder = collections.defaultdict(list)
        for path in sorted(files):
            if not WITHOUT_LINES.fullmatch(path):
                self.by_folder[posixpath.dirname(path)].append(path)

    def home(self, folder):
        """The README to which a line about a file of the folder belongs: one that has such lines, else the nearest."""
        above = [posixpath.join(folder.rsplit("/", n)[0] if n else folder, "README.md") for n in range(folder.count("/") + 1)]
        above = [path for path in above if path in self.lines]
        return next((path for path in above if any(posixpath.dirname(line) == folder for line in self.lines[path])),
                    above[0] if above else None)

    def without_line(self):
        has_line = {path for lines in self.lines.values() for path in lines}
        for folder, files in sorted(self.by_folder.items()):
            if len(files) <= LARGE:
                continue
            for path in files:
                if path in has_line:
                    continue
                home = self.home(folder)
                row = f"| `{path.rsplit('/', 1)[1]}` | what it is, in one fact |"
                if home is None:
                    yield f"{path}: write {folder}/README.md with a table headed `| file | what it is |`, and in it {row}"
                else:
                    part = posixpath.relpath(folder, posixpath.dirname(home))
                    yield f"{path}: add to {home}{'' if part == '.' else f', below the row **`{part}/`**,'} {row}"

    def without_file(self):
        for readme, lines in sorted(self.lines.items()):
            for path in lines:
                if path not in (self.folders if path.endswith("/") else self.there):
                    yield f"{readme} has a line for {path}, which is not there: take the line out, or give it the new name"


class Readmes(unittest.TestCase):
    def test_each_file_has_its_line(self):
        found = list(Checker(test_docs.ROOT).without_line())
        if found:
            self.fail("\n".join(["", *found]))

    def test_each_line_has_its_file(self):
        found = list(Checker(test_docs.ROOT).without_file())
        if found:
            self.fail("\n".join(["", *found]))

    def test_the_check_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in [*(f"src/a/{n}.c" for n in range(7)), *(f"src/a/room/{n}.h" for n in range(7)), "src/a/small/x.c",
                         *(f"tools/b/{n}.py" for n in range(7)), *(f"tests/data/{n}.csv" for n in range(7))]:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).touch()
            (root / "src/a/README.md").write_text(
                "| file | what it is |\n|---|---|\n" + "".join(f"| `{n}.c`, `gone{n}.c` | it |\n" for n in range(1)) +
                "".join(f"| `{n}.c` | it |\n" for n in range(1, 6)) + "| **`room/`** | |\n" +
                "".join(f"| `{n}.h` | it |\n" for n in range(6)) + "| **here** | |\n| `none/` | it |\n\n`6.c` is no line.\n\n"
                "| option | what it is |\n|---|---|\n| `6.c` | it |\n")
            checker = Checker(root)
            missing = list(checker.without_line())
            self.assertEqual([line.split(":")[0] for line in missing],
                             ["src/a/6.c", "src/a/room/6.h", *(f"tools/b/{n}.py" for n in range(7))])
            self.assertIn("add to src/a/README.md | `6.c` |", missing[0])
            self.assertIn("add to src/a/README.md, below the row **`room/`**, | `6.h` |", missing[1])
            self.assertIn("write tools/b/README.md", missing[2])
            self.assertEqual([line.split(" ")[5].rstrip(",") for line in checker.without_file()], ["src/a/gone0.c", "src/a/none/"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
