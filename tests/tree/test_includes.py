"""A file of src names the layer of another layer's header that it includes, and includes none of a layer above its own.

Usage: test_includes.py SOURCE_ROOT [--write]

"base/size.h" says which layer it is of; "size.h" does not. Some layers name their own headers so too (WHOLE).
includes.txt has, for each other layer, how many includes do not name theirs yet. It only shrinks, which --write brings
about."""
import collections
import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True
WRITE = "--write" in sys.argv
ROOT = pathlib.Path([word for word in sys.argv[1:] if word != "--write"][0]).resolve()
del sys.argv[1:]
LIST = pathlib.Path(__file__).resolve().parent / "includes.txt"
WHOLE = {"core", "order", "inspect"}
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.M)


def layers():
    """{layer: what it may include}, by the table of src/README.md."""
    rows = re.findall(r"^\| `(\w+)/` \| [^|]+ \| ([^|]+) \|$", (ROOT / "src/README.md").read_text(), re.M)
    names, below = [name for name, _ in rows], {}
    for i, (name, may) in enumerate(rows):
        allowed = {word for word in re.findall(r"\w+", may) if word in names}
        if may.startswith("all rows before this"):
            allowed = set(names[:i]) - set(re.findall(r"but (\w+)", may))
        if "driver's ABI header" in may:
            allowed.add("driver")
        below[name] = allowed
    return below


def includes(root, below):
    """For each layer the includes that lack the layer, and those of a layer above: pairs of a file and an include."""
    bare, upward = collections.defaultdict(set), set()
    for layer in below:
        for file in sorted((root / "src" / layer).rglob("*.[chd]*")):
            path = file.relative_to(root).as_posix()
            for name in INCLUDE.findall(file.read_text(errors="replace")) if file.suffix in (".c", ".h", ".def") else []:
                if not (root / "src" / name).is_file():
                    own = layer not in WHOLE and any((folder / name).is_file() for folder in (file.parent, root / "src" / layer))
                    if not own and not (root / "include" / name).is_file():
                        bare[layer].add((path, name))
                elif name.split("/")[0] not in {layer, *below[layer]}:
                    upward.add((path, name))
    return bare, upward


def limits():
    return {name: int(most) for name, most in re.findall(r"^(\w+) +(\d+)$", LIST.read_text() if LIST.exists() else "", re.M)}


class Includes(unittest.TestCase):
    def test_layers(self):
        below = layers()
        self.assertEqual(below["core"], {"base", "config", "driver", "order", "pytorch"})
        self.assertEqual(below["preload"], set(below) - {"preload", "replay", "sim", "memory_saver"})
        self.assertEqual(below["sim"], {"base", "driver"})

    def test_upward(self):
        self.assertEqual(sorted(includes(ROOT, layers())[1]), [])

    def test_bare(self):
        bare, most = includes(ROOT, layers())[0], limits()
        for layer, found in sorted(bare.items()):
            with self.subTest(layer=layer):
                self.assertLessEqual(len(found), most.get(layer, 0), f"an include of src/{layer} lacks the layer")


if __name__ == "__main__":
    if WRITE:
        found, old = includes(ROOT, layers())[0], limits()
        LIST.write_text("# The most includes of a layer that lack the name of another, as \"size.h\" in place of \"base/size.h\". These only shrink.\n" +
                        "".join(f"{layer:10} {min(len(names), old.get(layer, len(names))):4}\n" for layer, names in sorted(found.items())))
    unittest.main(verbosity=2)
