"""Stand-ins for the vendor's libraries: written for a wheel that looks like PyTorch's, loaded, and called.

Usage: test_standin.py SEGALLOC USER TORCH CUBLAS NCCL RANKS"""
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, USER, TORCH, CUBLAS, NCCL, RANKS = (os.path.abspath(sys.argv.pop(1)) for _ in range(6))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
GOOD = "sum 0 distinct 1 mode 0 results 1 state 0 nccl 22809 ranks 3"


class Standin(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.site = os.path.join(self.folder, "site")
        self.library = os.path.join(self.site, "torch", "lib", "libtorch_cuda.so")
        os.makedirs(os.path.dirname(self.library))
        shutil.copy(TORCH, self.library)
        self.cache = os.path.join(self.folder, "cache")
        self.environment = {**ENVIRONMENT, "XDG_CACHE_HOME": self.cache}
        self.python(f"echo '{self.site}/torch/__init__.py'")

    def python(self, script):
        path = os.path.join(self.folder, "bin", "python3")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)
        self.environment["PATH"] = os.path.dirname(path) + ":" + os.environ["PATH"]

    def run_it(self, *options):
        return subprocess.run([SEGALLOC, "run", "--sim", "1GiB", *options, "--", "sh", "-c",
                               f"exec '{USER}' '{self.library}'"],
                              env=self.environment, capture_output=True, text=True, timeout=60)

    def folders(self):
        return sorted(os.listdir(os.path.join(self.cache, "segalloc", "stand-ins")))

    def test_called(self):
        for options in ([], ["--no-preload"]):
            result = self.run_it(*options)
            self.assertEqual((result.stdout.strip(), result.stderr, result.returncode), (GOOD, "", 0), options)
        self.assertEqual(len(self.folders()), 1)
        self.assertEqual(sorted(os.listdir(os.path.join(self.cache, "segalloc", "stand-ins", self.folders()[0]))),
                         ["libcublas.so.13", "libnccl.so.2", "versions"])

    @unittest.skipIf("SANITIZER" in os.environ, "Python has no runtime of a sanitizer in it")
    def test_an_environment_that_a_script_activates(self):
        """No PyTorch is found beforehand, or another one: the interpreter that the script starts looks again."""
        with open(os.path.join(self.site, "torch", "__init__.py"), "w"):
            pass
        arguments = ["a b", "'", ""]
        code = f"import os, sys; assert sys.argv[1:] == {arguments!r}, sys.argv; os.execv({USER!r}, [{USER!r}, {self.library!r}])"
        script = os.path.join(self.folder, "train.sh")
        with open(script, "w") as file:
            file.write(f"#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{self.site} exec {sys.executable} -c {shlex.quote(code)} {shlex.join(arguments)}\n")
        os.chmod(script, 0o755)
        other = os.path.join(self.folder, "other")
        shutil.copytree(self.site, other)
        for found in "exit 1", f"echo '{other}/torch/__init__.py'":
            self.python(found)
            for command in ["sh", script], [script], ["env", "sh", "-c", f". {script}"]:
                for options in [], ["--no-preload"], ["--sites"]:
                    with self.subTest(found=found, command=command, options=options):
                        result = subprocess.run([SEGALLOC, "run", "--sim", "1GiB", *options, "--", *command], env=self.environment,
                                                capture_output=True, text=True, timeout=60)
                        self.assertEqual((result.stdout.strip(), result.stderr, result.returncode), (GOOD, "", 0))

    def test_beside_the_vendors_own(self):
        """DT_RPATH beats LD_LIBRARY_PATH: what is installed beside the wheel would be found first."""
        vendor = os.path.join(self.site, "nvidia", "cu13", "lib")
        os.makedirs(vendor)
        shutil.copy(CUBLAS, os.path.join(vendor, "libcublas.so.13"))
        shutil.copy(NCCL, os.path.join(vendor, "libnccl.so.2"))
        native = subprocess.run([USER, self.library], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
        self.assertIn(f"sum {10 * 77} ", native.stdout, native)
        result = self.run_it()
        self.assertEqual((result.stdout.strip(), result.stderr), (GOOD, ""))

    def test_version_of_the_wheel(self):
        """PyTorch compares what it was built for with what it finds."""
        metadata = os.path.join(self.site, "torch-2.99.0.dist-info")
        os.makedirs(metadata)
        for line, version in (("nvidia-nccl-cu13==2.30.7; platform_system == 'Linux'", 23007),
                              ("nvidia-nccl-cu12 (==2.27.5)", 22705), ("nvidia-nccl-cu13>=2.1", 22809)):
            with open(os.path.join(metadata, "METADATA"), "w") as file:
                file.write(f"Metadata-Version: 2.4\nName: torch\nRequires-Dist: filelock\nRequires-Dist: {line}\n\ntext\n")
            shutil.rmtree(self.cache, ignore_errors=True)
            self.assertIn(f" nccl {version} ", self.run_it().stdout, line)

    def test_ranks(self):
        """What one process tells another by small collectives and messages arrives, and the dead are not waited for."""
        shutil.copy(RANKS, self.library)
        for extra in ({}, {"RANKS_DIE": "1"}):
            self.environment.update(extra)
            for options in ([], ["--no-preload"]):
                result = self.run_it(*options)
                self.assertEqual((result.stdout.strip(), result.stderr, result.returncode), ("wrong 0", "", 0),
                                 (options, extra))
        left = [name for name in os.listdir("/dev/shm") if name.startswith(f"segalloc-nccl-{os.geteuid()}-")]
        self.assertEqual(left, [])

    def test_ranks_by_legacy_handles(self):
        """NCCL without cuMem, as inference servers set it: memory is served, and such as a legacy handle can give away."""
        shutil.copy(RANKS, self.library)
        for cumem, shared in (("0", True), ("1", False)):
            self.environment["NCCL_CUMEM_ENABLE"] = cumem
            trace = os.path.join(self.folder, cumem)
            os.mkdir(trace)
            result = self.run_it("--conf", f"trace:{trace}/%p")
            self.assertEqual((result.stdout.strip(), result.stderr, result.returncode), ("wrong 0", "", 0), cumem)
            ranks = [json.loads(subprocess.run([SEGALLOC, "trace", "info", "--json", os.path.join(trace, name)],
                                               capture_output=True, check=True, timeout=60).stdout)["kinds"]
                     for name in os.listdir(trace)]
            self.assertGreater(len(ranks), 1)
            for kinds in ranks:
                self.assertEqual((kinds["allocate"], "passed_on" in kinds, "fixed" in kinds), (1, False, shared))

    def test_written_once(self):
        self.run_it()
        before = self.folders()
        path = os.path.join(self.cache, "segalloc", "stand-ins", before[0], "libcublas.so.13")
        time = os.stat(path).st_mtime_ns
        self.run_it()
        self.assertEqual((self.folders(), os.stat(path).st_mtime_ns), (before, time))
        os.utime(self.library, ns=(1, 1))  # another wheel
        self.run_it()
        self.assertEqual(len(self.folders()), 2)

    def test_damaged_files_beside(self):
        with open(TORCH, "rb") as file:
            whole = file.read()
        for i, size in enumerate((0, 3, 64, 100, 500, 1000, 2000, len(whole) // 2, len(whole) - 1)):
            with open(os.path.join(self.site, f"cut{i}.so"), "wb") as file:
                file.write(whole[:size])
        for step in (7, 61, 509):  # bytes changed here and there, the ELF header kept
            with open(os.path.join(self.site, f"noise{step}.so"), "wb") as file:
                file.write(whole[:64] + bytes(b ^ (255 if i % step == 0 else 0) for i, b in enumerate(whole[64:])))
        result = self.run_it()
        self.assertEqual((result.stdout.strip(), result.stderr), (GOOD, ""))

    def test_no_torch(self):
        for script in ("echo", "exit 1", "echo /nonexistent/torch/__init__.py", "echo torch"):
            self.python(script)
            result = subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--", "sh", "-c", "echo here"],
                                    env=self.environment, capture_output=True, text=True, timeout=60)
            self.assertEqual((result.stdout, result.stderr), ("here\n", ""), script)
        self.assertFalse(os.path.exists(self.cache))

    def test_cache_elsewhere(self):
        with open(self.cache, "w"):
            pass  # in the way
        self.environment["TMPDIR"] = self.folder
        result = self.run_it()
        self.assertEqual((result.stdout.strip(), result.stderr), (GOOD, ""))


unittest.main()
