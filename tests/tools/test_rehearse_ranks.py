"""segalloc rehearse of programs of several processes: those on one card count together.

Usage: test_rehearse_ranks.py SEGALLOC LOOP ACTS"""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import rehearsal
from rehearsal import ACTS, ENVIRONMENT, MIB, RANKS, SEGALLOC, rehearse
from shared import of_answers


class Ranks(rehearsal.Case):
    def test_a_child_without_the_library_counts(self):
        """The simulator notes what it held, at once with its parent or after it, however it ends."""
        child = f"env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH SEGALLOC_SIM=$SEGALLOC_SIM '{ACTS}'"
        both = f"'{ACTS}' a+300 say=x wait & parent=$!; sleep 1; {child} a+700 END; s=$?; kill $parent; exit $s"
        for end in ("return", "_exit"):
            script = both.replace("END", end)
            verdict = self.verdict(3, "--card", "850MiB,1GiB", "--margin", "0", "--", "sh", "-c", script)
            self.assertEqual([card["fits"] for card in verdict["cards"]], [False, True], verdict)
            self.assertEqual((verdict["unseen_processes"], verdict["unseen_bytes"]), (1, 700 * MIB))
            self.assertEqual(verdict["smallest_card_bytes"], 1000 * MIB)
        hidden = both.replace("END", "return").replace("exit $s", "exit 0")
        self.verdict(3, "--card", "850MiB", "--margin", "0", "--", "sh", "-c", hidden)
        after = f"'{ACTS}' a+300; {child} a+700"
        self.assertEqual(self.verdict(0, "--card", "850MiB", "--margin", "0", "--", "sh", "-c", after)["smallest_card_bytes"], 700 * MIB)
        self.assertIn("1 process had all memory from the driver, without segalloc", rehearse("--card", "850MiB", "--", "sh", "-c", after).stdout)
        alone = ["--card", "600MiB,850MiB", "--margin", "0", "--", "sh", "-c", f"{child} a+700"]
        self.assertEqual([card["fits"] for card in self.verdict(3, *alone)["cards"]], [False, True])

    def ranks(self, status, cards, how, *ranks, options=("--devices", "4", "--margin", "0")):
        """The verdicts of ranks that are there at once, each of which has what it asks for."""
        return self.verdict(status, *options, "--card", cards, "--", sys.executable, RANKS, ACTS, how, *ranks)

    def test_processes_on_one_card_count_together(self):
        """Whether they see it alone or among others, and by which number: the verdict is that of all."""
        for ranks in ((":a+300", ":a+300"), ("0:a+300", "0:a+300"), ("2:a+300", "3,2:device=1 a+300"), (":device=1 a+300", "1:a+300"),
                      ("1,0:device=1 a+50 device=0 b+300", "0:a+200", "1:a+300")):
            with self.subTest(ranks):
                verdict = self.ranks(3, "512MiB,1GiB", "once", *ranks)
                self.assertEqual([card["verdict"] for card in verdict["cards"]], ["does_not_fit", "fits"])
                self.assertEqual((verdict["smallest_card_bytes"], verdict["peak_taken_bytes"]), (600 * MIB, 600 * MIB))
                self.assertFalse(verdict["adapts"])
                self.assertEqual(max(shared["peak_requested_bytes"] for shared in verdict["shared"]), 600 * MIB)
        text = rehearse("--card", "1GiB", "--", sys.executable, RANKS, ACTS, "once", ":a+300", ":b+20", ":c+3").stdout
        self.assertIn("3 processes were on device 0 at once: they count together, with up to 323.00 MiB in use, and a context each.", text)
        self.assertIn("At the peak 323.00 MiB were in use, by all processes that were on one card at once;", text)
        one = json.loads(rehearse("--json", "--card", "1GiB", "--", ACTS, "a+3").stdout)["cards"][0]["margin_bytes"]
        self.assertIn(f"Context and libraries take some {3 * one / (1 << 30):.2f} GiB more", text)
        self.assertIn(" --sim 1GiB,drop_mb=1,card=shared -- ", text)

    @of_answers
    def test_processes_on_cards_of_their_own(self):
        """Each rank sees one device, as its device 0, or all of them: none counts with another."""
        for ranks in ((":a+300", ":device=1 a+300"), ("0:a+300", "1:a+300", "2:a+300", "3:a+300"), ("1:a+300", "0:a+300"),
                      ("3,1:a+300", "1:a+290"), ("2,3:a+1 device=1 b+300", "2:a+290")):
            with self.subTest(ranks):
                verdict = self.ranks(0, "512MiB", "once", *ranks)
                self.assertEqual(verdict["smallest_card_bytes"], 300 * MIB)
                self.assertEqual([card["verdict"] for card in verdict["cards"]], ["fits"])

    @of_answers
    def test_processes_one_after_the_other(self):
        """They need what the largest does, however each ends."""
        for end in ("return", "_exit", "kill"):
            command = f"'{ACTS}' a+300 {end}; '{ACTS}' a+290 {end}; '{ACTS}' a+280"
            verdict = self.verdict(0, "--card", "512MiB", "--margin", "0", "--", "sh", "-c", command)
            self.assertEqual((verdict["smallest_card_bytes"], verdict["shared"]), (300 * MIB, []), end)

    @of_answers
    def test_devices_that_processes_share(self):
        """Ranks are on the devices that they used, whichever those are; one that uses two is on both."""
        for ranks, together in (((":device=0 a+10", ":device=1 a+20"), []),
                                ((":device=1 a+10", ":device=3 a+20"), []),
                                ((":device=2 a+10", "2:a+20"), [(2, 2, 30)]),
                                (("3:a+10 b+20", "3:a+20"), [(3, 2, 50)]),
                                ((":a+5 device=3 b+10", ":device=1 a+20 device=3 b+7", "3:a+3"), [(3, 3, 20)])):
            told = self.ranks(0, "24GiB", "once", *ranks)["shared"]
            self.assertEqual([(d["device"], d["processes"], d["peak_requested_bytes"] // MIB) for d in told], together, ranks)

    def test_processes_that_take_turns(self):
        """On a card that is too small for all peaks at once the program is tried; whoever fails there does not fit."""
        for how, ranks, status, said in (
                ("turns", (":a+10 b+300 b-", ":a+300"), 0, "too_close"),      # the first gives back before the second begins
                ("turns", (":a+10 b+300", ":a+300"), 3, "does_not_fit"),
                ("once", (":a!300", ":a!300"), 3, "does_not_fit"),            # by calls that are not served
                ("forgives", (":a+300", ":a+300"), 3, "does_not_fit"),        # a launcher that does not say who has failed
                ("forgives", (":a+10 b!300", ":a+10 b!300"), 3, "does_not_fit"),
                ("forgives", (":a!300", ":a!300"), 3, "does_not_fit"),
                ("once", (":a%30", ":a%30"), 0, "fits"),                      # a share of what there is
                ("once", (":a%60", ":a%60"), 3, "does_not_fit"),
                ("once", ("0:a%60", "1:a%60"), 0, "fits")):
            with self.subTest(how=how, ranks=ranks):
                verdict = self.ranks(status, "512MiB,1GiB" if status == 0 else "512MiB", how, *ranks)
                card = verdict["cards"][0]
                self.assertEqual((card["verdict"], card["took_turns"]), (said, said == "too_close"))
        text = rehearse("--card", "512MiB", "--margin", "0", "--", sys.executable, RANKS, ACTS, "turns", ":a+10 b+300 b-", ":a+300").stdout
        self.assertIn("512.00 MiB: too close to call.\n  It was run on a card of this size too: its processes had room there one after the other. "
                      "Where their peaks meet they need 610.00 MiB.\n", text)

    def test_no_card_is_left(self):
        process = subprocess.Popen([SEGALLOC, "rehearse", "--card", "512MiB", "--", sys.executable, RANKS, ACTS, "once", ":a+300", ":a+300"],
                                   env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertIn("Running it once more", process.communicate(timeout=120)[1])
        self.assertFalse(os.path.exists(f"/dev/shm/segalloc-sim-{os.geteuid()}-rehearse-{process.pid}"))

    def test_processes_that_wait_for_one_that_failed(self):
        """A run at a card's size has an end, and nothing of it is left."""
        result = rehearse("--json", "--card", "512MiB", "--", sys.executable, RANKS, ACTS, "waits", ":a+300", ":b+301")
        self.assertEqual(result.returncode, 3, result)
        self.assertRegex(result.stderr, "it was ended after [0-9]+ s, for it took [0-9]+ s before: it came to no end there")
        self.assertEqual(json.loads(result.stdout.splitlines()[-1])["cards"][0]["verdict"], "does_not_fit")
        alive = []
        for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                alive.append(process.read_bytes())
        self.assertFalse([command for command in alive if b"\0b+301\0" in command])

    @of_answers
    def test_hidden_devices(self):
        """A rank that sees no device of so small a machine says which option makes more."""
        result = rehearse("--", sys.executable, RANKS, ACTS, "once", "1:a+10")
        self.assertEqual(result.returncode, 1)
        self.assertIn("CUDA_VISIBLE_DEVICES=1 names no device of a machine that has 1; count=N makes more (segalloc rehearse: --devices N)",
                      result.stderr)

    @unittest.skipIf("SANITIZER" in os.environ, "Python has no runtime of a sanitizer in it")
    def test_ranks_end_at_the_same_step(self):
        """Where one ended earlier than the other, that would wait at the next step for good."""
        optimizer = ("before, after = [], []\nregister_optimizer_step_pre_hook = before.append\n"
                     "register_optimizer_step_post_hook = after.append\n"
                     "class Optimizer:\n    def step(self):\n        [hook(self) for hook in before]\n        [hook(self) for hook in after]\n")
        script = ("import ctypes as c, multiprocessing, sys\n"
                  "def rank(number, barrier):\n    import torch.distributed, torch.optim.optimizer as o\n"
                  "    d = c.CDLL('libcuda.so.1'); x = c.c_void_p()\n"
                  "    d.cuInit(0); d.cuDevicePrimaryCtxRetain(c.byref(x), number); d.cuCtxSetCurrent(x)\n    opt = o.Optimizer()\n"
                  "    for step in range(30):\n        barrier.wait(20); block = c.c_uint64()\n"
                  "        d.cuMemAlloc_v2(c.byref(block), c.c_size_t(10 << 20)); opt.step()\n"
                  "        step < 1 + 4 * number or d.cuMemFree_v2(block)\n"
                  "if __name__ == '__main__':\n    spawn = multiprocessing.get_context('spawn'); barrier = spawn.Barrier(2)\n"
                  "    ranks = [spawn.Process(target=rank, args=(i, barrier)) for i in range(2)]\n"
                  "    [each.start() for each in ranks]; [each.join() for each in ranks]\n    sys.exit(any(each.exitcode for each in ranks))\n")
        distributed = "def is_initialized():\n    return True\ndef get_world_size():\n    return 2\n"
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("torch/__init__.py", ""), ("torch/optim/__init__.py", ""), ("torch/optim/optimizer.py", optimizer),
                               ("torch/distributed.py", distributed), ("train.py", script)):
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)
            result = subprocess.run([SEGALLOC, "rehearse", "--json", "--devices", "2", "--steps", "steady", "--", sys.executable,
                                     os.path.join(folder, "train.py")], env=dict(ENVIRONMENT, PYTHONPATH=folder), capture_output=True,
                                    text=True, timeout=120)
            self.assertEqual(result.returncode, 0, result)
            self.assertEqual(json.loads(result.stdout)["outcome"], "completed", result)
            ends = re.findall(r"steady since step (\d+): the program ends after step (\d+)", result.stderr)
            self.assertEqual(sorted(since for since, _ in ends), ["2", "6"], result)
            self.assertEqual(len({end for _, end in ends}), 1, result)


unittest.main()
