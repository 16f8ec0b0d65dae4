"""Overflow: programs that lack memory go on with some of the host's or of another device's, and traces of that play the same. The
program is ACTS on simulated GPUs.

Usage: test_overflow.py SEGALLOC ACTS"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, ACTS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
MIB = 1 << 20
LACKS = "a+600 b+300 c+60 b- c- d+400"  # 24 MiB beyond the card, and more for its spare
LINE = "lie in the host's memory"
PEER_LINE = "lie on device 1"
TWO = "976MiB,count=2"


def segalloc(*arguments):
    return subprocess.run([SEGALLOC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


class Overflow(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "T")

    def run_it(self, acts, conf, sim="976MiB", status=0):
        if os.path.exists(self.path):
            os.unlink(self.path)
        result = segalloc("run", "--sim", sim, "-o", self.path, "--conf", conf, "--", ACTS, *acts.split())
        self.assertEqual(result.returncode, status, result)
        return result.stderr

    def said(self, *arguments):
        result = segalloc(*arguments, "--json")
        self.assertEqual(result.returncode, 0, result)
        return json.loads(result.stdout)

    def figures(self):
        return self.said("report", self.path)["devices"][0]["statistics"]

    def plays_the_same(self):
        played = self.said("replay", self.path)
        self.assertTrue(played["as_recorded"])
        self.assertIsNone(played["diverged_event"])

    def test_a_program_goes_on(self):
        text = self.run_it(LACKS + " d- e+400", "overflow:host=200MiB")
        self.assertEqual(text.count(LINE), 1, text)
        figures = self.figures()
        self.assertEqual((figures["overflow_blocks"], figures["ooms"]), (2, 0))
        self.assertTrue(24 * MIB <= figures["peak_overflow_bytes"] <= (24 + 4 + 4) * MIB, figures)
        self.plays_the_same()

    def test_home_again_once_there_is_room(self):
        text = self.run_it(LACKS + " d- a- e+400 f+500 e- f-", "overflow:host=200MiB")
        self.assertEqual(text.count(LINE), 1, text)
        figures = self.figures()
        self.assertEqual((figures["overflow_blocks"], figures["overflow_bytes"]), (1, 0))
        self.plays_the_same()

    def test_without_it_the_program_ends_as_before(self):
        before = self.run_it(LACKS, "sites:False", status=1)
        self.assertNotIn("  overflow ", before)
        self.assertNotIn("host's memory", before)
        self.assertEqual(self.figures()["overflow_blocks"], 0)

    def test_what_it_lacked_is_said(self):
        for conf, sim, words in (("overflow:host=8MiB", "976MiB", "overflow:host=8.00 MiB is less than is lacking"),
                                 ("overflow:host=1GiB", "976MiB,hostpages=off", "this driver makes no pages"),
                                 ("overflow:host=1GiB", "976MiB,driver=12.9", "this driver makes no pages"),
                                 ("overflow:host=1GiB", "976MiB,hostpages=8MiB", "the driver has refused pages")):
            with self.subTest(conf=conf, sim=sim):
                text = self.run_it(LACKS, conf, sim, status=1)
                self.assertIn(words, text)
                self.assertNotIn(LINE + " while", text)
                self.plays_the_same()

    def test_on_another_device(self):
        text = self.run_it(LACKS + " d- e+400", "overflow:peer", TWO)
        self.assertEqual(text.count(PEER_LINE), 1, text)
        self.assertNotIn("host's memory", text)
        figures = self.figures()
        self.assertEqual((figures["overflow_blocks"], figures["ooms"]), (2, 0))
        self.assertEqual(figures["peak_overflow_peer_bytes"], figures["peak_overflow_bytes"])
        self.assertTrue(24 * MIB <= figures["peak_overflow_bytes"] <= (24 + 4 + 4) * MIB, figures)
        self.plays_the_same()

    def test_the_host_has_the_rest(self):
        text = self.run_it(LACKS + " d- e+400", "overflow:peer=8MiB,host=200MiB", TWO)
        self.assertEqual(text.count(PEER_LINE + " and "), 1, text)
        figures = self.figures()
        self.assertEqual(figures["peak_overflow_peer_bytes"], 8 * MIB)
        self.assertTrue(24 * MIB <= figures["peak_overflow_bytes"] <= (24 + 4 + 4) * MIB, figures)
        self.plays_the_same()

    def test_the_neighbour_comes_first_on_itself(self):
        """Idle pages of device 0 on device 1 go back when that one lacks memory."""
        self.run_it("a+960 d+60 d- device=1 e+950", "overflow:peer,host=200MiB,limit:975MiB", TWO)
        figures = self.said("report", self.path)["devices"]
        self.assertEqual([device["statistics"]["overflow_blocks"] for device in figures], [1, 0])
        self.assertEqual(figures[0]["statistics"]["overflow_bytes"], 0)
        self.plays_the_same()

    def test_the_neighbour_keeps_a_reserve(self):
        """1/16 of it stays free, so of 76 MiB 15 are to spare."""
        text = self.run_it("device=1 z+900 device=0 " + LACKS, "overflow:peer", TWO, status=1)
        self.assertIn("  overflow the other device has less memory to spare than is lacking", text)
        text = self.run_it("device=1 z+900 device=0 " + LACKS, "overflow:peer,host=200MiB", TWO)
        self.assertIn(PEER_LINE + " and ", text)
        self.assertTrue(0 < self.figures()["peak_overflow_peer_bytes"] <= 15 * MIB)
        self.plays_the_same()

    def test_devices_that_reach_no_other(self):
        """One line, and as before; the host serves where it may."""
        for sim in ("976MiB", "976MiB,count=2,no-p2p"):
            with self.subTest(sim=sim):
                text = self.run_it(LACKS, "overflow:peer", sim, status=1)
                self.assertEqual(text.count("overflow:peer has no effect on device 0"), 1, text)
                self.assertIn("  overflow this device reaches no other one's memory as its own", text)
                self.plays_the_same()
                text = self.run_it(LACKS, "overflow:peer,host=200MiB", sim)
                self.assertEqual((text.count("overflow:peer has no effect on device 0"), text.count(LINE)), (1, 1), text)
                self.plays_the_same()

    def test_calls_that_fail(self):
        """The block is served or refused, whichever call of the driver fails; and the run plays the same."""
        for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"):
            for number in (1, 240, 480):
                for conf in ("overflow:host=200MiB", "overflow:peer=12MiB,host=200MiB"):
                    with self.subTest(call=call, number=number, conf=conf):
                        result = segalloc("run", "-f", "--sim", f"976MiB,count=2,fail={call}:{number}:CUDA_ERROR_UNKNOWN", "-o",
                                          self.path, "--conf", conf, "--", ACTS, *LACKS.split())
                        self.assertIn(result.returncode, (0, 1), result)
                        self.plays_the_same()


if __name__ == "__main__":
    unittest.main(verbosity=2)
