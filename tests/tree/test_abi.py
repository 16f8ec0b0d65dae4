"""The public interface beside the one that is stored in packaging/abi, by libabigail.

Usage: test_abi.py ROOT LIBRARY"""
import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest

ROOT, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
COMPARE = ROOT / "packaging" / "abi" / "compare"
STORED = ROOT / "packaging" / "abi" / f"{platform.machine()}.abi"


def compare(*stored):
    return subprocess.run([COMPARE, LIBRARY, *stored], capture_output=True, text=True, timeout=60)


class Interface(unittest.TestCase):
    def test_it_is_the_stored_one(self):
        done = compare()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_changes_are_found(self):
        """As if the stored interface had been another: a function more, another name of the library, another layout."""
        text = STORED.read_text()
        symbol = next(line for line in text.splitlines() if "elf-symbol name='segalloc_trim'" in line)
        for before, after, word in ((symbol, symbol + "\n" + symbol.replace("segalloc_trim", "segalloc_gone"), "segalloc_gone"),
                                    ("soname='libsegalloc.so.0'", "soname='libsegalloc.so.1'", "SONAME changed"),
                                    ("class-decl name='segalloc_stat' size-in-bits='256'",
                                     "class-decl name='segalloc_stat' size-in-bits='320'", "segalloc_stat")):
            with self.subTest(word), tempfile.TemporaryDirectory() as folder:
                self.assertEqual(text.count(before), 1)
                path = pathlib.Path(folder, "stored.abi")
                path.write_text(text.replace(before, after))
                done = compare(path)
                self.assertNotIn(done.returncode, (0, 77), done)
                self.assertIn(word, done.stdout)
                self.assertIn("packaging/build abi", done.stdout)


if __name__ == "__main__":
    done = compare()
    if done.returncode == 77:
        print(done.stdout)
        sys.exit(77)
    unittest.main(verbosity=2)
