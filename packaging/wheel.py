"""Makes a wheel of an installed tree: wheel.py PREFIX FOLDER PLATFORM. The package is the one of PREFIX/lib/segalloc/python, the tree
lies in it as _tree, where `python -m segalloc` finds the tools."""
import base64
import hashlib
import os
import pathlib
import re
import stat
import sys
import time
import zipfile

PREFIX, FOLDER, PLATFORM = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
ROOT = pathlib.Path(__file__).resolve().parents[1]
VERSION = next(line.split("'")[1] for line in (ROOT / "meson.build").read_text().splitlines() if line.strip().startswith("version:"))
TAG = f"py3-none-{PLATFORM}"
INFO = f"segalloc-{VERSION}.dist-info"
WHEN = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
LEFT_OUT = ("include", "lib/pkgconfig")  # what nothing is built with
LINKS = re.compile(r"lib/libsegalloc\.so(\.0\..*)?|.*/lib(cuda|nvidia-ml)\.so")  # a wheel has no links: the file has its SONAME only

METADATA = f"""Metadata-Version: 2.1
Name: segalloc
Version: {VERSION}
Summary: a caching CUDA allocator for any program, with tools that say where device memory goes
License: MIT
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{(ROOT / "README.md").read_text()}"""
# vLLM finds its sleep-mode backend of ours by it.
ENTRY_POINTS = (ROOT / "tools/python/segalloc.dist-info/entry_points.txt").read_text()
WHEEL = f"Wheel-Version: 1.0\nGenerator: segalloc\nRoot-Is-Purelib: false\nTag: {TAG}\n"
# Not Python's, which takes a tenth of a second to start: pip puts it beside the environment's interpreter.
SCRIPT = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
for tree in "$here"/../lib*/python3*/site-packages/segalloc/_tree "$here"/../lib*/python3*/dist-packages/segalloc/_tree; do
    [ -x "$tree/bin/segalloc" ] && exec "$tree/bin/segalloc" "$@"
done
exec python3 -m segalloc "$@"
"""


def files():
    """(name in the wheel, content, executable)"""
    package = PREFIX / "lib" / "segalloc" / "python" / "segalloc"
    for path in sorted([*package.rglob("*.py"), package / "py.typed"]):
        yield f"segalloc/{path.relative_to(package).as_posix()}", path.read_bytes(), False
    for path in sorted(PREFIX.rglob("*")):
        name = path.relative_to(PREFIX).as_posix()
        if path.is_file() and not name.startswith(LEFT_OUT) and not LINKS.fullmatch(name):
            yield f"segalloc/_tree/{name}", path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR)
    yield f"segalloc-{VERSION}.data/scripts/segalloc", SCRIPT.encode(), True
    yield f"{INFO}/LICENSE", (ROOT / "LICENSE").read_bytes(), False
    for name, text in ("METADATA", METADATA), ("WHEEL", WHEEL), ("top_level.txt", "segalloc\n"), ("entry_points.txt", ENTRY_POINTS):
        yield f"{INFO}/{name}", text.encode(), False


FOLDER.mkdir(parents=True, exist_ok=True)
record = ""
with zipfile.ZipFile(FOLDER / f"segalloc-{VERSION}-{TAG}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
    def put(name, content, executable=False):
        entry = zipfile.ZipInfo(name, WHEN)
        entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
        wheel.writestr(entry, content, zipfile.ZIP_DEFLATED)
    for name, content, executable in files():
        put(name, content, executable)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    put(f"{INFO}/RECORD", record + f"{INFO}/RECORD,,\n")
