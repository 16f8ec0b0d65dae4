"""Writes what a release consists of: sbom.py FOLDER. For the packages in FOLDER (wheels, .deb, .rpm, tarballs) it makes

    SHA256SUMS                     for `sha256sum -c`
    segalloc-VERSION.cdx.json      a bill of materials, CycloneDX 1.5: each package with its hash, the libraries that a wheel has with it,
                                   and what is compiled in

Both depend on the files alone and on SOURCE_DATE_EPOCH, so they are the same wherever the packages are."""
import hashlib
import json
import os
import pathlib
import re
import sys
import time
import uuid
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
KINDS = (".whl", ".deb", ".rpm", ".tar.gz", ".conda")
# https://spdx.org/licenses: of what is compiled in or lies in a wheel. By the beginning of the file's name.
COMPILED_IN = [("uthash", "2.3.0", "BSD-1-Clause"), ("uplot", "1.6.32", "MIT")]  # as third_party has them
BESIDE = {"libjansson": "MIT", "libzstd": "BSD-3-Clause", "libdw": "GPL-2.0-or-later OR LGPL-3.0-or-later", "libelf": "GPL-2.0-or-later OR LGPL-3.0-or-later",
          "libmicrohttpd": "LGPL-2.1-or-later", "libncursesw": "X11", "libtinfo": "X11", "libgnutls": "LGPL-2.1-or-later", "libp11-kit": "BSD-3-Clause",
          "libidn2": "GPL-2.0-or-later OR LGPL-3.0-or-later", "libunistring": "GPL-2.0-or-later OR LGPL-3.0-or-later", "libtasn1": "LGPL-2.1-or-later",
          "libnettle": "GPL-2.0-or-later OR LGPL-3.0-or-later", "libhogweed": "GPL-2.0-or-later OR LGPL-3.0-or-later",
          "libgmp": "GPL-2.0-or-later OR LGPL-3.0-or-later", "libffi": "MIT", "libz": "Zlib", "liblzma": "0BSD", "libbz2": "bzip2-1.0.6"}


def version():
    return re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(), re.M)[1]


def sha256(content):
    return [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]


def licence(text):
    return [{"expression": text}] if " " in text else [{"license": {"id": text}}]


def beside(path):
    """The libraries of others that a wheel has with it. auditwheel puts a hash before the first dot of a file's name.
    Examples: libzstd.so.1.5.4 becomes libzstd-76b78bac.so.1.5.4, libdw-0.188.so becomes libdw-0-5a0b1c2d.188.so."""
    if path.suffix != ".whl":
        return
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(wheel.namelist()):
            hashed = re.fullmatch(r"segalloc\.libs/([^/.]+)-[0-9a-f]{8}\.([^/]+)", name)
            match = hashed and re.fullmatch(r"(lib.*?)(?:-([0-9.]+))?\.so(?:\.([0-9.]+))?", f"{hashed[1]}.{hashed[2]}")
            if match:
                row = {"type": "library", "bom-ref": f"{path.name}/{name}", "name": match[1], "hashes": sha256(wheel.read(name))}
                if match[2] or match[3]:
                    row["version"] = match[2] or match[3]
                if match[1] in BESIDE:
                    row["licenses"] = licence(BESIDE[match[1]])
                yield row


def bill(packages):
    rows = []
    for path in packages:
        row = {"type": "file", "bom-ref": path.name, "name": path.name, "version": version(), "hashes": sha256(path.read_bytes()), "licenses": licence("MIT")}
        parts = list(beside(path))
        if parts:
            row["components"] = parts
        rows.append(row)
    rows += [{"type": "library", "bom-ref": f"third_party/{name}", "name": name, "version": number, "licenses": licence(text)}
             for name, number, text in COMPILED_IN]
    names = json.dumps(rows, sort_keys=True)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))))
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, names)}",
            "metadata": {"timestamp": when, "component": {"type": "library", "bom-ref": "segalloc", "name": "segalloc", "version": version(),
                                                         "licenses": licence("MIT")}},
            "components": rows, "dependencies": [{"ref": "segalloc", "dependsOn": sorted(row["bom-ref"] for row in rows)}]}


def main(folder):
    packages = sorted(path for path in folder.iterdir() if path.name.endswith(KINDS))
    if not packages:
        sys.exit(f"sbom.py: no package in {folder}: packaging/build makes them")
    made = folder / f"segalloc-{version()}.cdx.json"
    made.write_text(json.dumps(bill(packages), indent=1) + "\n")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in [*packages, made]]
    (folder / "SHA256SUMS").write_text("".join(sums))
    print(made)
    print(folder / "SHA256SUMS")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
