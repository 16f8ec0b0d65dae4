"""What a release has to agree on: the version wherever it stands, and the bill of materials, which is the same for the same files.

Usage: test_release.py ROOT"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()


class Release(unittest.TestCase):
    def test_version(self):
        of = {name: re.search(pattern, (ROOT / name).read_text(), re.M) for name, pattern in {
            "meson.build": r"^  version: '(.*)',$", "packaging/rpm/segalloc.spec": r"^Version: +(\S+)$",
            "packaging/conda/recipe.yaml": r"^  version: ([0-9.]+)$", "packaging/debian/changelog": r"^segalloc \(([0-9.]+)"}.items()}
        self.assertEqual(len({match and match[1] for match in of.values()}), 1, of)

    def test_third_party(self):
        """What is compiled in is in the bill, by its version."""
        bill = (ROOT / "packaging" / "sbom.py").read_text()
        uthash = re.search(r"UTHASH_VERSION (\S+)", (ROOT / "third_party" / "uthash" / "uthash.h").read_text())[1]
        uplot = re.search(r"^# uPlot (\S+)", (ROOT / "third_party" / "uplot" / "README.md").read_text())[1]
        self.assertEqual(dict(re.findall(r'\("(\w+)", "([0-9.]+)", "[^"]+"\)', bill)), {"uthash": uthash, "uplot": uplot})
        self.assertEqual({path.name for path in (ROOT / "third_party").iterdir()}, {"uthash", "uplot"})

    def make(self, folder, late=b""):
        folder = pathlib.Path(folder)
        with zipfile.ZipFile(folder / "segalloc-0.1.0-py3-none-manylinux_2_34_x86_64.whl", "w") as wheel:
            for name, content in ("segalloc/_tree/bin/segalloc", b"x"), ("segalloc.libs/libdw-0-5a0b1c2d.188.so", b"dw"), ("segalloc.libs/libzstd-76b78bac.so.1.5.4", b"z" + late):
                wheel.writestr(zipfile.ZipInfo(name), content)
        (folder / "libsegalloc0_0.1.0_amd64.deb").write_bytes(b"deb")
        (folder / "notes.txt").write_text("not a package")
        subprocess.run([sys.executable, ROOT / "packaging" / "sbom.py", folder], check=True, capture_output=True, timeout=60,
                       env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
        version = re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(), re.M)[1]
        return (folder / f"segalloc-{version}.cdx.json").read_bytes(), (folder / "SHA256SUMS").read_text()

    def test_bill(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two, tempfile.TemporaryDirectory() as other:
            made, sums = self.make(one)
            self.assertEqual((made, sums), self.make(two))
            self.assertNotEqual(made, self.make(other, b"!")[0])
            bill = json.loads(made)
            self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
            self.assertEqual(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z")
            rows = {row["name"]: row for row in bill["components"]}
            self.assertEqual(set(rows), {"segalloc-0.1.0-py3-none-manylinux_2_34_x86_64.whl", "libsegalloc0_0.1.0_amd64.deb", "uthash", "uplot"})
            inner = {row["name"]: row for row in rows["segalloc-0.1.0-py3-none-manylinux_2_34_x86_64.whl"]["components"]}
            self.assertEqual({name: row["hashes"][0]["content"] for name, row in inner.items()},
                             {"libdw": hashlib.sha256(b"dw").hexdigest(), "libzstd": hashlib.sha256(b"z").hexdigest()})
            self.assertEqual((inner["libdw"]["version"], inner["libzstd"]["version"]), ("0.188", "1.5.4"))
            references = [row["bom-ref"] for row in [*rows.values(), *inner.values()]]
            self.assertEqual(len(set(references)), len(references))
            self.assertEqual(subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=one, timeout=60).returncode, 0)
            self.assertEqual(sums.count("\n"), 3)

    def test_nothing_there(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, ROOT / "packaging" / "sbom.py", folder], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertIn("no package in", done.stderr)

    def test_site(self):
        """Each page of docs is in the site's contents."""
        listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
        self.assertEqual({name for name in listed if not (ROOT / name).is_file()}, set())
        self.assertEqual({f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - listed, set())


if __name__ == "__main__":
    unittest.main(verbosity=2)
