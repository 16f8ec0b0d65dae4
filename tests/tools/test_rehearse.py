"""segalloc rehearse: one run answers for all cards.

Usage: test_rehearse.py SEGALLOC LOOP"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, LOOP = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
# Where a sanitizer is in the process, it would turn a SIGSEGV into an exit with a status of its own.
PLAIN_SEGV = [f"{name}={ENVIRONMENT.get(name, '')}:handle_segv=0" for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")]
MIB = 1 << 20


def rehearse(*arguments):
    return subprocess.run([SEGALLOC, "rehearse", *arguments], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=120)


class Rehearse(unittest.TestCase):
    def verdict(self, status, *arguments):
        result = rehearse("--json", *arguments)
        self.assertEqual(result.returncode, status, result)
        return json.loads(result.stdout.splitlines()[-1])

    def test_cards(self):
        verdict = self.verdict(0, "--card", "1GiB,16MiB,128MiB,1024MiB", "--", LOOP, "5000", "return")
        self.assertEqual(verdict["outcome"], "completed")
        self.assertEqual([c["bytes"] for c in verdict["cards"]], [16 * MIB, 128 * MIB, 1024 * MIB])
        self.assertEqual(verdict["served_share"], 1)
        smallest = verdict["smallest_card_bytes"]
        self.assertGreaterEqual(smallest, verdict["peak_requested_bytes"])
        self.assertGreaterEqual(verdict["peak_reserved_bytes"], verdict["peak_requested_bytes"])
        for card in verdict["cards"]:
            self.assertEqual(card["headroom_bytes"], card["bytes"] - smallest)
            self.assertEqual(card["fits"], card["bytes"] >= smallest)
            self.assertEqual(card["ends_at_event"] is None, card["fits"])
        self.assertTrue(verdict["assumptions"])

    def test_the_smallest_card_is_one(self):
        """What is said of another card is what happens on it."""
        command = ["--", LOOP, "5000", "return"]
        smallest = self.verdict(0, "--card", "1GiB", *command)["smallest_card_bytes"] // MIB
        self.assertEqual(self.verdict(0, "--card", f"{smallest + 2}MiB", *command)["outcome"], "completed")
        full = self.verdict(0, "--card", f"{smallest // 2}MiB,{smallest * 3 // 4}MiB", *command)
        self.assertEqual(full["outcome"], "out_of_memory", full)
        self.assertEqual([c["fits"] for c in full["cards"]], [False, False])
        self.assertTrue(all(c["ends_at_event"] for c in full["cards"]))

    def test_stopped(self):
        verdict = self.verdict(1, "--", "sh", "-c", f"'{LOOP}' 200 return; echo a reason >&2; exit 3")
        self.assertEqual((verdict["outcome"], verdict["status"], verdict["cards"]), ("stopped", 3, []))
        self.assertIn("a reason", verdict["reason"])
        self.assertIn("compute nothing", verdict["reason"])
        verdict = self.verdict(1, "--", "true")
        self.assertIn("no device memory", verdict["reason"])

    def test_ends_without_a_verdict(self):
        """Whatever becomes of the program, one object says it."""
        keys = {"schema", "outcome", "reason", "status", "peak_requested_bytes", "peak_reserved_bytes", "cards",
                "served_share", "assumptions"}
        for command, status, reason in ((["/nowhere/program"], 127, "/nowhere/program: no such program"),
                                        (["/"], 126, "/: "), (["sh", "-c", "nothing-of-this-name"], 127,
                                                              "nothing-of-this-name"),
                                        (["env", *PLAIN_SEGV, "sh", "-c", "kill -SEGV $$"], 139, "signal 11 ended it"),
                                        (["sh", "-c", f"'{LOOP}' 200 return; kill -KILL $$"], 137, "signal 9 ended it"),
                                        (["sh", "-c", "kill -INT $$"], 130, "signal 2 ended it")):
            verdict = self.verdict(1, "--", *command)
            self.assertEqual((verdict["outcome"], verdict["status"], verdict["cards"]), ("stopped", status, []),
                             command)
            self.assertIn(reason, verdict["reason"])
            if status == 130:  # the user's doing, not the program's
                self.assertNotIn("compute", verdict["reason"])
            self.assertLessEqual(keys, set(verdict))
            said = rehearse("--", *command)
            self.assertEqual(said.returncode, 1)
            self.assertIn("It stopped: ", said.stdout)
            self.assertNotIn("Assumed", said.stdout)

    def test_beneath_is_said(self):
        command = ["--", LOOP, "500", "return"]
        self.assertFalse(any("PyTorch's cache" in text for text in self.verdict(0, *command)["assumptions"]))
        verdict = self.verdict(0, "--conf", "pytorch:beneath", *command)
        self.assertTrue(any("PyTorch's cache" in text for text in verdict["assumptions"]))

    def test_devices(self):
        for devices in ("0", "17", "x", "", "1x", "-1"):
            result = rehearse("--devices", devices, "--", "true")
            self.assertEqual((result.returncode, result.stdout), (2, ""), devices)
            self.assertIn("--devices takes a number from 1 to 16", result.stderr)

    def test_output_is_the_programs(self):
        result = rehearse("--json", "--", "sh", "-c", f"'{LOOP}' 200 return; echo out; echo err >&2")
        self.assertEqual(len(result.stdout.splitlines()), 1)
        self.assertIn("out\n", result.stderr)
        self.assertIn("err\n", result.stderr)
        text = rehearse("--card", "1GiB", "--", LOOP, "200", "return")
        self.assertTrue(text.stdout.splitlines()[0].startswith("It completed"), text)
        self.assertIn("fits", text.stdout)

    def test_usage(self):
        for arguments in (["--card", "big", "--", "true"], ["--card", "1KiB", "--", "true"], [], ["--card"]):
            result = rehearse(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result)
        self.assertEqual(rehearse("--", "/nonexistent/program").returncode, 1)

    def test_nothing_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            ENVIRONMENT["TMPDIR"] = folder
            self.addCleanup(ENVIRONMENT.pop, "TMPDIR")
            self.verdict(0, "--", LOOP, "200", "return")
            self.assertEqual(os.listdir(folder), [])


unittest.main()
