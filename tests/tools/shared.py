"""What several tests of the tools do alike."""
import itertools
import os
import pathlib
import subprocess
import sys
import unittest


def _has_terminals():
    try:
        for file in os.openpty():
            os.close(file)
    except OSError:
        return False
    return True


# For tests that make a terminal: where there can be none, as in a root without /dev/pts, they are skipped and say so.
needs_terminal = unittest.skipUnless(_has_terminals(), "no terminal can be made here: not tried (is /dev/pts mounted?)")


def sampled(cases, step):
    """The cases of a table; in a build with a sanitizer each step-th. What is answered is the other build's to judge: this one
    looks at how the code uses memory, and rows of one table take the same ways. A step without a common divisor with the
    table's dimensions still meets each of their values."""
    return list(cases)[::step] if "SANITIZER" in os.environ else list(cases)


def of_answers(case):
    """A case that takes, by other answers, the ways that others of its file take. It is left out with a sanitizer, for the reason above."""
    return unittest.skipIf("SANITIZER" in os.environ, "other cases take the same ways")(case)


def has_gpu():
    """Whether the driver has a device, as the tools ask. The node /dev/nvidiactl says less: NVIDIA's own library makes it when
    it is asked as root, with no GPU in the machine."""
    ask = ("import ctypes; d = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int(0); "
           "print(n.value if d.cuInit(0) == 0 and d.cuDeviceGetCount(ctypes.byref(n)) == 0 and n.value else 0)")
    clean = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "LD_PRELOAD", "SEGALLOC_SIM")}
    try:
        asked = subprocess.run([sys.executable, "-c", ask], env=clean, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return False
    return asked.stdout.strip() not in ("", "0")


def start(case, segalloc, program, *acts, environment, sim="1GiB"):
    """acts.c under segalloc with live statistics, that waits once it has done `acts`; ended with the test `case`."""
    process = subprocess.Popen([segalloc, "run", "--sim", sim, "--conf", "live:True", "--", program, *acts, "say=there", "wait"],
                               env=environment, stdout=subprocess.PIPE, text=True)
    case.addCleanup(lambda: pathlib.Path(f"/dev/shm/segalloc-live-{process.pid}").unlink(missing_ok=True))
    case.addCleanup(process.stdout.close)
    case.addCleanup(process.wait, 60)
    case.addCleanup(process.kill)
    case.assertEqual(process.stdout.readline(), "there\n")
    return process


def beginning(segalloc, trace, path, rows=40000):
    """Writes the first rows of a long trace to `path`, as CSV, and returns it."""
    whole = subprocess.Popen([segalloc, "trace", "cat", trace], stdout=subprocess.PIPE, text=True)
    path.write_text("".join(itertools.islice(whole.stdout, rows + 1)))
    whole.stdout.close()
    whole.wait(60)
    return path


class LeftPage:
    """The live page that a killed process leaves. Each process of the library that starts anywhere on the machine removes the
    pages of the dead, those of tests beside this one too: a second name keeps the page, and puts it back until it was looked at."""

    def __init__(self, case, pid):
        """While the process lives."""
        self.path = pathlib.Path(f"/dev/shm/segalloc-live-{pid}")
        self.kept = pathlib.Path(f"/dev/shm/segalloc-test-left-{pid}")
        os.link(self.path, self.kept)
        case.addCleanup(self.path.unlink, missing_ok=True)
        case.addCleanup(self.kept.unlink)

    def put_as(self, path):
        """The page under the name `path`, for as long as nobody removes it."""
        try:
            os.link(self.kept, path)
        except FileExistsError:
            pass

    def seen(self, look):
        """The answer of look(), throughout which the page was there."""
        for _ in range(100):
            self.put_as(self.path)
            said = look()
            if self.path.exists():
                return said
        raise AssertionError(f"{self.path} was removed each time")
