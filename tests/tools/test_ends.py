"""segalloc rehearse: programs of several processes, however each ends, and memory that leaves no trace.

Usage: test_ends.py SEGALLOC ACTS"""
import concurrent.futures
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from shared import sampled

SEGALLOC, ACTS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
CLEAN = "env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
    CLEAN += " LD_PRELOAD=" + os.environ["SANITIZER"]
MIB = 1 << 20


def rehearse(*arguments):
    return subprocess.run([SEGALLOC, "rehearse", *arguments], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=120)


class Ends(unittest.TestCase):
    def verdict(self, status, *arguments):
        result = rehearse("--json", *arguments)
        self.assertEqual(result.returncode, status, result)
        return json.loads(result.stdout.splitlines()[-1])

    def test_a_clean_environment(self):
        """It takes away no GPU: the machine is that of the ancestors, or of what the process was before."""
        clean = f"{CLEAN} '{ACTS}'"
        for script in (f"{clean} a+1000", f"{clean} a+1000; exit $?", f"{clean} a+1000; true", f"{clean} a+200; {clean} a+1000 | cat",
                       f"setsid sh -c \"sleep 0.3; {clean} a+1000\" >/dev/null 2>&1 </dev/null & true"):
            verdict = self.verdict(3, "--card", "950MiB,1GiB", "--margin", "0", "--", "sh", "-c", script)
            self.assertEqual(([card["fits"] for card in verdict["cards"]], verdict["smallest_card_bytes"]),
                             ([False, True], 1000 * MIB), script)
        # what it was refused, and how it ended, is known of it too
        for acts, fits in (("a+100 b?1000 c+1 or=fail; true", False), ("a+100 b?1000; true", False), ("a+100 b?1000 c+1", True)):
            verdict = self.verdict(0 if fits else 3, "--card", "950MiB", "--margin", "0", "--", "sh", "-c", f"{clean} {acts}")
            self.assertEqual(verdict["cards"][0]["fits"], fits, acts)
        for script in (f"{clean} a+1000", f"sh -c '{clean} a+1000'; exit $?"):
            ran = subprocess.run([SEGALLOC, "run", "--sim", "950MiB", "--", "sh", "-c", script], env=ENVIRONMENT, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 1, ran)

    def test_another_program_in_its_place(self):
        """What a process becomes by exec counts, though the process has a trace of what it was before."""
        for acts in (("a+300", "untraced", "b+1000"), ("a+1000", "untraced", "b+300")):
            verdict = self.verdict(3, "--card", "950MiB,1010MiB", "--margin", "0", "--", ACTS, *acts)
            self.assertEqual([card["fits"] for card in verdict["cards"]], [False, True], acts)

    def test_left_behind(self):
        """What the command leaves behind is waited for, and counts."""
        later = f"(sleep 0.4; exec '{ACTS}' a+800 END) >/dev/null 2>&1 </dev/null &"
        for end in ("", "_exit"):
            verdict = self.verdict(3, "--card", "700MiB,900MiB", "--margin", "0", "--", "sh", "-c", later.replace("END", end))
            self.assertEqual([card["fits"] for card in verdict["cards"]], [False, True], end)

    def run_beside(self, left, command, *options, seconds=40, signal_after=None):
        """Rehearses a command beside one that holds stderr, and goes on. The verdict, its status, and what stderr has by then."""
        with tempfile.NamedTemporaryFile("w+") as errors, tempfile.NamedTemporaryFile("w+") as pids:
            script = f"({left}) >/dev/null </dev/null & echo $! >>{pids.name}; {command}"
            tool = subprocess.Popen([SEGALLOC, "rehearse", "--json", *options, "--", "sh", "-c", script], env=ENVIRONMENT, text=True,
                                    stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL)
            try:
                if signal_after:
                    time.sleep(signal_after)
                    tool.send_signal(signal.SIGTERM)
                verdict = json.loads(tool.communicate(timeout=seconds)[0])
                with open(errors.name, encoding="utf-8", errors="replace") as file:
                    at_the_end = file.read(1 << 20)
                said = at_the_end
                for _ in range(100):
                    if not left.startswith("sleep 6;") or "later" in said:
                        break
                    time.sleep(0.1)
                    with open(errors.name, encoding="utf-8") as file:
                        said = file.read()
                return verdict, tool.returncode, at_the_end, said
            finally:
                tool.kill()
                tool.wait()
                tool.stdout.close()
                for pid in pids.read().split():
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass

    def test_who_holds_stderr(self):
        """What the command leaves behind is waited for as long as one that holds nothing, and what it says later still comes."""
        later = "sleep 6; echo later >&2; exec sleep 100"
        first = ["--card", "1GiB"]
        rows = [("exec sleep 100", f"'{ACTS}' a+100 say=last >&2", first, (0, "completed", False)),
                (later, f"'{ACTS}' a+100", first, (0, "completed", False)),
                ("exec sleep 100", f"'{ACTS}' a+100; echo why >&2; exit 1", first, (1, "stopped", False)),
                ("exec yes >&2", f"'{ACTS}' a+100", first, (0, "completed", False)),
                (f"exec '{ACTS}' a+200 wait", f"sleep 0.5; '{ACTS}' a+100", first, (0, "completed", True)),
                ("exec sleep 100", f"'{ACTS}' a+100", first + ["--overwrite"], (0, "completed", False)),
                ("exec sleep 100", f"'{ACTS}' a+300 'a>'", first, (0, "completed", False))]
        with concurrent.futures.ThreadPoolExecutor(4) as several:
            runs = several.map(lambda row: self.run_beside(row[0], row[1], *row[2]), rows)
            for (left, command, _, expected), (verdict, status, at_the_end, said) in zip(rows, runs):
                with self.subTest(left=left, command=command):
                    self.assertEqual((status, verdict["outcome"], verdict["at_least"]), expected, verdict)
                    self.assertEqual("last" in command, "\nlast\n" in at_the_end)
                    self.assertEqual(left == later, "later\n" in said)
                    self.assertNotIn("later", at_the_end)
                    if status:
                        self.assertIn(": why. ", verdict["reason"])
                    if "a>" in command:
                        self.assertEqual(verdict["conf"], "ipc:always")

    def test_the_report_is_no_last_word(self):
        """The library's report comes after the program's words. It stands for them where there are none, by its first line."""
        for acts, said in ((("b+99999999",), "acts: b+99999999: out of memory"), (("b?99999999", "or=fail"), "segalloc: out of memory on device 0: short by ")):
            reason = self.verdict(1, "--card", "1GiB", "--", ACTS, "a+100", *acts)["reason"]
            self.assertIn("memory: " + said, reason)
            self.assertNotIn("next ", reason)

    def test_a_signal_while_others_are_waited_for(self):
        """The run has ended: of cards all is said that was found, and so is what the signal came upon."""
        verdict, status, _, _ = self.run_beside(f"exec '{ACTS}' a+200 wait", f"sleep 0.5; '{ACTS}' a+100", "--card", "256MiB,1GiB",
                                                signal_after=5)
        self.assertEqual((status, verdict["outcome"], verdict["at_least"]), (1, "stopped", True), verdict)
        self.assertIn("came while processes that CMD had left behind were waited for", verdict["reason"])
        self.assertEqual([card["fits"] for card in verdict["cards"]], [False, True])

    def test_stderr_is_closed(self):
        """By the command, which goes on: it has the time that it takes."""
        verdict = self.verdict(0, "--card", "1GiB", "--", "sh", "-c", f"exec 2>&-; sleep 1; exec '{ACTS}' a+100")
        self.assertEqual((verdict["outcome"], verdict["cards"][0]["fits"]), ("completed", True))

    def test_what_goes_on_after_the_tool(self):
        """It can open files and end as it likes, though nobody rehearses any more."""
        with tempfile.TemporaryDirectory() as folder:
            script = f"(sleep 5; sleep 60 & kill $! && sh -c 'exit 7'; echo $? >{folder}/status) >/dev/null 2>&1 </dev/null &"
            self.verdict(0, "--card", "1GiB", "--", "sh", "-c", f"'{ACTS}' a+100; {script}")
            for _ in range(200):
                if os.path.exists(f"{folder}/status"):
                    break
                time.sleep(0.1)
            with open(f"{folder}/status", encoding="ascii") as file:
                self.assertEqual(file.read(), "7\n")

    def test_managed_memory(self):
        """It is said, and no card is too small for it."""
        said = rehearse("--card", "1GiB", "--", ACTS, "a@4096")
        self.assertEqual(said.returncode, 0, said)
        self.assertIn("1.00 GiB: fits.", said.stdout)
        self.assertIn("It needs 4.00 GiB of managed memory", said.stdout)
        verdict = self.verdict(3, "--card", "1GiB,2GiB", "--margin", "0", "--", ACTS, "a@4096", "b+1200")
        self.assertEqual(([card["fits"] for card in verdict["cards"]], verdict["managed_bytes"]), ([False, True], 4096 * MIB))

    def test_hidden_stops(self):
        """An error for another reason than memory is no end either, though the command ends with 0."""
        run = f"'{ACTS}'"
        pidfd = shlex.join([sys.executable, "-c", "import os, signal, sys; signal.pidfd_send_signal(os.pidfd_open(int(sys.argv[1])), signal.SIGTERM)"])
        for script in (f"{run} a+100 fail | cat", f"{run} a+100 _fail; true", f"{run} a+100 fail & wait", f"{run} a+100 abort | cat",
                       f"{run} a+100 kill; true"):
            self.assertIn("ended with an error, which CMD hides", self.verdict(1, "--card", "1GiB", "--", "sh", "-c", script)["reason"])
        for script, at_least in ((f"{run} a+100; {run} a+200 fail; true", True), (f"{run} a+100; {run} a+200 abort; true", True),
                                 (f"{run} a+100 wait & sleep 0.5; {run} a+100; kill $!", False),
                                 (f"{run} a+100 wait & sleep 0.5; kill $!", False),
                                 (f"{run} a+100 tell=fail wait & sleep 0.5; kill $!", False),
                                 (f"{run} a+100 wait & sleep 0.5; {pidfd} $!", False),
                                 (f"setsid {run} a+100 wait & sleep 0.5; kill -- -$!", False)):
            verdict = self.verdict(0, "--card", "4GiB", "--", "sh", "-c", script)
            self.assertEqual((verdict["at_least"], verdict["cards"][0]["fits"]), (at_least, True), script)

    def test_memory_given_away(self):
        """By a legacy handle, which takes other memory: it runs once more with that, and what to run next says so."""
        command = ["--card", "500MiB,1GiB", "--margin", "0", "--", ACTS, "a+300", "a>", "b+400"]
        verdict = self.verdict(3, *command)
        self.assertEqual(([card["fits"] for card in verdict["cards"]], verdict["conf"]), ([False, True], "ipc:always"))
        said = rehearse("--card", "4GiB", *command[4:])
        self.assertIn("running it once more with ipc:always", said.stderr)
        self.assertRegex(said.stdout, "\nNext: segalloc run .*--conf ipc:always -- ")
        self.assertIsNone(self.verdict(0, "--card", "4GiB", "--conf", "ipc:always", *command[4:])["conf"])
        stopped = self.verdict(1, "--card", "4GiB", "--conf", "ipc:never", *command[4:])
        self.assertEqual((stopped["conf"], stopped["outcome"]), (None, "stopped"))
        tried = json.loads(rehearse("--json", "--card", "700MiB", "--margin", "0", "--try", "{}=600,300", "--", ACTS, "a+{}", "a>", "b+400").stdout)
        self.assertEqual(([each["result"]["conf"] for each in tried["tried"]], tried["fits"]), (["ipc:always"] * 2, "300"))

    def test_all_left_to_the_driver(self):
        """By a setting, such as PyTorch's, which leaves no trace."""
        verdict = self.verdict(3, "--card", "500MiB,1GiB", "--margin", "0", "--", "env", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
                               ACTS, "a+300", "b+400")
        self.assertEqual(([card["fits"] for card in verdict["cards"]], verdict["smallest_card_bytes"]), ([False, True], 700 * MIB))

    def fits_of(self, *command):
        """Whether it fits 1 GiB; it does fit 4 GiB."""
        result = rehearse("--json", "--card", "1GiB,4GiB", "--margin", "0", "--", *command)
        cards = json.loads(result.stdout.splitlines()[-1])["cards"]
        self.assertEqual((len(cards), cards[1]["fits"], result.returncode), (2, True, 0 if cards[0]["fits"] else 3), result)
        return cards[0]["fits"]

    def check_rows(self, rows):
        """Several at a time: each is mostly waited for."""
        rows = sampled(rows, 3)
        with concurrent.futures.ThreadPoolExecutor(4) as several:
            for (command, fits), told in zip(rows, several.map(lambda row: self.fits_of(*row[0]), rows)):
                with self.subTest(command):
                    self.assertEqual(told, fits)

    def test_ends(self):
        """The rule of rehearse/ends.h: how the process that was refused ended decides, not who hides that."""
        parent = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]
        rows = []
        for later in ("", "c+1 d+1"):
            for end, good in (("", True), ("_exit", True), ("or=fail", False), ("or=_fail", False), ("or=abort", False), ("or=kill", False)):
                acts = ["a+100", "b?1500", *later.split(), *end.split()]
                joined = shlex.join([ACTS, *acts])
                hidden = (["sh", "-c", f"{joined} | cat"], ["sh", "-c", f"{joined}; true"], [*parent, ACTS, *acts])
                for command in ([ACTS, *acts], *hidden[:3 if later else 1]):
                    rows.append((command, good and bool(later)))
        self.check_rows(rows)

    def test_several_processes(self):
        """What one did not do another may do after it, if as many end well as on a card without end."""
        run = f"'{ACTS}'"
        rows = ((f"{run} a+1500 || {run} a+700", True),                                  # tries less
                (f"n=4000; until {run} a+$n; do n=$((n / 2)); done", True),
                (f"n=4000; until {run} a+$n or=_fail; do n=$((n / 2)); done; {run} a+300", True),
                (f"n=4000; until {run} a?$n or=abort; do n=$((n / 2)); done", True),
                (f"n=64; while {run} a+$n; do n=$((n * 2)); done", True),                 # looks how much there is
                (f"n=64; while {run} a+$n; do n=$((n * 2)); done; {run} a+1500", False),
                (f"n=64; while {run} a+$n; do n=$((n * 2)); done; {run} a+700", True),
                (f"{run} a+1500; {run} a+100", False),                                    # trains, evaluates
                (f"{run} a+100; {run} a+1500; true", False),
                (f"{run} a+100; {run} a+1500 || true", False),
                (f"{run} a+1500 & {run} a+100 & wait", False),
                (f"printf '1500\n100\n' | xargs -I M -P 2 {run} a+M || true", False),
                (f"{run} a+1500 || echo failed", False),
                (f"timeout 30 {run} a+1500; true", False),
                (f"{run} a+300 b?1500 c+1 wait & sleep 1; kill $!", True),                # a server that takes what there is
                (f"{run} a+300 b?1500 c+1 or=abort wait & sleep 1; kill $!; true", False))
        self.check_rows([(["sh", "-c", script], fits) for script, fits in rows])


unittest.main()
