"""A function that X.h declares is defined in X.c beside it, or is inline. declared.txt lists those that are not; it only
shrinks.

Usage: test_declared.py SOURCE_ROOT [--write]

A function that is defined nowhere in src is the driver's, a runtime's or a program's, and is left out. --write brings the
list up to date, and adds nothing."""
import collections
import pathlib
import re
import sys
import unittest

WRITE = "--write" in sys.argv
ROOT = pathlib.Path([word for word in sys.argv[1:] if word != "--write"][0]).resolve()
del sys.argv[1:]
# They declare what the driver and programs define, for whoever hooks or calls it.
OTHERS = {"src/driver/cuda_proto.h"}
LIST = pathlib.Path(__file__).resolve().parent / "declared.txt"
ATTRIBUTE = r"(?:\s+(?:SG_\w+\(\w+\)|__attribute__\(\((?:[^()]|\([^()]*\))*\)\)))*"
PARAMETERS = r"\((?:[^(){};]|\((?:[^(){};]|\([^(){};]*\))*\))*\)"
HEAD = rf"^(?![ \t#])(?:[\w*]+[\s*]+)+?\**(\w+){PARAMETERS}{ATTRIBUTE}\s*"


def code_of(file):
    """The text without comments, directives, literals and what stands in braces."""
    text = re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)
    out, depth = [], 0
    for char in text:
        depth -= char == "}"
        if depth == 0 or (depth == 1 and char == "{"):
            out.append(char)
        depth += char == "{"
        if depth == 0 and char == "}":
            out.append("\n")
    return "".join(out)


def declared(code):
    return {match[1] for match in re.finditer(HEAD + ";", code, re.MULTILINE) if not re.match(r"\s*(?:static|typedef)\b", match[0])}


def defined(code):
    return {match[1] for match in re.finditer(HEAD + r"\{", code, re.MULTILINE)}


def elsewhere():
    """{header: functions that it declares and another file than its source defines}."""
    homes, found = collections.defaultdict(set), collections.defaultdict(set)
    files = sorted((ROOT / "src").rglob("*.[ch]"))
    code = {file: code_of(file) for file in files}
    for file in files:
        for name in defined(code[file]):
            homes[name].add(file)
    for file in files:
        if file.suffix == ".h" and str(file.relative_to(ROOT)) not in OTHERS:
            for name in declared(code[file]):
                if homes[name] and not homes[name] & {file, file.with_suffix(".c")}:
                    found[str(file.relative_to(ROOT))].add(name)
    return found


def read_list():
    listed, header = collections.defaultdict(set), None
    for line in LIST.read_text().splitlines() if LIST.exists() else []:
        if re.match(r"src/", line):
            header = line.rstrip(":")
        elif line.startswith("    "):
            listed[header].update(line.split())
    return listed


def write_list(listed):
    text = "# Functions that another file defines than the source of their header (test_declared.py). This list only shrinks.\n"
    for header in sorted(header for header in listed if listed[header]):
        text, line = text + f"\n{header}:\n", "   "
        for name in sorted(listed[header]):
            if len(line) + 1 + len(name) > 120:
                text, line = text + line + "\n", "   "
            line += " " + name
        text += line + "\n"
    LIST.write_text(text)


class Declared(unittest.TestCase):
    def test_reads(self):
        code = "int sg_a(int (*call)(int), void *user) SG_REQUIRES(lock);\nstatic int own(void);\nint sg_b(void)\n{\n}\n"
        self.assertEqual((declared(code), defined(code)), ({"sg_a"}, {"sg_b"}))

    def test_core(self):
        self.assertEqual([header for header in elsewhere() if header.startswith(("src/core/", "src/order/"))], [])

    def test_elsewhere(self):
        found, listed = elsewhere(), read_list()
        for header in sorted({*found, *listed}):
            with self.subTest(header=header):
                self.assertEqual(sorted(found[header] - listed[header]), [], "declared here, defined in another file")
                self.assertEqual(sorted(listed[header] - found[header]), [], "listed, and right by now: --write")


if __name__ == "__main__":
    if WRITE:
        write_list({header: names & read_list()[header] for header, names in elsewhere().items()})
    unittest.main(verbosity=2)
