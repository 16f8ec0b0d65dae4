"""What holds of the tree and of the built library as a whole.

Usage: test_tree.py SOURCE_ROOT LIBSEGALLOC COMPILER…"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT, LIBRARY = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
COMPILER = sys.argv[1:]
del sys.argv[1:]

# What each layer may include from, by src/README.md.
LAYERS = {"base": [], "config": ["base"], "driver": ["base"], "trace": ["base"], "pytorch": ["base", "config"],
          "order": ["base", "driver"],
          "core": ["base", "config", "driver", "order", "pytorch"],
          "inspect": ["base", "config", "driver", "order", "pytorch", "core"],
          "replay": ["base", "config", "driver", "order", "pytorch", "core", "inspect"],
          "preload": ["base", "config", "driver", "trace", "order", "pytorch", "core", "inspect"], "sim": ["base", "driver"]}

# The floors of a layer of src/ and of a tool, from the ground: a file includes none of a floor above its own. A pattern takes
# what none before it has taken.
FLOORS = {
    "core": [r"tuning\.(h|def)|lock_roles\.h", r"space/.*", r"core_types\.h", r"state/.*", r"streams/.*|segments/.*",
             r"search/.*", r"remap/.*", r".*"],
    "preload": [r"process/.*|sites/(?:unwind|frames)\..*", r"track/.*", r"torch/.*", r"services/.*", r"sites/.*",
                r"report/.*", r"check/.*", r"serve/.*", r"hooks/.*", r"main/.*"],
    "trace": [r"[^/]*", r"writer/.*", r"reader/.*"],
    "sim": [r"(cudart|standin)/.*|[^/]*\.(h|def)", r"hazard/order\.h|device/.*\.(h|def)", r"space/.*\.h", r"hazard/owner\.h|streams/.*\.h",
            r"hazard/.*\.h", r"memory/.*\.h", r"kernels/.*\.h", r"graphs/.*\.h", r"work/.*\.h", r"(?!api/).*\.c", r"api/.*|nvml/.*"],
    "tools/segalloc": [r"[^/]*|cli/.*|export/formats\.def", r"launch/.*", r"analysis/.*", r"replay/.*", r"monitor/.*", r"tune/.*", r"export/.*",
                       r"report/.*", r"html/.*", r"rehearse/.*|diff/.*|doctor/.*|selftest/.*", r"verbs/.*"],
    "tools/train": [r"plain_blas/.*|memory/.*", r"backend/.*", r"device/.*", r"ranks/.*", r"model/.*", r"layers/.*|checkpoint/.*", r"[^/]*"],
}


# What of the core's rooms the layers above it may include besides core.h: src/inspect/README.md lists them.
READS = {
    "inspect": {"state/locks.h", "state/accounts.h", "state/trace_streams.h", "segments/fixed_segments.h", "space/coalesce.h",
                "space/placement.h", "search/take.h", "streams/fences.h", "tuning.h"},
    "replay": {"start.h", "state/locks.h", "state/accounts.h", "state/access.h", "state/outside_bytes.h", "state/pins.h",
               "segments/fixed_segments.h", "search/take.h", "streams/pending_frees.h", "tuning.h"},
    "preload": set(),
}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class Headers(unittest.TestCase):
    def compiles_alone(self, header, folders, language="c"):
        flags = ["-x", language, "-std=c11" if language == "c" else "-std=c++11", "-D_GNU_SOURCE", "-Wall", "-Wextra",
                 "-Werror", "-DCUDART_MAJOR=13"]
        include = [f"-I{folder}" for folder in [ROOT / "include", ROOT / "src", *folders]]
        with tempfile.NamedTemporaryFile("w", suffix=".c") as unit:
            unit.write(f'#include "{header}"\n#include "{header}"\n')
            unit.flush()
            result = subprocess.run([*COMPILER, *flags, *include, "-fsyntax-only", unit.name], stderr=subprocess.PIPE,
                                    text=True)
        self.assertEqual(result.returncode, 0, f"{header}\n{result.stderr}")

    def test_layers(self):
        for layer, below in LAYERS.items():
            folders = [ROOT / "src" / name for name in [layer, *below]]
            for header in sorted((ROOT / "src" / layer).rglob("*.h")):
                with self.subTest(header=str(header.relative_to(ROOT))):
                    self.compiles_alone(header, [header.parent, *folders])

    def test_floors(self):
        upward = set()
        for layer, floors in FLOORS.items():
            root = ROOT / (layer if "/" in layer else f"src/{layer}")
            at = {}
            for file in sorted(root.rglob("*.[chd]*")):
                name = str(file.relative_to(root))
                at[name] = next((i for i, floor in enumerate(floors) if re.fullmatch(floor, name)), None)
                self.assertIsNotNone(at[name], f"{layer}/{name} is on no floor")
            for name, floor in at.items():
                for other in re.findall(r'^#include "([^"]+)"', (root / name).read_text(), re.M):
                    if at.get(other.removeprefix(f"{layer}/"), 0) > floor:
                        upward.add(f"{layer}: {name} -> {other}")
        self.assertEqual(sorted(upward), [], "arrows that run up")

    def test_reads(self):
        """Layers above the core include of its rooms what READS says, and a README lists it for src/inspect."""
        core = {str(file.relative_to(ROOT / "src/core")) for file in (ROOT / "src/core").rglob("*.h")} - {"core.h", "core_types.h"}
        for layer, reads in READS.items():
            with self.subTest(layer=layer):
                read = set()
                for file in (ROOT / "src" / layer).rglob("*.[ch]"):
                    beside = {str(other.relative_to(ROOT / "src" / layer)) for other in (ROOT / "src" / layer).rglob("*.h")}
                    read |= set(re.findall(r'^#include "(?:core/)?([^"]+)"', file.read_text(), re.M)) & core - beside
                self.assertEqual(read, reads)
        page = (ROOT / "src/inspect/README.md").read_text().split("| header |")[1]
        self.assertEqual(set(re.findall(r"`((?:[a-z_]+/)?[a-z_]+\.h)`", page)), READS["inspect"])

    def test_locks(self):
        """The table of docs/design.md has the locks of locks.def, in their order and with what they guard."""
        ranks = re.findall(r'^(CORE|PROCESS)_LOCK\((\w+), "([^"]+)"\)', (ROOT / "src/base/locks.def").read_text(), re.M)
        page = (ROOT / "docs/design.md").read_text().split("\n## Locks\n")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.M)
        field = {"DEVICE": "lock"}
        self.assertEqual(rows, [(field.get(name, name.lower()) if kind == "CORE" else f"SG_LOCK_{name}", guards)
                                for kind, name, guards in ranks])

    def test_public(self):
        for header in sorted((ROOT / "include").rglob("*.h")):
            with self.subTest(header=str(header.relative_to(ROOT))):
                self.compiles_alone(header, [])

    def test_public_in_cxx(self):
        compiler = COMPILER[-1].replace("gcc", "g++").replace("clang", "clang++")
        if subprocess.run([*COMPILER, "-x", "c++", "-fsyntax-only", os.devnull], stderr=subprocess.DEVNULL).returncode:
            self.skipTest(f"no C++ compiler ({compiler})")
        for header in sorted((ROOT / "include").rglob("*.h")):
            with self.subTest(header=str(header.relative_to(ROOT))):
                self.compiles_alone(header, [], "c++")


def split_outside(text, separator):
    """The parts of a text between separators that stand in no brackets."""
    depth, parts = 0, [""]
    for char in text:
        depth += (char in "({[") - (char in ")}]")
        if char == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def struct_widths(text):
    """The fields of each struct with a body: (first line of the struct, number). A struct within it is one field for each name."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    for match in re.finditer(r"\bstruct\b[^;{}()=]*\{", text):
        end, depth = match.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        fields = [field for field in split_outside(text[match.end():end - 1], ";") if field.strip()]
        yield " ".join(match[0].split()), sum(len(split_outside(field, ",")) for field in fields)


class Structs(unittest.TestCase):
    """A struct of many fields has several owners: what one of them guards is a struct of its own."""
    MOST = 20

    def test_width(self):
        for layer in ("core", "preload"):
            for file in sorted((ROOT / "src" / layer).rglob("*.[ch]")):
                for name, fields in struct_widths(file.read_text()):
                    with self.subTest(file=str(file.relative_to(ROOT)), struct=name):
                        self.assertLessEqual(fields, self.MOST)

    def test_fields_are_counted(self):
        text = ("struct a {\n    int b, *c; /* d; e; */\n    void (*f)(int g, int h);\n    struct { int i; } j[2], k;\n};\n"
                "struct a l = {0};\n")
        self.assertEqual(list(struct_widths(text)), [("struct a {", 5), ("struct {", 1)])


class Numbers(unittest.TestCase):
    """The core's tuning numbers stand in tuning.def alone. All other numbers that its code names are sizes of tables and
    parts of formats, listed here; those without a name are 0, 1, 2 and the widths of words."""
    TORCH_AND_CHECKS = re.compile(r"torch_|check")  # PyTorch's rules have PyTorch's numbers
    NOT_TUNED = {
        "SG_DEVICES_MAX": "table", "SG_REGIONS_MAX": "table", "SG_STREAMS_MAX": "table",
        "SG_FENCES": "table", "SG_SLOTS": "bits of a word", "SG_QUICK_OWNERS": "table", "SEGMENTS_ROOM": "table",
        "EXTENTS_MOST": "table", "SG_SIZE_CLASSES": "bits of a size", "EXTENTS_SPARE_OF_CLAIM": "parts",
        "REGION_SHIFT": "record", "ATTEMPTS": "tries", "PIN_REGION_SHIFT": "record", "CONTEXT_SHIFT": "record", "MAPPED_SHIFT": "record",
        "SG_STREAM_UNTRACKED_ORDER": "flag", "SG_STREAM_UNFENCEABLE": "flag", "SG_STREAM_UNUSED": "flag", "SG_UNIT_SHIFT": "block",
        "SG_MAPPINGS_OF_MACHINE": "the driver's", "range[SG_REGIONS_MAX": "table",
        "{.seq = (uint64_t)ordinal": "upper bits", "WHOLE = 100": "percent", "SG_PENDING_PERCENT / 100": "percent",
        "char line[": "text", "char name[": "text", ">> 20)": "MiB"}
    TEXT_AND_GROUPS = ("oom_text.c",)  # what is said
    WIDTHS = {"0", "1", "2", "31", "32", "63", "64"}

    def test_one_table(self):
        table = (ROOT / "src/core/tuning.def").read_text()
        rows = re.findall(r'^TUNING\((\w+), [^"]+, "([^"]+)", "([^"]+)", "([^"]+)"\)$', table, re.MULTILINE)
        self.assertEqual(len(rows), table.count("\nTUNING("))
        for name, _, _, experiment in rows:
            with self.subTest(name=name):
                self.assertIn(f"SG_{name}" if experiment == "tuning" else "",
                              (ROOT / f"docs/experiments/{experiment}.md").read_text())

    def test_no_number_elsewhere(self):
        for file in sorted((ROOT / "src/core").rglob("*.[ch]")):
            if self.TORCH_AND_CHECKS.match(file.name) or file.name in self.TEXT_AND_GROUPS:
                continue
            code = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), file.read_text(), flags=re.DOTALL)
            code = re.sub(r'"(\\.|[^"\\])*"|^#include.*', "", code, flags=re.MULTILINE)
            for number, line in enumerate(code.split("\n"), 1):
                found = set(re.findall(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)", line)) - self.WIDTHS
                if found and not any(name in line for name in self.NOT_TUNED):
                    self.fail(f"{file.name}:{number}: is {', '.join(found)} a tuning number? {line.strip()}")


class Preload(unittest.TestCase):
    """What the compiled objects of src/preload say of it."""

    @staticmethod
    def compiled():
        """Pairs of a source file and its object."""
        root = ROOT / "src/preload"
        for path in sorted(root.rglob("*.c")):
            name = str(path.relative_to(root))
            yield name, pathlib.Path(f"{LIBRARY}.p") / f"{name.replace('/', '_')}.o"

    def test_calls_upward(self):
        """A file refers to nothing of a floor above its own but sg_upward_calls and the answers of the table of hooks."""
        floor_of = {name: next(i for i, floor in enumerate(FLOORS["preload"]) if re.fullmatch(floor, name))
                    for name, _ in self.compiled()}
        home, uses = {}, []
        for name, file in self.compiled():
            for line in output("nm", str(file)).splitlines():
                kind, symbol = line.split()[-2:]
                if kind in "TDBRC":
                    home[symbol] = name
                elif kind == "U":
                    uses.append((name, symbol))
        self.assertIn("sg_enter", home)
        upward = [f"{name} -> {home[symbol]}: {symbol}" for name, symbol in uses
                  if symbol in home and floor_of[home[symbol]] > floor_of[name] and symbol != "sg_upward_calls" and
                  not (name == "process/hook_table.c" and symbol.startswith("cu"))]
        self.assertEqual(upward, [])

    def objects(self):
        """Pairs of name and source file of what the compiled objects have in writable sections."""
        found = set()
        for source, file in self.compiled():
            source = source.rsplit("/", 1)[1]
            text = output("readelf", "-SsW", str(file))
            writable = {index for index, name, flags in re.findall(
                r"^ *\[ *(\d+)\] (\S+) +\S+ +\S+ +\S+ +\S+ +\S+ +([A-Za-z]*)", text, re.M)
                if "W" in flags and not name.startswith(".data.rel.ro")}
            for section, name in re.findall(r"(?:OBJECT|TLS) +\w+ +\w+ +(\d+) (\S+)$", text, re.M):
                if section in writable:
                    # A function's own object is `name.N` by gcc, `function.name` by clang, which may add numbers for parts.
                    found.add(([part for part in name.split(".") if not part.isdigit()][-1], source))
        return found

    @unittest.skipIf("SANITIZED" in os.environ, "a sanitizer adds objects of its own")
    def test_mutable_state(self):
        """src/preload/README.md lists the mutable objects of the layer, and names a guard of each."""
        page = (ROOT / "src/preload/README.md").read_text().split("\n## Mutable state\n")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| `(\w+\.c)` \| ([^|]+) \| [^|]+ \|$", page, re.M)
        listed = [row[:2] for row in rows]
        self.assertEqual(len(set(listed)), len(listed), "an object is listed twice")
        objects = self.objects()
        self.assertEqual(sorted(objects - set(listed)), [], "objects that the table lacks")
        self.assertEqual(sorted(set(listed) - objects), [], "rows without an object")
        locks = set(re.findall(r"^PROCESS_LOCK\((\w+)", (ROOT / "src/base/locks.def").read_text(), re.M))
        for name, file, guard in rows:
            with self.subTest(name=name, file=file):
                self.assertTrue(set(re.findall(r"SG_LOCK_(\w+)", guard)) <= locks)


class Library(unittest.TestCase):
    """libsegalloc.so comes into every program there is: it must not need what a program may lack."""

    @unittest.skipIf("SANITIZED" in os.environ, "a sanitizer's runtime needs more")
    def test_needs_only_libc(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", LIBRARY))
        self.assertTrue(set(needed) <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2",
                                        "ld-linux-aarch64.so.1"}, needed)

    @unittest.skipIf("SANITIZED" in os.environ, "a sanitizer's runtime needs more")
    def test_needs_an_old_glibc(self):
        versions = {tuple(map(int, v.split("."))) for v in
                    re.findall(r"Name: GLIBC_([0-9.]+)", output("readelf", "-VW", LIBRARY))}
        self.assertTrue(versions)
        self.assertLessEqual(max(versions), (2, 17))

    def test_name_and_stack(self):
        dynamic = output("readelf", "-dW", LIBRARY)
        self.assertIn("[libsegalloc.so.0]", dynamic)
        self.assertNotIn("TEXTREL", dynamic)
        self.assertRegex(output("readelf", "-lW", LIBRARY), r"GNU_STACK.* RW ")

    def test_exports(self):
        def names(file, macro, which=1):
            text = re.sub(r"/\*.*?\*/", "", (ROOT / "src/preload" / file).read_text(), flags=re.S)
            return {row[which - 1] for row in re.findall(rf"^{macro}\((\w+),\s*(\w+|\")", text, flags=re.M)}
        expected = names("process/hooks.def", "HOOK") | names("process/external_alloc_hooks.def", "TAKES") | names("process/external_alloc_hooks.def", "GIVES") | names("process/exports.def", "EXPORT")
        expected |= names("process/launch_hooks.def", r"SUBMIT\w*") | names("process/launch_hooks.def", r"SUBMIT\w*", 2)
        self.assertIn("cuMemAlloc_v2", expected)
        symbols = [line.split() for line in output("nm", "-D", "--defined-only", LIBRARY).splitlines()]
        exported = {fields[-1] for fields in symbols}
        # A hook in a version node of its own would not be used by programs linked with the driver's.
        # A build that counts branches has gcov's functions too.
        hooks = {name for name in exported if not name.startswith(("segalloc_", "SEGALLOC_", "__gcov_", "mangle_path"))}
        self.assertEqual(hooks, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
