#!/usr/bin/env python3
"""`segalloc run --check=fail` ends with 4 after a finding in any process, however that ends; and else exactly as the command does.
What check has to say goes to standard error alone, and a program ends where its work does not, or where a disk is full.

    ends.py SEGALLOC ENDS"""
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SEGALLOC, ENDS = (os.path.abspath(path) for path in sys.argv[1:3])
SIM = "1GiB,depth=100000"
OWN = ("SEGALLOC_", "LD_PRELOAD")
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(OWN)}
# How a process may end, and its status without a finding (negative: the signal).
WAYS = {"return": 0, "exit": 0, "exit7": 7, "_exit": 0, "quick_exit": 0, "thread": 0, "exec": 0, "child": 0, "bare": 0, "abort": -signal.SIGABRT,
        "kill": -signal.SIGKILL, "term": -signal.SIGTERM, "segv": -signal.SIGSEGV}
ALONE = {"return": 4, "exit": 4, "exit7": 4, "thread": 4, "bare": 4}  # those that say it by themselves


def run(*command, check="fail", options=(), environment=None, sim=SIM, **more):
    words = [SEGALLOC, "run", "-q", "--sim", sim, *([f"--check={check}"] if check else []), *options, "--", *command]
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 100, **more}
    return subprocess.run(words, env=ENVIRONMENT | (environment or {}), **more)


def left_over():
    return sorted(name for name in os.listdir("/dev/shm") if name.startswith("segalloc-findings-"))


