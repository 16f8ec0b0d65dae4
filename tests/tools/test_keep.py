"""What a rehearsal leaves as it was: files that were there, and what loggers and hubs have.

Usage: test_keep.py SEGALLOC LOOP"""
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

SEGALLOC, LOOP = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_", "WANDB_", "MLFLOW_", "HF_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
BIG = 17 << 20  # is moved where it is truncated, not copied
# Every way to lose a file. What is new stays, and may be lost by the program itself.
WRITES = """
import ctypes, os, shutil
open("small", "w").write("new")
for _ in range(2):
    with open("big", "wb") as file:
        file.write(bytes(1 << 20))
open("log", "a").write("more")
open("tmp", "w").write("x")
os.replace("tmp", "model")
os.rename("last", "prev")
open("last", "w").write("z")
os.rename("last", "prev")
shutil.rmtree("ckpt-1")
os.rename("ckpt-2", "ckpt-old")
os.remove("ckpt-old/a")
os.truncate("cut", 1)
fd = os.open("both", os.O_RDWR)
os.write(fd, b"QQ")
os.symlink("linked", "link")
open("link", "w").write("through a link")
os.unlink("link")
# by the kernel's own calls, as libraries in Rust make them
libc = ctypes.CDLL(None)
open("tmp2", "w").write("raw")
numbers = {"x86_64": (264, 263), "aarch64": (38, 35)}[os.uname().machine]
assert libc.syscall(numbers[0], -100, b"tmp2", -100, b"replaced") == 0
folder = os.open(".", os.O_RDONLY)
assert libc.syscall(numbers[1], folder, b"removed", 0) == 0
open("new", "w").write("new")
open("new", "w").write("newer")
"""
OLD = ("small", "log", "model", "last", "prev", "cut", "both", "linked", "replaced", "removed", "ckpt-1/a", "ckpt-1/b/c", "ckpt-2/a")


