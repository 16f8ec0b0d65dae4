#!/usr/bin/env python3
"""What `check` says of programs with one mistake each: the kind, the block, and the functions that allocated and freed it.

    findings.py LIBRARY MISTAKES"""
import json
import os
import subprocess
import sys
import unittest

WRITE, OVERRUN = "write after free", "write behind the end of a block"
TWICE, WRONG = "free of a block that is freed already", "free of an address that no block begins at"
GONE = "free of a block whose context has ended"
BYTES, LARGE, HUGE, SMALL, MANY = 5000, 8 << 20, 160 << 20, 1000000, 100
# Of each mistake: the finding, the bytes of the block, and the first byte that differs (None: any, or no byte).
MISTAKES = {
    "set_after_free": (WRITE, BYTES, 100),
    "set_after_free_elsewhere": (WRITE, BYTES, 100),
    "copy_after_free": (WRITE, BYTES, 4096),
    "copy_from_device_after_free": (WRITE, BYTES, 0),
    "plain_set_after_free": (WRITE, BYTES, 4),  # byte 7, of the word that begins at 4
    "plain_copy_after_free": (WRITE, BYTES, 0),
    "large_after_free": (WRITE, LARGE, 0),
    "whole_large_after_free": (WRITE, LARGE, 0),
    "huge_after_free": (WRITE, HUGE, None),
    "end_of_large_after_free": (WRITE, LARGE, LARGE - 4),
    "last_half_of_large_after_free": (WRITE, LARGE, None),
    "last_byte_after_free": (WRITE, BYTES, BYTES - 4),
    "part_after_free": (WRITE, LARGE, None),
    "graph_after_free": (WRITE, BYTES, 0),
    "unrecorded_stream": (WRITE, BYTES, 0),
    "after_the_stream_is_gone": (WRITE, BYTES, 0),
    "graph_launched_after_its_block_is_gone": (WRITE, BYTES, 0),
    "overrun_by_1": (OVERRUN, BYTES, BYTES),
    "overrun_of_unit_by_1": (OVERRUN, 4096, 4096),
    "overrun_by_512": (OVERRUN, 4096, 4096),
    "overrun_by_4096": (OVERRUN, BYTES, BYTES),
    "underrun": (OVERRUN, 4096, None),
    "underrun_by_1": (OVERRUN, 4096, 4096 + 511),
    "plain_overrun": (OVERRUN, BYTES, BYTES),
    "double_free": (TWICE, BYTES, None),
    "plain_double_free": (TWICE, BYTES, None),
    "double_free_beside_contexts": (TWICE, BYTES, None),
    "free_of_the_middle": (WRONG, BYTES, None),
    "free_of_an_odd_address": (WRONG, BYTES, None),
    "free_after_the_context_is_gone": (GONE, BYTES, None),
}
# Those whose order the program makes by waiting on the host: a simulator that draws the order has none of them.
IN_ORDER = {"kernel_still_queued": (WRITE, BYTES, 0)}
# Those that are not noticed, and why: no stream is left that could fill the memory; nothing may be added to a capture.
MISSED = {"after_the_context_is_gone": None, "after_the_graph_is_gone": "1 during captures"}
# CUDA allows a free while another context is current, and no byte is wrong.
FINE = ["none", "free_in_another_context", "odd_sizes_on_a_full_card"]
SIMS = ["1GiB", "1GiB,schedule=3", "1GiB,driver=12.4", "1GiB,no-vmm"]


