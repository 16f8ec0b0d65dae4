"""segalloc rehearse --with: two programs on one card. What it says is tried on a simulated card that two processes share.

Usage: test_colocate.py SEGALLOC TURNS [CASES [SEED]]"""
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

SEGALLOC, TURNS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
CASES, SEED = (int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else n for n in (6, 1))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_", "TURNS")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
MIB, PAGE = 1 << 20, 2 << 20


def tool(*arguments):
    return subprocess.run([SEGALLOC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def rehearse(one, other, *more):
    return tool("rehearse", "--margin", "0", "--card", "1GiB", *more, "--with", shlex.join([TURNS, *other]), "--", TURNS, *one)


def colocation(one, other, *more):
    result = rehearse(one, other, "--json", *more)
    found = json.loads(result.stdout.splitlines()[-1])["colocation"]
    return result.returncode, found


class Card:
    """A simulated card that processes share, and the turns that they take."""
    def __init__(self, size):
        self.folder = tempfile.TemporaryDirectory()
        self.name = f"colocate-{os.getpid()}-{os.path.basename(self.folder.name)}"
        self.sim = f"{size},at-once,card={self.name}"
        self.turns = os.path.join(self.folder.name, "turns")
        open(self.turns, "wb").close()
        self.running = []

    def start(self, acts):
        process = subprocess.Popen([SEGALLOC, "run", "-q", "--sim", self.sim, "--conf", "oom_report:never", "--", TURNS, *acts],
                                   env={**ENVIRONMENT, "TURNS": self.turns}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.running.append(process)
        return process

    def next(self):
        with open(self.turns, "ab") as file:
            file.write(b"x")

    def reach(self, turn):
        until = time.monotonic() + 60
        while os.path.getsize(self.turns) < turn and time.monotonic() < until:
            time.sleep(0.01)

    def end(self):
        """The programs' statuses. One that fails is waited for by the other in vain, so that is ended."""
        said = []
        while any(process.poll() is None for process in self.running) and not any(process.poll() for process in self.running):
            time.sleep(0.01)
        for process in self.running:
            if process.poll() is None:
                process.kill()
            said.append((process.wait(), process.stderr.read()))
            process.stderr.close()
        self.folder.cleanup()
        path = f"/dev/shm/segalloc-sim-{self.name}"
        if os.path.exists(path):
            os.unlink(path)
        return said


def run_both(one, other, size):
    card = Card(size)
    card.start(one)
    card.start(other)
    return card.end()


def without_pauses(acts):
    """They take turns all the same: where two processes run out at once, chance decides who gives the other what is idle."""
    return [act for act in acts if not act.startswith(("pause", "resume"))]


def program(draw, first, rounds):
    """Acts of a program that works when its turn has come, and is paused else."""
    acts, blocks, letters = [], {}, iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    tags = draw.sample(["w", "kv!", "x"], draw.randint(1, 3))

    def take(tag):
        letter = next(letters)
        acts.extend([f"tag={tag}", f"{letter}+{draw.choice((4, 300, 1500, draw.randint(2000, 60000)))}", f"fill={letter}"])
        blocks[letter] = tag

    for turn in range(rounds):
        acts.append(f"turn={2 * turn + first}")
        if turn:
            acts.append("resume")
            acts.extend(f"is={letter}" for letter, tag in blocks.items() if not tag.endswith("!"))
            acts.extend(f"fill={letter}" for letter, tag in blocks.items() if tag.endswith("!"))
        for _ in range(draw.randint(1, 5)):
            take(draw.choice(tags))
        if draw.random() < 0.4:
            take("")
        if draw.random() < 0.2:
            acts.append(f"Z!{draw.randint(1, 4) * 2048}")
        for letter in draw.sample(sorted(blocks), draw.randint(0, len(blocks) // 2)):
            acts.append(f"{letter}-")
            del blocks[letter]
        acts.append("pause")
        if draw.random() < 0.3:
            take("")
        acts.append("next")
        if blocks and draw.random() < 0.3:
            letter = draw.choice(sorted(blocks))
            acts.append(f"{letter}-")
            del blocks[letter]
    return acts


ENGINE = ["turn=0", "tag=w", "a+100000", "fill=a", "tag=kv!", "b+150000", "tag=", "c+3000", "pause", "next", "turn=2", "resume", "is=a",
          "pause", "next"]
TRAINER = ["turn=1", "tag=t", "a+200000", "fill=a", "pause", "next", "turn=3", "resume", "is=a"]


class Colocate(unittest.TestCase):
    def assert_fits(self, one, other, size, fits):
        said = run_both(one, other, size)
        self.assertEqual(all(status == 0 for status, _ in said), fits, (size, said, shlex.join(one), shlex.join(other)))

    def test_what_is_said_is_so(self):
        """On the card that is said both run, on one that is a page smaller they do not."""
        status, found = colocation(ENGINE, TRAINER)
        self.assertEqual(status, 0)
        pause, keep = (found[way]["smallest_card_bytes"] for way in ("pause", "keep"))
        self.assertEqual(found["pause_discard"]["smallest_card_bytes"], pause)
        self.assertLess(pause, 256 * MIB)
        self.assertGreater(keep, (100000 + 150000 + 3000 + 200000) << 10)
        self.assert_fits(ENGINE, TRAINER, pause, True)
        self.assert_fits(ENGINE, TRAINER, pause - PAGE, False)
        self.assert_fits(without_pauses(ENGINE), without_pauses(TRAINER), keep, True)
        self.assert_fits(without_pauses(ENGINE), without_pauses(TRAINER), keep - PAGE, False)

    def test_host_and_seconds(self):
        """Contents are saved to the byte, and copied as often as the programs pause."""
        _, found = colocation(ENGINE, TRAINER, "--rate", "1GiB")
        engine, trainer = found["programs"]
        self.assertEqual((engine["saved_bytes"], trainer["saved_bytes"]), (100000 << 10, 200000 << 10))
        self.assertEqual((engine["switches"], trainer["switches"]), (2, 1))
        self.assertEqual((engine["pauses"], engine["tags"]), (True, True))
        self.assertEqual(found["pause"]["host_bytes"], 300000 << 10)
        self.assertAlmostEqual(found["pause"]["seconds"], (3 * 100000 + 2 * 200000) / (1 << 20), places=4)
        for way in "keep", "pause_discard":
            self.assertEqual((found[way]["host_bytes"], found[way]["seconds"]), (0, 0))
        _, named = colocation(ENGINE, TRAINER, "--rate", "pcie5")
        self.assertEqual((named["bytes_per_second"], named["rate_source"][:15]), (63015000000, "PCI Express 5.0"))

    def test_paused_from_outside(self):
        """A program that never pauses is paused by `segalloc pause PID`, and comes back with its contents."""
        holder = ["tag=w", "a+120000", "fill=a", "tag=", "b+5000", "fill=b", "next", "turn=2", "is=a", "is=b"]
        worker = ["a+150000", "fill=a"]
        status, found = colocation(holder, worker)
        self.assertEqual([status, *((p["pauses"], p["tags"]) for p in found["programs"])], [0, (False, True), (False, False)])
        size = found["pause"]["smallest_card_bytes"]
        # the worker has no tags: what it holds stays, so both together need their sum
        self.assertEqual(found["programs"][1]["stays_bytes"], found["programs"][1]["need_bytes"])
        self.assertGreaterEqual(found["pause"]["host_bytes"], 120000 << 10)
        tagged = ["tag=x", *worker]
        _, found = colocation(holder, tagged)
        size = found["pause"]["smallest_card_bytes"]
        for smaller in 0, PAGE:
            card = Card(size - smaller)
            held = card.start(holder)
            card.reach(1)
            paused = tool("pause", str(held.pid))
            self.assertEqual(paused.returncode, 0, paused)
            worked = card.start(tagged)
            self.assertEqual(worked.wait(), int(smaller > 0), found)
            worked.stderr.close()
            card.running.remove(worked)
            self.assertEqual(tool("resume", str(held.pid)).returncode, 0)
            card.next()
            self.assertEqual([status for status, _ in card.end()], [0])

    def test_a_program_without_tags(self):
        """With the option `tag` all memory of an unchanged program leaves."""
        worker = ["a+120000", "b+3000", "tag=", "c+1000"]
        _, found = colocation(worker, worker)
        self.assertEqual(found["pause"]["smallest_card_bytes"], found["keep"]["smallest_card_bytes"])
        self.assertIn("CMD has no memory under a tag", rehearse(worker, worker).stdout)
        _, found = colocation(worker, worker, "--conf", "tag:all")
        self.assertEqual([p["stays_bytes"] for p in found["programs"]], [0, 0])
        self.assertEqual(found["pause"]["smallest_card_bytes"], found["programs"][0]["need_bytes"])
        self.assertIn("the option tag takes a name of 63 bytes", tool("run", "--sim", "1GiB", "--conf", "tag:" + 64 * "x", "--", TURNS, "a+4").stderr)

    def test_parts(self):
        """A program that pauses one of two tags holds the other while it is paused; once it pauses both, only that counts."""
        part = ["tag=w", "a+100000", "tag=kv", "b+50000", "pause=kv", "resume"]
        other = ["tag=w", "a+100000", "pause"]
        _, found = colocation(part, other)
        self.assertGreaterEqual(found["programs"][0]["stays_bytes"], 100000 << 10)
        _, found = colocation([*part, "pause"], other)
        self.assertEqual(found["programs"][0]["stays_bytes"], 0)

    def test_memory_of_other_calls_stays(self):
        _, found = colocation(["a!40960", "tag=w", "b+100000", "pause"], ["tag=w", "a+100000", "pause"])
        self.assertEqual(found["programs"][0]["stays_bytes"], 40 * MIB)
        _, found = colocation(["tag=w", "b+100000", "pause"], ["tag=w", "a+100000", "pause", "a!40960"])
        self.assertEqual(found["programs"][1]["stays_bytes"], 40 * MIB)

    def test_what_is_not_known(self):
        for one, other, reason in ((["a+1000", "b?"], ["a+1000"], "CMD stopped: "), (["a+1000"], ["a+1000", "b?"], "the program of --with stopped: ")):
            status, found = colocation(one, other)
            self.assertEqual((status, found["keep"]["smallest_card_bytes"], found["reason"][:len(reason)]), (1, None, reason))
            self.assertIn(f"Both on one card: not known, for {reason}", rehearse(one, other).stdout)

    def test_usage(self):
        for arguments, line in ((["--with", "true", "--devices", "2", "--", "true"], "--with is of one card, and --devices says 2"),
                                (["--with", "true", "--try", "batch=1", "--", "true", "--batch", "2"], "--with is of one command"),
                                (["--with", "true", "--rate", "fast", "--", "true"], "--rate takes pcie3, pcie4, pcie5, or bytes a second"),
                                (["--rate", "pcie3", "--", "true"], "--rate is of --with"), (["--with", "true"], "which program?")):
            result = tool("rehearse", *arguments)
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(line, result.stderr)

    def test_cards_and_status(self):
        for card, status, verdicts in (("1GiB", 0, ("fits",) * 3), ("300MiB", 0, ("does_not_fit", "fits", "fits")),
                                       ("128MiB", 3, ("does_not_fit",) * 3)):
            result = tool("rehearse", "--json", "--margin", "0", "--card", card, "--with", shlex.join([TURNS, *TRAINER]), "--", TURNS, *ENGINE)
            found = json.loads(result.stdout.splitlines()[-1])["colocation"]
            self.assertEqual(result.returncode, status, result)
            self.assertEqual(tuple(found[way]["cards"][0]["verdict"] for way in ("keep", "pause", "pause_discard")), verdicts)
        text = rehearse(ENGINE, TRAINER).stdout
        self.assertRegex(text, r"\n  pause +[0-9.]+ MiB +292.97 MiB +0.0[0-9]* s +fits\n")
        self.assertIn("CMD pauses its memory itself, 2 times: 4.00 MiB stay then", text)

    def test_random_programs(self):
        """Never is a card said to be enough that is not, for pauses and for keep."""
        for case in range(CASES):
            draw = random.Random(SEED * 1000003 + case)
            rounds = draw.randint(1, 3)
            one, other = program(draw, 0, rounds), program(draw, 1, rounds)
            with self.subTest(case=case, seed=SEED):
                _, found = colocation(one, other)
                self.assert_fits(one, other, found["pause"]["smallest_card_bytes"], True)
                self.assert_fits(without_pauses(one), without_pauses(other), found["keep"]["smallest_card_bytes"], True)


def recorded(acts, path, size="1GiB"):
    """The program without turns, with its trace. Its status."""
    return subprocess.run([SEGALLOC, "run", "-q", "--sim", f"{size},at-once", "-f", "-o", path, "--conf", "oom_report:never", "--", TURNS,
                           *(act for act in acts if not act.startswith(("turn", "next")))],
                          env=ENVIRONMENT, stderr=subprocess.DEVNULL, timeout=60).returncode


class Replayed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.trace = os.path.join(folder.name, "T")

    def told(self, *arguments):
        result = tool(*arguments)
        self.assertEqual(result.returncode, 0, result)
        return json.loads(result.stdout)

    def test_pauses_replay_exactly(self):
        """A replay with the recorded settings decides as the run did, and has its figures to the byte."""
        keys = "requested_bytes", "allocated_bytes", "reserved_bytes", "paused_bytes", "pages_moved"
        for case in range(CASES):
            with self.subTest(case=case):
                self.assertEqual(recorded(program(random.Random(case), 0, 3), self.trace), 0)
                report, replay = self.told("report", "--json", self.trace), self.told("replay", "--json", self.trace)
                self.assertEqual((replay["as_recorded"], replay["diverged_event"]), (True, None))
                self.assertGreater(sum(tag["pauses"] for tag in report["tags"]), 0)
                for key in "peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes":
                    self.assertEqual(replay[key], report[key], key)
                now = report["devices"][0]["statistics"]
                self.assertEqual(replay["end_reserved_bytes"], now["reserved_bytes"], keys)
                self.assertEqual(replay["pages_moved"], now["pages_moved"])

    def test_smallest_card_of_a_trace_with_pauses(self):
        """What is paused takes nothing of it: the program runs on that card, and not on one that is a page smaller."""
        for acts in (["tag=w", "a+200000", "pause", "tag=", "b+250000", "b-", "resume", "a-", "c+100000"],
                     ["tag=w", "a+200000", "pause", "a-", "tag=", "b+150000", "resume", "c+50000"],  # freed while it is paused
                     ["tag=w!", "a+100000", "tag=x", "b+100000", "pause=w", "tag=", "c+90000", "c-", "resume", "pause=x", "d+100000"]):
            with self.subTest(acts):
                self.assertEqual(recorded(acts, self.trace), 0)
                smallest = self.told("replay", "--json", "--min-limit", self.trace)["min_limit_bytes"]
                self.assertLess(smallest, 256 * MIB)
                tune = self.told("tune", "--json", "--limit", str(smallest), self.trace)  # it takes the card for one that is enough
                self.assertEqual(tune["default"]["ooms"], 0)
                self.assertEqual([recorded(acts, self.trace, str(smallest - less)) for less in (0, PAGE)], [0, 1])


if __name__ == "__main__":
    unittest.main()