def contents(folder):
    return {str(path.relative_to(folder)): (path.stat().st_mode, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(folder.rglob("*")) if path.is_file()}


class Keep(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder, self.temporary = pathlib.Path(made.name, "work"), pathlib.Path(made.name, "tmp")
        self.temporary.mkdir()
        for name in OLD:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"good {name}")
        (self.folder / "big").write_bytes(os.urandom(BIG))
        (self.folder / "model").chmod(0o640)
        (self.folder / "write.py").write_text(WRITES)
        self.before = contents(self.folder)
        time.sleep(0.05)  # a tick of the kernel's clock

    def rehearse(self, *arguments, temporary=None, **more):
        done = subprocess.run([SEGALLOC, "rehearse", *arguments], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={**ENVIRONMENT, "TMPDIR": str(temporary or self.temporary), **more})
        if "this system can't keep it" in done.stderr:
            self.skipTest("seccomp's notifications are not to be had here")
        return done

    def write(self, *options, **more):
        return self.rehearse(*options, "--", "sh", "-c", f"python3 write.py && '{LOOP}' 20 return", **more)

    def test_files_are_as_they_were(self):
        elsewhere = [None]
        if os.path.isdir("/dev/shm") and os.stat("/dev/shm").st_dev != os.stat(self.folder).st_dev:
            other = tempfile.TemporaryDirectory(dir="/dev/shm")  # another file system
            self.addCleanup(other.cleanup)
            elsewhere.append(other.name)
        for temporary in elsewhere:
            done = self.write(temporary=temporary)
            self.assertEqual(done.returncode, 0, done)
            after = contents(self.folder)
            self.assertEqual({name: after.get(name) for name in self.before}, self.before)
            self.assertEqual(set(after) - set(self.before), {"new"})
            self.assertEqual((self.folder / "new").read_text(), "newer")
            lines = done.stderr.splitlines()
            self.assertIn("files that are there will be as they were", lines[0])
            self.assertIn("as they were before: 14 files", lines[-1])
            self.assertEqual(list(pathlib.Path(temporary or self.temporary).iterdir()), [])
            self.assertEqual([p.name for p in self.folder.parent.iterdir() if p.name.startswith(".")], [])
            (self.folder / "new").unlink()

    def test_overwrite(self):
        done = self.write("--overwrite")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual((self.folder / "small").read_text(), "new")
        self.assertFalse((self.folder / "ckpt-1").exists())
        self.assertIn("--overwrite lets it write over", done.stderr)
        self.assertNotIn("as they were before", done.stderr)

    def test_killed(self):
        """The next rehearsal puts back what a killed one could not."""
        (self.folder / "wait.py").write_text("import time\nopen('big', 'w').write('bad')\nprint('there', flush=True)\ntime.sleep(60)\n")
        self.before = contents(self.folder)
        time.sleep(0.05)
        process = subprocess.Popen([SEGALLOC, "rehearse", "--", "python3", "wait.py"], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                   env={**ENVIRONMENT, "TMPDIR": str(self.temporary)})
        said = process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        if not list(self.temporary.glob("*/kept-*")):
            self.skipTest("seccomp's notifications are not to be had here")
        self.assertEqual(said, "there\n")
        self.assertNotEqual(contents(self.folder), self.before)
        done = self.rehearse("--", LOOP, "20", "return")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("a rehearsal was killed before it could put files back", done.stderr)
        self.assertEqual(contents(self.folder), self.before)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_new_files_only(self):
        done = self.rehearse("--json", "--", "sh", "-c", f"echo a > b; echo c > b; mv b d; rm d; '{LOOP}' 20 return")
        self.assertEqual(len(done.stderr.splitlines()), 1, done)
        self.assertEqual(json.loads(done.stdout)["outcome"], "completed")


HUB = """
class RepoUrl(str):
    pass
class HfApi:
    def create_repo(self, repo_id): raise SystemExit("asked the hub")
    def upload_folder(self, *, repo_id, folder_path, run_as_future=False): raise SystemExit("asked the hub")
    def model_info(self, repo_id): return "asked the hub"
api = HfApi()
create_repo = api.create_repo
upload_folder = api.upload_folder
"""
SENDS = """
import os, subprocess, sys
import huggingface_hub.hf_api as hub
print(hub.create_repo("a/b"), hub.HfApi().upload_folder(repo_id="a/b", folder_path=".", run_as_future=True).result(), hub.api.model_info("a/b"))
import mlflow.tracking._tracking_service.utils as tracking
tracking.set_tracking_uri("https://example.org")
print(os.environ["WANDB_MODE"], os.environ["MLFLOW_TRACKING_URI"])
subprocess.run([sys.argv[1], "20", "return"], check=True)
"""
MLFLOW = "def set_tracking_uri(uri):\n    raise SystemExit('asked the server')\n"


@unittest.skipIf("SANITIZER" in os.environ, "Python has no runtime of a sanitizer in it")
class Trackers(unittest.TestCase):
    def test_nothing_is_sent(self):
        """Unless it is asked for, or this is no rehearsal."""
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            for name, text in (("huggingface_hub/hf_api.py", HUB), ("mlflow/tracking/_tracking_service/utils.py", MLFLOW),
                               ("send.py", textwrap.dedent(SENDS))):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            for options, sent in (((), False), (("--no-torch",), False), (("--trackers",), True)):
                done = subprocess.run([SEGALLOC, "rehearse", *options, "--", sys.executable, folder / "send.py", LOOP], text=True,
                                      capture_output=True, timeout=60,
                                      env={**ENVIRONMENT, "WANDB_MODE": "online", "PYTHONPATH": made, "PYTHONDONTWRITEBYTECODE": "1"})
                if sent:
                    self.assertIn("asked the hub", done.stderr)
                    continue
                lines = done.stdout.splitlines()
                self.assertEqual((done.returncode, lines[0]), (0, "https://huggingface.co/a/b None asked the hub"), done)
                self.assertRegex(lines[1], "^disabled file:///.*")
                self.assertIn("loggers are off", done.stderr)
                self.assertIn("nothing is sent to the hub", done.stderr)
                self.assertIn("nothing is sent to MLflow's server", done.stderr)


if __name__ == "__main__":
    unittest.main()
