#!/usr/bin/env python3
"""What `check:guard` says of programs with one mistake each, and that what is none stays unsaid.

    guards.py LIBRARY GUARDED SEGALLOC"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

FAULT, USE, OVERRUN = "error of the GPU", "use of a freed block", "write behind the end of a block"
TWICE, WRONG = "free of a block that is freed already", "free of an address that no block begins at"
GONE = "free of a block whose context has ended"
BYTES, SLOT = 5000, 5120
ILLEGAL, INVALID = 700, 1
# Of each mistake: the finding, the offset of its address in the block, and the error that the program gets.
MISTAKES = {
    "read_after_free": (FAULT, 100, ILLEGAL),
    "write_after_free": (FAULT, 0, ILLEGAL),
    "write_after_free_elsewhere": (FAULT, BYTES - 1, ILLEGAL),
    "plain_read_after_free": (FAULT, 0, ILLEGAL),
    "overrun_past_slack": (FAULT, SLOT, ILLEGAL),
    "graph_after_free": (FAULT, 0, ILLEGAL),
    "read_long_after_free": (FAULT, 0, ILLEGAL),
    "set_after_free": (USE, 8, INVALID),
    "copy_after_free": (USE, 0, INVALID),
    "overrun_into_slack": (OVERRUN, BYTES, 0),
    "overrun_by_1": (OVERRUN, BYTES, 0),
    "double_free": (TWICE, 0, INVALID),
    "plain_double_free": (TWICE, 0, INVALID),
    "free_of_the_middle": (WRONG, 512, INVALID),
    "free_after_context": (GONE, 0, INVALID),
}
FINE = ["none", "questions", "memory_comes_back", "all_stay", "captured", "contexts"]
SIMS = ["8GiB,hazard", "8GiB,hazard,schedule=3", "8GiB,hazard,driver=12.4"]
ALL = "guard_rate:0,guard_size:5000"  # every block of the program's
PAGES = ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree",
         "cuCtxRecordEvent", "cuEventCreate", "cuEventQuery", "cuMemsetD8Async", "cuMemGetAllocationGranularity", "cuMemHostAlloc",
         "cuPointerGetAttribute", "cuEventRecord"]


def run(program, sim=SIMS[0], conf="check:guard+json," + ALL):
    environment = {**os.environ, "SEGALLOC_SIM": sim, "SEGALLOC_CONF": conf, "LD_PRELOAD": sys.argv[1]}
    return subprocess.run([sys.argv[2], program], env=environment, capture_output=True, text=True, timeout=120)


def objects(result):
    """The JSON objects of a run: the findings, and the end."""
    lines = [json.loads(line.removeprefix("segalloc: check: ")) for line in result.stderr.splitlines()
             if line.startswith("segalloc: check: ")]
    return lines[:-1], lines[-1]


def hazards(result):
    return [line for line in result.stderr.splitlines() if line.startswith("segalloc simulator: hazard")]


class Guards(unittest.TestCase):
    maxDiff = None

    def block_of(self, finding):
        return finding["blocks"][0] if finding["finding"] == FAULT else finding["block"]

    def test_each_mistake(self):
        for sim in SIMS:
            for mistake, (kind, offset, error) in MISTAKES.items():
                with self.subTest(mistake=mistake, sim=sim):
                    result = run(mistake, sim)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertEqual(result.stdout, f"{error}\n", result.stderr)
                    found, end = objects(result)
                    self.assertEqual([each["finding"] for each in found], [kind], result.stderr)
                    block = self.block_of(found[0])
                    self.assertEqual(block["bytes"], BYTES)
                    self.assertIn("guarded_owner", block["allocated"]["site"])
                    if mistake.endswith("after_free") or kind in (TWICE, OVERRUN):
                        self.assertIn("guarded_end", block["freed"]["site"])
                    address = found[0]["address"] if kind in (FAULT, OVERRUN) else found[0]["now"]["address"]
                    self.assertEqual(address - block["address"], offset)
                    self.assertEqual(end["faults"], int(kind in (FAULT, USE)))
                    self.assertGreaterEqual(end["guarded"], 1)
                    self.assertLessEqual(end["quarantine"], end["guarded"])

    def test_what_is_fine(self):
        for sim in SIMS:
            for program in FINE:
                with self.subTest(program=program, sim=sim):
                    result = run(program, sim, "check:guard+fill+canary+fail," + ALL)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertEqual(hazards(result), [])
                    self.assertIn(": nothing wrong", result.stderr)
                    if "12.4" not in sim or program != "memory_comes_back":  # a helper thread waits there, some time later
                        self.assertNotIn("bad", result.stdout)
        for sim in ("2GiB,count=2,hazard", "2GiB,count=2,hazard,driver=12.4"):
            result = run("peers", sim, "check:guard+fail," + ALL)
            self.assertEqual((result.returncode, result.stdout), (0, "0\n"), result.stderr)

    def test_blocks_that_end_with_their_context(self):
        """Each wrong free is told, whether its block is guarded or not. A guarded block was freed where its context was destroyed."""
        found, end = objects(run("frees_after_contexts"))
        self.assertEqual([(each["finding"], each["block"]["bytes"]) for each in found], [(GONE, BYTES + 1), (GONE, BYTES)])
        self.assertEqual((end["findings"], end["not_told"]), (2, 0))
        self.assertIn("guarded_context_end", found[1]["block"]["freed"]["site"])

    def test_at_once(self):
        """A set right after the free finds the memory there, and is said all the same."""
        result = run("set_at_once")
        found, end = objects(result)
        self.assertEqual([each["finding"] for each in found], [USE], result.stderr)
        self.assertEqual(end["faults"], 1)

    def test_text_and_status(self):
        result = run("read_after_free", conf="check:guard+fail," + ALL)
        lines = [line for line in result.stderr.splitlines() if "simulator" not in line and not line.startswith("    ")]
        self.assertEqual(result.returncode, 4)
        self.assertIn(f"segalloc: check: {FAULT}", lines)
        self.assertRegex(result.stderr, r"where    error 700, an illegal memory access, returned by cuStreamSynchronize, at 0x[0-9a-f]+, "
                                        r"byte 100 of the block\n")
        self.assertRegex(result.stderr, r"unmapped from 0x[0-9a-f]+ to 0x[0-9a-f]+\n")
        self.assertRegex(lines[-1], r"^segalloc: check: checked 1 free, .*, guarded 1 block, 1 in quarantine, 1 fault: 1 finding \(error of the GPU: 1\)$")
        self.assertEqual(run("read_after_free", conf="check:guard," + ALL).returncode, 0)

    def test_without_guards(self):
        """An error of the GPU is said by `check` in any case, with the way to find out more. Without it nothing is."""
        result = run("unmapped", conf="check:on")
        self.assertEqual(result.stdout, f"{ILLEGAL}\n", result.stderr)
        self.assertIn(f"segalloc: check: {FAULT}\n  where    error 700", result.stderr)
        self.assertIn("no block is guarded", result.stderr)
        self.assertIn("--check=guard", result.stderr)
        self.assertNotIn("segalloc: check: ", run("unmapped", conf="check:off").stderr)
        found, end = objects(run("unmapped"))  # one block is guarded, and the error is not about it
        self.assertEqual([each["finding"] for each in found], [FAULT])
        self.assertEqual((end["guarded"], end["faults"]), (1, 1))
        self.assertEqual((found[0]["guarded"], found[0]["blocks"]), (1, []))
        text = run("unmapped", conf="check:guard," + ALL).stderr
        self.assertRegex(text, r"returned by \w+, at 0x[0-9a-f]+, which lies in no guarded block\n  now ")
        self.assertIn("guard_rate:1 -- CMD", text)
        self.assertNotIn("behind the end", text)
        self.assertNotIn("check", run("read_after_free", conf="check:off," + ALL).stderr)

    def test_out_of_memory(self):
        """Pages that `check` has itself are not laid at the program's door: the cause and the help name the option."""
        result = run("full_beside_guards", conf="check:guard," + ALL)
        self.assertEqual(result.stdout, "2\n", result.stderr)
        self.assertRegex(result.stderr, r"  cause    guards: this process holds 40\.00 MiB of this device for guarded blocks \(check:guard\)\n")
        self.assertRegex(result.stderr, r"  itself   40\.00 MiB for guarded blocks \(check:guard\)\n")
        self.assertIn("  help     guard fewer blocks", result.stderr)
        self.assertNotIn("other calls", result.stderr)

    def test_statistics_and_rows(self):
        """The pages are a row of their own, beside the program's cuMemCreate, and the blocks are counted."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "run.trace")
            _, end = objects(run("all_stay", conf=f"check:guard+json,trace:{trace},{ALL}"))
            self.assertEqual((end["guarded"], end["quarantine"]), (128, 128))
            told = json.loads(subprocess.run([sys.argv[3], "report", "--json", trace], capture_output=True, check=True, text=True).stdout)
            rows = [device["outside_at_peak"] for device in told["devices"]]
            self.assertEqual([(row["guards"], row.get("physical", 0)) for row in rows], [(256 << 20, 0)])
            counted = [(row["statistics"]["check_guarded"], row["statistics"]["check_quarantined"]) for row in told["devices"]]
            self.assertEqual(counted, [(128, 128)])

    def test_which_are_guarded(self):
        def guarded(conf):
            return objects(run("none", conf="check:guard+json," + conf))[1]["guarded"]
        self.assertEqual(guarded("guard_rate:1"), 40)
        self.assertEqual(guarded("guard_rate:0"), 0)
        self.assertEqual(objects(run("none", conf="check:guard+json,guard_rate:0"))[1]["not_looked_at"], "")
        self.assertEqual(guarded("guard_rate:0,guard_size:5KiB"), 0)
        self.assertEqual(guarded("guard_rate:0,guard_site:guarded_owner"), 40)
        self.assertEqual(guarded("guard_rate:0,guard_site:elsewhere"), 0)
        drawn = [guarded(f"guard_rate:4,guard_seed:{seed}") for seed in range(1, 9)]
        self.assertEqual(drawn, [guarded(f"guard_rate:4,guard_seed:{seed}") for seed in range(1, 9)])
        self.assertGreater(len(set(drawn)), 1)
        self.assertTrue(30 <= sum(drawn) <= 130, drawn)  # of 320, one in 4

    def test_where_none_can_be(self):
        for sim, why in (("1GiB,no-vmm", "in memory without pages"), ("32MiB,hazard", "beyond 1/32 of the device")):
            result = run("none", sim)
            self.assertEqual(result.stdout, "0\n", result.stderr)
            _, end = objects(result)
            self.assertEqual(end["findings"], 0)
            self.assertIn(why, end["not_guarded"])
        _, end = objects(run("none", conf="check:guard+json,expandable_segments:False," + ALL))
        self.assertEqual(end["guarded"], 0)

    def test_each_call_that_fails(self):
        """A refused call leaves a block where it is, or its pages: the program notices nothing, and nothing is wrong."""
        for call in PAGES:
            for count in ("1", "2", "3", "4", "9", "2+"):
                for code in ("", ":999"):
                    with self.subTest(call=call, count=count, code=code):
                        result = run("none", f"8GiB,hazard,fail={call}:{count}{code}", "check:guard+fail," + ALL)
                        if result.returncode == 2:  # the program's own call
                            self.assertIn("guarded: ", result.stderr)
                            continue
                        self.assertEqual(result.returncode, 0, result.stderr)
                        self.assertEqual(hazards(result), [], result.stderr)
                        self.assertEqual(result.stdout, "0\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
