"""Functions of the core that need a lock say so three times: in their signature, by the end of their name, by an assertion.

Usage: test_locks.py SOURCE_ROOT"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
# The innermost lock names the function.
SUFFIX = {"lock": "_locked", "asking": "_asking", "grow": "_growing", "setup": "_in_setup"}
ASSERTION = {"lock": r"SG_ASSERT_HELD\([^;]*\block\)|SG_ASSERT_(?:REGION|EXTENTS)_LOCK\(", "asking": r"SG_ASSERT_HELD\([^;]*asking\)",
             "grow": r"SG_ASSERT_HELD\([^;]*grow\)", "setup": r"SG_ASSERT_HELD\([^;]*setup\)"}
HEAD = r"\b(\w+)(\((?:[^(){};]|\([^(){};]*\))*\))((?:\s+SG_\w+\(\w+\))*)\s*"


def without_comments(text):
    return re.sub(r"/\*.*?\*/|^\s*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)


def roles(attributes):
    return re.findall(r"SG_REQUIRES\((\w+)\)", attributes)


class Locks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.declared, cls.defined = {}, []
        for file in sorted((ROOT / "src/core").rglob("*.[ch]")):
            text = without_comments(file.read_text())
            for match in re.finditer(rf"^[^\n{{}}]*?{HEAD};", text, re.MULTILINE):
                cls.declared.setdefault(match[1], set()).update(roles(match[3]))
            for match in re.finditer(rf"^(?!\s)[^\n{{}}]*?{HEAD}\{{(.*?)^\}}", text, re.MULTILINE | re.DOTALL):
                cls.defined.append((file.relative_to(ROOT), match[1], set(roles(match[3])), match[4]))

    def test_found(self):
        self.assertGreater(len(self.defined), 300)
        self.assertEqual({role for _, _, needs, _ in self.defined for role in needs} |
                         set().union(*self.declared.values()), set(SUFFIX))

    def test_functions(self):
        for file, name, own, body in self.defined:
            needs = own | self.declared.get(name, set())
            with self.subTest(file=str(file), function=name):
                first = next((role for role in SUFFIX if role in needs), None)
                said = next((suffix for suffix in SUFFIX.values() if name.endswith(suffix)), None)
                self.assertEqual(said, SUFFIX.get(first))
                for role in needs:
                    self.assertRegex(body, ASSERTION[role])


if __name__ == "__main__":
    unittest.main(verbosity=2)
