"""What .ci/packages says and does on systems that it knows and on others. The system's programs are stand-ins in a folder that is
all of PATH.

Usage: test_packages.py SOURCE_ROOT"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
USED = ("sh", "sed", "tr", "grep", "sort", "head", "tail", "mktemp", "rm", "flock", "id", "dirname", "env", "mkdir", "rmdir", "sleep", "cat")
SUDO = '#!/bin/sh\nexec "$@"\n'
NONE_INSTALLED = "#!/bin/sh\nexit 1\n"
ALL_INSTALLED = "#!/bin/sh\nprintf 'install ok installed'\n"
MESON = "#!/bin/sh\necho {}\n"
# Two at once would meet in the folder.
APT = '#!/bin/sh\nmkdir "$BUSY" || { echo "Could not get lock"; exit 100; }\nsleep 0.2\nrmdir "$BUSY"\necho "$@" >>"$BUSY.log"\n'
APT_WITHOUT = '#!/bin/sh\nfor word; do [ "$word" != install ] || { echo "E: Unable to locate package uthash-dev"; exit 100; }; done\n'
SYSTEMS = {
    "ubuntu": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nID=ubuntu\nID_LIKE=debian\n',
    "rocky": 'PRETTY_NAME="Rocky Linux 8.10"\nID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "arch": 'PRETTY_NAME="Arch Linux"\nID=arch\n',
}


class Packages(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = self.folder / "bin"
        self.path.mkdir()
        for name in USED:
            (self.path / name).symlink_to(shutil.which(name))

    def start(self, system, **programs):
        programs = {"cc": SUDO, "ninja": SUDO, "pkg_config": SUDO, "python3": SUDO, "sudo": SUDO, "meson": MESON.format("1.0.1"), **programs}
        for name, text in programs.items():
            if text:
                (self.path / name.replace("_", "-")).write_text(text)
                (self.path / name.replace("_", "-")).chmod(0o755)
        (self.folder / "os-release").write_text(SYSTEMS[system])
        environment = {"PATH": str(self.path), "OS_RELEASE": str(self.folder / "os-release"), "BUSY": str(self.folder / "busy")}
        return subprocess.Popen([ROOT / ".ci/packages"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def says(self, system, status, **programs):
        process = self.start(system, **programs)
        said = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, status, said)
        return said

    def test_unknown_system(self):
        said = self.says("arch", 0)
        self.assertIn("Arch Linux has no dpkg. These packages' counterparts are needed: gcc g++", said)
        self.assertNotIn("dnf", said)
        (self.path / "ninja").unlink()
        self.assertIn("The build can't begin without: ninja\n", self.says("arch", 1, ninja=None))

    def test_red_hat(self):
        said = self.says("rocky", 0)
        self.assertIn("Rocky Linux 8.10 has no dpkg", said)
        self.assertIn("dnf builddep packaging/rpm/segalloc.spec", said)
        self.assertTrue((ROOT / "packaging/rpm/segalloc.spec").exists())

    def test_old_meson(self):
        """Ubuntu 22.04 has 0.61.2."""
        said = self.says("ubuntu", 1, dpkg_query=ALL_INSTALLED, meson=MESON.format("0.61.2"))
        self.assertRegex(said, r"^meson 0\.61\.2 is too old: the build needs [0-9.]+\. PyPI has it")
        self.assertEqual(self.says("ubuntu", 0, dpkg_query=ALL_INSTALLED, meson=MESON.format("1.10.0")), "")

    def test_not_in_the_archive(self):
        said = self.says("ubuntu", 1, dpkg_query=NONE_INSTALLED, apt_get=APT_WITHOUT)
        self.assertIn("apt-get could not install them on Ubuntu 22.04.5 LTS\nUbuntu has them in universe", said)

    def test_several_at_once(self):
        processes = [self.start("ubuntu", dpkg_query=NONE_INSTALLED, apt_get=APT) for _ in range(4)]
        for process in processes:
            said = process.communicate(timeout=120)[0]
            self.assertEqual(process.returncode, 0, said)
            self.assertIn("Installing: gcc g++", said)
        self.assertEqual(len((self.folder / "busy.log").read_text().splitlines()), 8)


if __name__ == "__main__":
    unittest.main()