def run(mistake, conf, sim="1GiB"):
    environment = {**os.environ, "SEGALLOC_SIM": sim, "SEGALLOC_CONF": conf, "LD_PRELOAD": sys.argv[1]}
    return subprocess.run([sys.argv[2], mistake], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


def objects(result):
    """The JSON objects of a run with check:json: the findings, and the end."""
    lines = [json.loads(line.removeprefix("segalloc: check: ")) for line in result.stderr.splitlines()
             if line.startswith("segalloc: check: ")]
    return lines[:-1], lines[-1]


class Findings(unittest.TestCase):
    maxDiff = None

    def test_each_mistake(self):
        for sim in SIMS[:2]:
            for mistake, (kind, size, offset) in (MISTAKES if sim != SIMS[0] else {**MISTAKES, **IN_ORDER}).items():
                with self.subTest(mistake=mistake, sim=sim):
                    result = run(mistake, "check:json", sim)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    found, end = objects(result)
                    self.assertGreaterEqual(end["findings"], 1)
                    one = next((each for each in found if each["finding"] == kind), None)
                    self.assertIsNotNone(one, result.stderr)
                    self.assertEqual(one["block"]["bytes"], size)
                    self.assertIn("first_owner", one["block"]["allocated"]["site"])
                    if kind not in (WRONG, GONE):
                        self.assertIn("first_end", one["block"]["freed"]["site"])
                    if offset is not None:
                        self.assertEqual(one["offset"], offset)
                    self.assertLessEqual(one.get("offset", 0), one.get("last", one.get("offset", 0)))
                    if kind == WRITE:
                        self.assertGreater(one["now"]["by"]["event"], one["block"]["freed"]["event"])

    def test_what_is_fine(self):
        for sim in SIMS:
            for mistake in FINE:
                with self.subTest(mistake=mistake, sim=sim):
                    result = run(mistake, "check:fail", sim)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertIn(": nothing wrong", result.stderr)
                    self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_what_is_missed(self):
        """Nothing is said of these that is not true, and what was not looked at is counted."""
        for sim in SIMS[:2]:
            for mistake, why in MISSED.items():
                with self.subTest(mistake=mistake, sim=sim):
                    found, end = objects(run(mistake, "check:json", sim))
                    self.assertEqual((found, end["findings"]), ([], 0))
                    self.assertIn(why or "", end["not_looked_at"])

    def test_every_driver(self):
        """Without pages that move, and without an event over a context, by which a plain free is filled."""
        for sim in SIMS[2:]:
            found, _ = objects(run("set_after_free", "check:json", sim))
            if "no-vmm" in sim:  # a free in a segment waits: it is filled as a plain one is
                found, _ = objects(run("plain_set_after_free", "check:json", sim))
            self.assertEqual([each["finding"] for each in found], [WRITE], sim)

    def test_thorough(self):
        """Every byte of what was freed is read, of a block of many pages, behind work of two seconds too, of one that no stream gets,
        and of many blocks."""
        for mistake, size, read in ("word_of_huge_after_free", HUGE, HUGE), ("word_of_huge_behind_long_work", HUGE, HUGE), \
                ("plain_end_of_large_after_free", LARGE, LARGE), ("many_after_free", SMALL, MANY * SMALL * 9 // 10):
            with self.subTest(mistake=mistake):
                for _ in range(3):  # a machine that is busy for ten seconds has samples left out, and says so
                    found, end = objects(run(mistake, "check:fill+thorough+json", "1GiB,kernel_us=2000000"))
                    if "too many samples were on their way" not in end["not_looked_at"]:
                        break
                self.assertEqual(end["not_looked_at"], "")
                self.assertEqual([(each["finding"], each["block"]["bytes"]) for each in found], [(WRITE, size)])
                self.assertGreaterEqual(end["read"], read)
        self.assertGreater(end["findings"], MANY * 9 // 10)
        _, end = objects(run("many_after_free", "check:fill+json"))
        self.assertEqual(end["not_looked_at"], "1 of more freed blocks than one allocation looks at")

    def test_windows_far_apart(self):
        """Windows of a block of 17 GiB are further apart than the driver's greatest pitch."""
        found, end = objects(run("windows_far_apart", "check:fill+json", "40GiB"))
        self.assertEqual((found, end["not_looked_at"], end["filled"]), ([], "", 9 * 1024 + 512))
        self.assertEqual(end["read"], 9 * 512 + 512 - 128)  # the next block's stamps are spared

    def test_places(self):
        """Frees of what is no block are told for each place, up to 256; the end counts the others."""
        found, end = objects(run("wrong_frees", "check:json"))
        self.assertEqual([each["finding"] for each in found], [WRONG] * 3)
        self.assertEqual((end["findings"], end["not_told"]), (3, 0))
        found, end = objects(run("many_places", "check:json"))
        self.assertEqual((len(found), end["findings"], end["not_told"]), (256, 300, 44))
        self.assertIn(": 300 findings (free of a block that is freed already: 300; 44 of them not told, since 256 places were told before)",
                      run("many_places", "check:on").stderr.splitlines()[-1])

    def test_full_card(self):
        """A program that fills its card gets what it gets without, but for what tails take: 1/256 at most."""
        for sim in SIMS:
            with self.subTest(sim=sim):
                checked, plain = (int(run("edge", f"check:{word}", sim).stdout) for word in ("on", "off"))
                self.assertGreater(checked, 50)
                self.assertLessEqual(plain - checked, 1)  # 64 blocks are the whole card, to the last byte

    def test_nobody_reads(self):
        """Standard error is a pipe whose reader has closed: the text is lost, and the program ends as it does without."""
        reader, writer = os.pipe()
        os.close(reader)
        self.addCleanup(os.close, writer)
        for program in ("none", "set_after_free", "double_free"):
            for conf, status in (("check:off", 0), ("check:on", 0), ("check:json", 0), ("check:fail", 4 * (program != "none"))):
                with self.subTest(program=program, conf=conf):
                    environment = {**os.environ, "SEGALLOC_SIM": SIMS[0], "SEGALLOC_CONF": conf, "LD_PRELOAD": sys.argv[1]}
                    done = subprocess.run([sys.argv[2], program], env=environment, stdout=subprocess.DEVNULL, stderr=writer, timeout=60)
                    self.assertEqual(done.returncode, status)

    def test_contracts(self):
        """The first line of a finding, the last line, and the status."""
        result = run("set_after_free", "check:on")
        lines = result.stderr.splitlines()
        self.assertEqual(lines[0], f"segalloc: check: {WRITE}")
        self.assertRegex(lines[-1], r"^segalloc: check: checked 1 free, .* filled, .* read back: 1 finding \(write after free: 1\)$")
        self.assertEqual(result.returncode, 0)
        for line in lines[1:-1]:
            self.assertRegex(line, r"^  (where|block|now|between|likely|next|  ) ")
        self.assertEqual(run("set_after_free", "check:fail").returncode, 4)
        self.assertEqual(run("set_after_free", "check:fill+fail").returncode, 4)
        self.assertEqual(run("set_after_free", "check:canary+fail").returncode, 0)
        self.assertEqual(run("overrun_by_1", "check:canary+fail").returncode, 4)
        self.assertEqual(run("overrun_by_1", "check:fill+fail").returncode, 0)
        self.assertNotIn("check", run("set_after_free", "check:off").stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
