"""Processes on a simulated card that they share: memory that one holds idle and another needs, and what can be seen of
each from outside.

Usage: test_trim.py SEGALLOC NEIGHBOUR"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import shared

SEGALLOC, NEIGHBOUR = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
CARD = f"trim-{os.getpid()}"


class Neighbour:
    def __init__(self, conf="oom_report:never", sim=f"1GiB,card={CARD}"):
        environment = dict(os.environ, SEGALLOC_CONF=conf)
        if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
            environment["LD_PRELOAD"] = os.environ["SANITIZER"]
        self.process = subprocess.Popen([SEGALLOC, "run", "--sim", sim, "--", NEIGHBOUR], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.process.pid

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def held(self):
        return int(self.ask("hold"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.errors = self.process.stderr.read()
        self.process.stderr.close()
        self.process.stdout.close()


def stop_has_come(pid):
    """A stop reaches each of the process's threads on its own, later where the machine is busy."""
    def state(task):
        return (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
    while any(state(task) != "T" for task in pathlib.Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.01)


def trim(*arguments):
    return subprocess.run([SEGALLOC, "trim", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=30)


class Trim(unittest.TestCase):
    @classmethod
    def tearDownClass(cls):
        pathlib.Path(f"/dev/shm/segalloc-sim-{os.geteuid()}-{CARD}").unlink(missing_ok=True)

    def test_one_that_runs_out_asks_the_others(self):
        with Neighbour() as first, Neighbour() as second:
            for _ in range(2):
                self.assertEqual(first.ask("take 300"), "taken")
            self.assertEqual(first.ask("give"), "given")
            self.assertEqual(first.held(), 600)
            self.assertEqual(second.ask("take 700"), "taken")
            self.assertEqual(first.held(), 300)
            self.assertEqual(second.ask("take 100"), "refused")
            self.assertEqual(first.ask("take 20"), "taken")
        self.assertEqual((first.errors, second.errors), ("", ""))

    def test_whatever_runs_out_asks_the_others(self):
        """By each call that takes device memory, in processes that have allocated with the library before, and have not."""
        for how in ("take", "create", "pool", "graph"):
            for before in (False, True):
                with self.subTest(how=how, before=before), Neighbour() as trainer, Neighbour() as engine:
                    for _ in range(15):
                        self.assertEqual(trainer.ask("take 50"), "taken")
                    for _ in range(15):
                        self.assertEqual(trainer.ask("give"), "given")
                    self.assertEqual(trainer.ask("take 64"), "taken")
                    if before:
                        self.assertEqual(engine.ask("take 10"), "taken")
                    self.assertEqual(engine.ask(f"{how} 700"), "taken")
                    self.assertEqual(engine.ask(f"{how} 700"), "refused")
                    self.assertEqual(trainer.held(), 64)

    def test_what_others_hold_idle_counts_as_free(self):
        """What cudaMemGetInfo says can be had, also before the first allocation, and under a limit."""
        for conf, told in (("oom_report:never", 1024 - 64), ("oom_report:never,limit:512MiB", 512)):
            for before in (False, True):
                with self.subTest(conf=conf, before=before), Neighbour() as trainer, Neighbour(conf) as engine:
                    self.assertEqual([trainer.ask("take 500"), trainer.ask("take 300"), trainer.ask("take 64")], ["taken"] * 3)
                    own = 0
                    if before:
                        self.assertEqual(engine.ask("take 20"), "taken")
                        own = 20
                    self.assertEqual(int(engine.ask("free")), min(1024 - 864, told) - own)
                    self.assertEqual(trainer.ask("give"), "given")  # the last one
                    self.assertEqual(trainer.ask("give"), "given")
                    self.assertEqual(trainer.ask("give"), "given")
                    self.assertEqual(trainer.ask("take 64"), "taken")
                    said = int(engine.ask("free"))
                    self.assertEqual(said, told - own)
                    self.assertEqual(engine.ask(f"take {said}"), "taken")

    def test_who_does_not_listen_has_nothing_to_give(self):
        with Neighbour("trim_on_request:False") as first, Neighbour() as second:
            self.assertEqual([first.ask("take 500"), first.ask("give")], ["taken", "given"])
            self.assertEqual(int(second.ask("free")), 1024 - 500)
        with Neighbour() as first, Neighbour("trim_on_request:False") as second:
            self.assertEqual([first.ask("take 500"), first.ask("give")], ["taken", "given"])
            self.assertEqual(int(second.ask("free")), 1024 - 500)
            self.assertEqual(second.ask("create 700"), "refused")
        with Neighbour() as stopped, Neighbour() as second:
            self.assertEqual([stopped.ask("take 500"), stopped.ask("give")], ["taken", "given"])
            os.kill(stopped.pid, signal.SIGSTOP)
            stop_has_come(stopped.pid)
            begun = time.monotonic()
            for _ in range(20):
                self.assertEqual(int(second.ask("free")), 1024 - 500)
            self.assertLess(time.monotonic() - begun, 2)
            os.kill(stopped.pid, signal.SIGCONT)

    def test_only_who_shares_the_card_is_asked(self):
        with Neighbour(sim="1GiB") as other, Neighbour() as first:
            self.assertEqual([other.ask("take 400"), other.ask("give")], ["taken", "given"])
            self.assertEqual(first.ask("take 600"), "taken")
            self.assertEqual(first.ask("take 600"), "refused")
            self.assertEqual(other.held(), 400)

    def test_only_who_listens_is_asked(self):
        with Neighbour("trim_on_request:False") as first, Neighbour() as second:
            self.assertEqual([first.ask("take 400"), first.ask("give")], ["taken", "given"])
            self.assertEqual(second.ask("take 700"), "refused")
            self.assertEqual(first.held(), 400)
            done = trim(first.pid)
            self.assertEqual(done.returncode, 1)
            self.assertIn("trim_on_request", done.stderr)

    def test_a_limit_is_not_what_others_can_help_with(self):
        with Neighbour() as first, Neighbour("limit:256MiB,oom_report:never") as second:
            self.assertEqual([first.ask("take 300"), first.ask("give")], ["taken", "given"])
            self.assertEqual(second.ask("take 300"), "refused")
            self.assertEqual(first.held(), 300)

    def test_dead_and_stopped_neighbours(self):
        with Neighbour() as dead, Neighbour() as stopped, Neighbour() as last:
            self.assertEqual([dead.ask("take 100"), stopped.ask("take 100"), stopped.ask("give")],
                             ["taken", "taken", "given"])
            os.kill(dead.pid, signal.SIGKILL)
            os.kill(stopped.pid, signal.SIGSTOP)
            stop_has_come(stopped.pid)
            begun = time.monotonic()
            self.assertEqual(last.ask("take 950"), "refused")
            self.assertLess(time.monotonic() - begun, 5)
            os.kill(stopped.pid, signal.SIGCONT)
            self.assertEqual(last.ask("take 950"), "taken")

    def test_verb(self):
        with Neighbour() as first:
            self.assertEqual(trim(first.pid).returncode, 1)  # nothing allocated yet: it does not listen
            self.assertEqual([first.ask("take 300"), first.ask("take 100"), first.ask("give")],
                             ["taken", "taken", "given"])
            done = trim("--json", "--keep", "40MiB", first.pid)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(json.loads(done.stdout),
                             {"schema": "segalloc.trim/1", "pid": first.pid, "given_bytes": 60 << 20})
            self.assertEqual(first.held(), 340)
            self.assertEqual(trim("--keep", "40", first.pid).returncode, 2)  # bytes? hardly
            self.assertEqual(trim(first.pid).stdout, "40.00 MiB given back\n")
            self.assertEqual(trim(first.pid).stdout, "0 B given back\n")
            self.assertEqual(first.ask("take 200"), "taken")

    def test_statistics_of_a_running_program(self):
        def held(path):
            done = subprocess.run([SEGALLOC, "report", "--json", path], stdout=subprocess.PIPE, text=True, check=True)
            return json.loads(done.stdout)["devices"][0]["statistics"]["reserved_bytes"] >> 20
        with Neighbour("live:True") as first, Neighbour("live:True") as killed:
            pages = [pathlib.Path(f"/dev/shm/segalloc-live-{one.pid}") for one in (first, killed)]
            self.assertFalse(pages[0].exists())  # nothing allocated yet
            self.assertEqual([first.ask("take 300"), first.ask("take 100")], ["taken", "taken"])
            self.assertEqual(held(pages[0]), 400)
            self.assertEqual(killed.ask("take 40"), "taken")
            left = shared.LeftPage(self, killed.pid)
            os.kill(killed.pid, signal.SIGKILL)
        self.assertFalse(pages[0].exists())
        self.assertEqual(held(left.kept), 40)

    def test_wrong_command_lines(self):
        for arguments, status in (((), 2), (("x",), 2), (("0",), 2), (("1", "2"), 2), (("--keep", "many", "1"), 2),
                                  ((2 ** 22 + 1,), 1), ((os.getpid(),), 1)):
            with self.subTest(arguments=arguments):
                done = trim(*arguments)
                self.assertEqual(done.returncode, status)
                self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_idle_memory_goes_back_where_the_device_is_full(self):
        with Neighbour("trim_idle_s:0.2,oom_report:never") as first, Neighbour("trim_idle_s:0.2") as roomy:
            self.assertEqual([first.ask("take 700"), first.ask("take 290"), first.ask("give")],
                             ["taken", "taken", "given"])
            for _ in range(100):
                if first.held() == 700:
                    break
                time.sleep(0.1)
            self.assertEqual(first.held(), 700)
            self.assertEqual([roomy.ask("take 100"), roomy.ask("give")], ["taken", "given"])
            time.sleep(0.7)
            self.assertEqual(roomy.held(), 100)


def order(verb, *arguments):
    """What was said, without the lines of progress: on a busy machine a process may take its time."""
    done = subprocess.run([SEGALLOC, verb, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=180)
    done.stderr = "".join(line for line in done.stderr.splitlines(keepends=True) if " has worked on it for " not in line)
    return done


class Paused(unittest.TestCase):
    @classmethod
    def tearDownClass(cls):
        pathlib.Path(f"/dev/shm/segalloc-sim-{os.geteuid()}-{CARD}").unlink(missing_ok=True)

    def test_a_second_process_has_the_card_meanwhile(self):
        with Neighbour() as first, Neighbour() as second:
            self.assertEqual(first.ask("tag kv 700"), "taken")
            self.assertEqual(second.ask("take 600"), "refused")
            paused = order("pause", "--tag", "kv", "--json", first.pid)
            self.assertEqual((paused.returncode, paused.stderr), (0, ""))
            said = json.loads(paused.stdout)
            self.assertEqual((said["schema"], said["tag"]), ("segalloc.pause/1", "kv"))
            self.assertGreaterEqual(said["bytes"], 700 << 20)
            self.assertEqual(first.held(), 0)
            self.assertEqual(second.ask("take 600"), "taken")
            full = order("resume", first.pid)
            self.assertEqual((full.returncode, full.stdout), (1, ""))
            self.assertIn("has no memory for it", full.stderr)
            self.assertEqual(second.ask("give"), "given")
            again = order("resume", "--tag", "kv", first.pid)
            self.assertEqual((again.returncode, again.stderr), (0, ""))
            self.assertRegex(again.stdout, r"^700\.00 MiB brought back\n$")
            self.assertEqual(first.ask("whole"), "whole")
        self.assertIn('tag "kv" can\'t be resumed on device 0', first.errors)

    def test_what_is_paused_already_is_no_error(self):
        with Neighbour() as one:
            self.assertEqual(one.ask("tag kv 20"), "taken")
            for verb in ("pause", "pause", "resume", "resume"):
                self.assertEqual(order(verb, one.pid).returncode, 0)
            self.assertEqual(one.ask("whole"), "whole")
        self.assertEqual(one.errors, "")

    def test_errors_say_what_is_wrong(self):
        with Neighbour() as one:
            self.assertEqual(one.ask("tag kv 20"), "taken")
            for arguments, status, words in ((["pause"], 2, "which process?"), (["pause", "--tag", "", one.pid], 2, "1 to 63 bytes"),
                                             (["pause", "x"], 2, "no process id"), (["resume", 2 ** 22 - 1], 1, "there is no process"),
                                             (["pause", "--tag", "no", one.pid], 1, "no such tag")):
                done = order(*arguments)
                self.assertEqual((done.returncode, done.stdout), (status, ""), arguments)
                self.assertIn(words, done.stderr)

if __name__ == "__main__":
    unittest.main()
