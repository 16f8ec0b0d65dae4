"""Programs with a deadline. Each is the leader of a process group of its own, and ends together with all that it started:
a process that is left behind would hold memory of the GPU, and falsify whatever runs after it."""
import os
import secrets
import select
import signal
import subprocess
import threading
import time
from typing import NamedTuple

MARK = "GPU_TEST_PROCESS"  # in the environment: children of children have it too, whatever session they begin
REAP_SECONDS = 5
POLL_SECONDS = 0.1  # between two looks whether a process that is silent has ended


class Slow(Exception):
    """A program that gave no answer in its time, which is over. `given`: seconds that it had; `output`: what it wrote."""

    def __init__(self, what, given, output=""):
        super().__init__(f"{what} gave no answer within {given:.0f} s")
        self.given, self.output = given, output


class Done(NamedTuple):
    """A program that has ended."""
    returncode: int
    stdout: str
    stderr: str
    seconds: float


def written(process, seconds, what):
    """Pieces of what a process writes to its stdout, as bytes, until it has ended; Slow where that takes longer. A process
    that it started and that cannot be killed may keep the pipe open for hours: after the end only what has been written
    already is read."""
    until = time.monotonic() + seconds
    while True:
        ended = process.poll() is not None  # asked before the pipe, in which its last words are by then
        left = until - time.monotonic()
        if left <= 0:
            raise Slow(what, seconds)
        if select.select([process.stdout], [], [], 0 if ended else min(left, POLL_SECONDS))[0]:
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if piece:
                yield piece
                continue
            if not ended:  # the pipe is closed, and it goes on
                time.sleep(min(left, POLL_SECONDS))
        if ended:
            return


def lines_of(pieces):
    """The lines that pieces of bytes come to, the last of which need not have an end."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def _marked(mark):
    """Processes with this mark in their environment, or one that goes on after it where it ends with a hyphen. Others'
    environments can't be read, and are not ours."""
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and int(entry) != os.getpid():
                with open(f"/proc/{entry}/environ", "rb") as file:
                    words = file.read().split(b"\0")
                if any(word == wanted or mark.endswith("-") and word.startswith(wanted) for word in words):
                    yield int(entry)
        except OSError:
            pass


class Processes:
    """All that one run of tests/gpu/run has started, by any number of threads."""

    def __init__(self):
        self._name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._live = {}  # Popen: its mark
        self._count = 0
        self._over = False
        self._lock = threading.RLock()  # a signal may come while it is held

    def start(self, argv, environment, **more):
        """A Popen, for end() to end."""
        with self._lock:
            if self._over:
                raise Slow(str(argv[0]), 0)
            self._count += 1
            mark = f"{self._name}-{self._count}"
            process = subprocess.Popen([str(word) for word in argv], env={**environment, MARK: mark},
                                       start_new_session=True, **more)
            self._live[process] = mark
        return process

    def end(self, process):
        """Ends it if it is alive, and whatever it has left behind. False where one does not go, stuck in the driver."""
        with self._lock:
            mark = self._live.pop(process, None)
        if mark is None:
            return True
        until = time.monotonic() + REAP_SECONDS
        left = [process.pid]
        while left and time.monotonic() < until:
            if process.poll() is None:  # its number is its own until it is waited for
                self._kill(os.killpg, process.pid)
            for pid in _marked(mark):
                self._kill(os.kill, pid)
            left = [pid for pid in _marked(mark)] + ([process.pid] if process.poll() is None else [])
            if left:
                time.sleep(0.02)
        return not left

    @staticmethod
    def _kill(how, pid):
        try:
            how(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def end_all(self):
        """Ends all, and lets none begin any more."""
        with self._lock:
            self._over = True
            live = list(self._live)
        for process in live:
            self.end(process)
        until = time.monotonic() + REAP_SECONDS
        while time.monotonic() < until and (left := list(_marked(f"{self._name}-"))):  # a signal may come amid start()
            for pid in left:
                self._kill(os.kill, pid)

    def run(self, argv, environment, seconds, **more):
        """A program to its end, as Done; Slow where it takes longer."""
        begun = time.monotonic()
        process = self.start(argv, environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=more.pop("stderr", subprocess.PIPE), text=True, errors="replace", **more)
        slow = False
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            slow = True
        finally:
            self.end(process)
        if slow:
            try:
                out, err = process.communicate(timeout=REAP_SECONDS)
            except subprocess.TimeoutExpired:  # the pipe is held by one that does not go
                out, err = "", ""
            raise Slow(os.path.basename(str(argv[0])), seconds, (out or "") + (err or ""))
        return Done(process.returncode, out or "", err or "", time.monotonic() - begun)
