"""The lists of tests/coverage/unreached name lines that are in the tree, in a function that is.

Usage: test_unreached.py SOURCE_ROOT

Which branches no test takes is measured by ./check --coverage. This only finds entries whose file, function or line is
gone, so that whoever takes a function away sees it at once."""
import importlib.util
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SPEC = importlib.util.spec_from_file_location("unreached", ROOT / "tests/coverage/unreached.py")
unreached = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(unreached)


def stale(entry):
    """What of an entry is gone, or None. A function of C++ stands in the tree by its last name alone."""
    path = ROOT / entry.file
    if not path.is_file():
        return "file"
    text = path.read_text()
    if not re.search(rf"\b\d*{re.escape(entry.function.split('::')[-1])}", text):
        return "function"
    return None if entry.line in map(str.strip, text.splitlines()) else "line"


class Unreached(unittest.TestCase):
    def test_entries_are_in_the_tree(self):
        for path in sorted((ROOT / "tests/coverage/unreached").glob("*.txt")):
            _, entries = unreached.read_list(path)
            for entry in entries:
                with self.subTest(list=path.name, function=entry.function, line=entry.line):
                    self.assertIsNone(stale(entry))

    def test_an_entry_that_is_gone_is_found(self):
        entry = unreached.Entry("src/base/size.h", "no_such_function", 1, "row", "return 0;")
        self.assertEqual(stale(entry), "function")
        self.assertEqual(stale(entry._replace(file="src/base/no_such_file.c")), "file")


if __name__ == "__main__":
    unittest.main()