class Ends(unittest.TestCase):
    maxDiff = None

    def test_each_way(self):
        for how, status in WAYS.items():
            with self.subTest(how=how):
                none = run(ENDS, "none", how)
                self.assertEqual(none.returncode, status, none.stderr)
                self.assertNotIn("segalloc run: ", none.stderr)
                for mistake in ("twice", "late"):
                    done = run(ENDS, mistake, how)
                    self.assertEqual(done.returncode, 4, done.stderr)
                    # The command's own status is told where it is another one.
                    own = "ended with 0" if status == 0 else f"ended by signal {-status} "
                    self.assertEqual("segalloc run: status 4 for 1 finding of check in 1 process; CMD " in done.stderr, how not in ALONE,
                                     done.stderr)
                    if how not in ALONE:
                        self.assertIn(own, done.stderr)
                self.assertEqual(run(ENDS, "twice", how, check="on").returncode, status)
                alone = subprocess.run([SEGALLOC, "run", "-q", "--sim", SIM, "--", "env", "SEGALLOC_CONF=check:fail", ENDS, "twice", how],
                                       env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
                self.assertEqual(alone.returncode, ALONE.get(how, status), alone.stderr)

    def test_several_processes(self):
        """A script that passes over each status; one run within another; the option by other ways."""
        script = f"{ENDS} twice _exit; {ENDS} none return; {ENDS} late return; {ENDS} twice kill; exit 5"
        done = run("sh", "-c", script)
        self.assertEqual(done.returncode, 4)
        self.assertIn("segalloc run: status 4 for 3 findings of check in 3 processes; CMD ended with 5\n", done.stderr)
        self.assertEqual(run("sh", "-c", f"{ENDS} none return; exit 5").returncode, 5)
        inner = f"{SEGALLOC} run -q --check=fail -- {ENDS} twice return; {SEGALLOC} run -q --check=on -- {ENDS} twice return; exit 6"
        done = run("sh", "-c", inner)
        self.assertEqual(done.returncode, 4)
        self.assertIn("status 4 for 2 findings of check in 2 processes", done.stderr)
        self.assertEqual(run(ENDS, "twice", "_exit", check=None, options=["--conf", "check:fail"]).returncode, 4)
        self.assertEqual(run(ENDS, "twice", "_exit", check=None, environment={"SEGALLOC_CONF": "check:fail"}).returncode, 4)
        self.assertEqual(run("/no/such/program").returncode, 127)
        self.assertEqual(run("/").returncode, 126)

    def test_nothing_to_check(self):
        """A run without a driver, without a device or without memory of ours is told apart from one in which nothing is wrong."""
        checked = "segalloc run: nothing was checked: no process of CMD allocated memory that segalloc serves; segalloc doctor -- CMD says why\n"
        none = "segalloc run: the driver has no device (cuInit answers 100{}), and without one nothing is checked; --sim 24GiB gives a simulated one\n"
        no_driver = "segalloc run: no CUDA driver (libcuda.so.1) is found here, and without one nothing is checked; --sim 24GiB gives a simulated one\n"
        hidden = {"CUDA_VISIBLE_DEVICES": "7"}
        for check, after in ("on", ""), ("guard+json", ""), ("fail", checked):
            with self.subTest(check=check):
                self.assertEqual(run("sh", "-c", "exit 3", check=check).stderr, after)
                done = run("sh", "-c", "exit 3", check=check, sim=SIM + ",count=0")
                self.assertEqual((done.returncode, done.stderr), (3, none.format("") + after))
                done = run("sh", "-c", "exit 3", check=check, environment=hidden)
                self.assertEqual((done.returncode, done.stderr), (3, none.format(', CUDA_VISIBLE_DEVICES is "7"') + after))
                done = subprocess.run([SEGALLOC, "run", f"--check={check}", "--", "sh", "-c", "exit 3"], capture_output=True, text=True, timeout=100,
                                      env={key: value for key, value in ENVIRONMENT.items() if key != "LD_LIBRARY_PATH"})
                if not self.has_driver():
                    self.assertEqual((done.returncode, done.stderr), (3, no_driver + after))
        # What has been checked is so, whatever else the command starts; and nothing is asked for of a run without.
        self.assertNotIn("segalloc run: ", run("sh", "-c", f"{ENDS} none _exit; true").stderr)
        self.assertNotIn("segalloc run: ", run("sh", "-c", f"{SEGALLOC} run -q --check=fail -- {ENDS} none _exit").stderr)
        self.assertEqual(run("true", check=None, sim=SIM + ",count=0").stderr, "")
        self.assertEqual(run("/no/such/program").stderr, "segalloc run: /no/such/program: no such program\n")

    @staticmethod
    def has_driver():
        asked = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], capture_output=True, check=False,
                               env={key: value for key, value in ENVIRONMENT.items() if key != "LD_LIBRARY_PATH"})
        return asked.returncode == 0

    def test_it_becomes_the_command(self):
        """Only with `fail` is there a process between."""
        for check, expected in (("on", True), ("fail", False), (None, True)):
            words = [SEGALLOC, "run", "-q", *([f"--check={check}"] if check else []), "--", "sh", "-c", "echo $$"]
            process = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
            self.assertEqual(int(process.communicate(timeout=60)[0]) == process.pid, expected)

    def start(self, script, before=None, options=(), **more):
        """Signals are as in a terminal: `nohup` and a shell's `&` ignore some, and so would the command."""
        def as_in_a_terminal():
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
                signal.signal(number, signal.SIG_DFL)
            if before:
                before()
        words = [SEGALLOC, "run", "-q", "--check=fail", *options, "--", sys.executable, "-uc", script]
        process = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal, **more)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def test_signals(self):
        """They reach the command, with their values; and it ends as the command does."""
        takes = "import signal, sys\n" \
                "signals = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGRTMIN + 3, signal.SIGALRM]\n" \
                "signal.pthread_sigmask(signal.SIG_BLOCK, signals)\n" \
                "print('ready')\n" \
                "for _ in signals: print(int(signal.sigwait(signals)))\n" \
                "sys.exit(9)\n"
        process = self.start(takes)
        self.assertEqual(process.stdout.readline(), "ready\n")
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGRTMIN + 3, signal.SIGALRM):
            process.send_signal(number)
            self.assertEqual(process.stdout.readline(), f"{int(number)}\n")
        self.assertEqual(process.wait(60), 9)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGQUIT):
            process = self.start("print('ready'); import time; time.sleep(100)")
            process.stdout.readline()
            process.send_signal(number)
            self.assertEqual(process.wait(60), -number)

    def test_signals_as_they_were(self):
        """What was ignored or blocked before is so in the command, and a timer of before reaches it."""
        says = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN, " \
               "sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))))"

        def before():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        process = self.start(says, before=before)
        self.assertEqual(process.communicate(timeout=60)[0], f"True True [{int(signal.SIGUSR1)}]\n")
        process = self.start("import time; time.sleep(100)", before=lambda: signal.alarm(1))
        self.assertEqual(process.wait(60), -signal.SIGALRM)

    def test_it_stops_and_dies_with_the_command(self):
        process = self.start("import os, signal, time\nprint(os.getpid())\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('again')\ntime.sleep(100)",
                             before=os.setpgrp)  # a group without a parent in the session is not stopped by SIGTSTP
        command = int(process.stdout.readline())
        self.assertTrue(os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]))
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.stdout.readline(), "again\n")
        process.send_signal(signal.SIGTSTP)
        self.assertTrue(os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]))
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(60)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                with open(f"/proc/{command}/stat", encoding="utf-8") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] in "ZX":
                        return
            except FileNotFoundError:
                return
            time.sleep(0.02)
        self.fail("the command is there still")

    def test_terminal(self):
        """Ctrl-C of a terminal comes once, to the command, and the command has the terminal."""
        counts = "import os, signal, time\ncount = 0\ndef take(*_):\n    global count\n    count += 1\nsignal.signal(signal.SIGINT, take)\n" \
                 "print('ready', os.isatty(0), os.tcgetpgrp(0) == os.getpgrp())\nend = time.monotonic() + 30\n" \
                 "while not count and time.monotonic() < end: time.sleep(0.01)\ntime.sleep(0.3)\nprint('count', count)\nos._exit(3)\n"
        child, terminal = pty.fork()
        if child == 0:
            os.execve(SEGALLOC, [SEGALLOC, "run", "-q", "--check=fail", "--", sys.executable, "-uc", counts], ENVIRONMENT)
        said = b""
        while b"count" not in said or not said.endswith(b"\n"):
            said += os.read(terminal, 1000)
            if said.endswith(b"ready True True\r\n"):
                os.write(terminal, b"\x03")
        self.assertIn(b"count 1\r\n", said)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 3)
        os.close(terminal)

    def test_no_file(self):
        """Where the count can be put nowhere nothing is run; TMPDIR will do, and no file stays."""
        with tempfile.TemporaryDirectory() as folder:
            before = left_over()
            done = run(ENDS, "twice", "_exit", environment={"TMPDIR": folder})
            self.assertEqual((done.returncode, os.listdir(folder)), (4, []))
            self.assertEqual([name for name in left_over() if name not in before and self.is_old(name)], [])
        away = "mount -t tmpfs none /tmp; mount -o remount,ro /tmp; mount -t tmpfs none /dev/shm; mount -o remount,ro /dev/shm; exec \"$@\""
        away = ["unshare", "-rm", "sh", "-c", away, "sh", SEGALLOC, "run", "-q", "--sim", SIM, "--check=fail", "--", ENDS, "twice", "_exit"]
        if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/dev/shm"], stderr=subprocess.DEVNULL, check=False).returncode:
            return
        done = subprocess.run(away, env=ENVIRONMENT | {"TMPDIR": "/tmp"}, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("segalloc run: --check=fail needs a file of 24 bytes", done.stderr)
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            done = subprocess.run(away, env=ENVIRONMENT | {"TMPDIR": folder}, capture_output=True, text=True, timeout=100)
            self.assertEqual((done.returncode, os.listdir(folder)), (4, []), done.stderr)
        # Where nobody counts no file is wanted.
        done = subprocess.run([word.replace("=fail", "=on") for word in away], env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stderr.splitlines()[0]), (0, "segalloc: check: free of a block that is freed already"))

    def test_killed_runs_leave_no_file_for_long(self):
        """The next run removes the files of runs that were killed, and those of no others."""
        says = "import os, subprocess, sys\nprint(os.environ['SEGALLOC_CHECK_COUNT'])\nsys.stdin.readline()\n" \
               f"subprocess.run([{ENDS!r}, 'twice', '_exit'], check=False)\nos._exit(3)\n"
        killed, alive = (self.start(says, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, options=["--sim", SIM]) for _ in range(2))
        for process in killed, alive:
            self.addCleanup(process.stdin.close)
        paths = [process.stdout.readline().strip() for process in (killed, alive)]
        killed.kill()
        killed.wait(60)
        self.assertEqual(run("true").returncode, 0)
        self.assertEqual([os.path.exists(path) for path in paths], [False, True], paths)
        alive.stdin.write("\n")
        alive.stdin.flush()
        self.assertEqual(alive.wait(60), 4)
        self.assertFalse(os.path.exists(paths[1]))

    def is_old(self, name):
        try:
            return os.stat(f"/dev/shm/{name}").st_mtime < time.time() - 100  # others are of programs that run beside this test
        except FileNotFoundError:
            return False

    def test_words_go_to_standard_error_alone(self):
        """A program that closes descriptor 2 has its next file there: nothing is written into that."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.bin")
            for check in ("fail", "on", "fill+canary+json"):
                for mistake in ("none", "twice", "late"):
                    done = run(ENDS, mistake, "closed", path, check=check, options=["--conf", "confirm_conf:True"])
                    self.assertEqual(done.returncode, 4 if check == "fail" and mistake != "none" else 0, done.stderr)
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), b"mine\n")
                    os.unlink(path)

    def test_work_that_never_ends(self):
        """Copies that are behind it are waited for a moment, and counted; a process ends at once where it ends otherwise."""
        for mistake in ("behind", "held", "many"):
            for how in ("return", "_exit", "kill", "term", *(["quick_exit"] if mistake != "many" else [])):
                with self.subTest(mistake=mistake, how=how):
                    done = run(ENDS, mistake, how, check="fail+json", sim=SIM + ",kernel_us=60000000")
                    self.assertEqual(done.returncode, WAYS[how], done.stderr)
                    if how not in ("return", "quick_exit"):
                        self.assertEqual(done.stderr, "")
                        continue
                    end = json.loads(done.stderr.splitlines()[-1].removeprefix("segalloc: check: "))
                    self.assertEqual(end["findings"], 0)
                    self.assertRegex(end["not_looked_at"], r"\d behind work that had not ended with the process" if mistake != "held" else
                                     r"\d beside streams that may wait for the program")
                    self.assertEqual("while too many samples were on their way" in end["not_looked_at"], mistake == "many")

    def test_full_disk(self):
        """A full disk takes neither the trace nor the text: the program ends as it does otherwise, and the status says what was found."""
        with open("/dev/full", "w", encoding="utf-8") as full:
            for how, status in (("return", 4), ("_exit", 4)):
                self.assertEqual(run(ENDS, "twice", how, stderr=full).returncode, status)
                self.assertEqual(run(ENDS, "none", how, stderr=full).returncode, 0)
        if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], stderr=subprocess.DEVNULL, check=False).returncode:
            return
        script = "mount -t tmpfs -o size=16k none /mnt; head -c 8k /dev/zero >/mnt/fill; exec \"$@\""
        for mistake, status in (("twice", 4), ("late", 4), ("none", 0)):
            words = ["unshare", "-rm", "sh", "-c", script, "sh", SEGALLOC, "run", "-q", "--sim", SIM, "--check=fail", "-o", "/mnt/run.trace",
                     "--", ENDS, mistake, "return"]
            done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn("segalloc: check: checked ", done.stderr)
            self.assertIn("/mnt/run.trace", done.stderr)  # that it ends, and why


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
