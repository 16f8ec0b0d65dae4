"""segalloc rehearse --overflow: cards that are too small, tried with part of the memory elsewhere, and the bill of that.

Usage: test_bill.py SEGALLOC OWN_MEMORY SCHEMA"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, OWN_MEMORY, SCHEMA = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
MIB = 1 << 20
RATE = 31508 * 10**6  # of pcie4

# 40 steps of 300 MiB; steps that are named need 300 more, which they set and copy to the host as often as is said. With a fourth word
# a kernel runs there too, of which nothing is said. At the end it says how many bytes the simulator has counted.
PROGRAM = """
import ctypes as c, sys
d, s, x = c.CDLL("libcuda.so.1"), c.CDLL(None), c.c_void_p()
d.cuInit(0); d.cuDevicePrimaryCtxRetain(c.byref(x), 0); d.cuCtxSetCurrent(x)
kernel, module = c.c_void_p(), c.c_void_p()
if sys.argv[4:]:
    d.cuModuleLoadData(c.byref(module), b"no code is read")
    d.cuModuleGetFunction(c.byref(kernel), module, b"any")
steps, times, lives = {int(n) for n in sys.argv[1].split(",")}, int(sys.argv[2]), int(sys.argv[3])
host = c.create_string_buffer(300 << 20)
def take(mib):
    block = c.c_uint64()
    if d.cuMemAlloc_v2(c.byref(block), c.c_size_t(mib << 20)):
        sys.exit("out of memory")
    return block
keep, long = take(200), {}
for step in range(1, 41):
    s.segalloc_mark(b"step %d" % step)
    for end in [end for end in long if end <= step]:
        d.cuMemFree_v2(long.pop(end))
    small = take(100)
    if step in steps:
        long[step + lives] = block = take(300)
        for i in range(times):
            d.cuMemsetD8Async(block, 2, c.c_size_t(300 << 20), None)
            d.cuMemcpyDtoHAsync_v2(host, block, c.c_size_t(300 << 20), None)
        if kernel:
            d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        d.cuCtxSynchronize()
    d.cuMemFree_v2(small)
link = (c.c_uint64 * 4)()
d.segalloc_sim_link(0, link)
print("touched", link[0])
"""


class Bill(unittest.TestCase):
    def rehearse(self, status, *arguments):
        result = subprocess.run([SEGALLOC, "rehearse", "--margin", "0", *arguments], env=ENVIRONMENT, capture_output=True, text=True,
                                timeout=300)
        self.assertEqual(result.returncode, status, result)
        return result

    def verdict(self, status, *arguments):
        result = self.rehearse(status, "--json", *arguments)
        told = json.loads(result.stdout.splitlines()[-1])
        try:
            import jsonschema
            with open(SCHEMA, encoding="utf-8") as schema:
                jsonschema.validate(told, json.load(schema))
        except ImportError:
            pass
        return told, result.stderr

    def test_cards(self):
        """The largest is as before; one is too small, and does so with 128 MiB elsewhere; the host has not enough for the last."""
        words = ["m524288", "m262144", "m262144", "f2", "m131072"]
        told, errors = self.verdict(3, "--card", "600MiB,900MiB,1GiB", "--overflow", "host=300MiB", "--", OWN_MEMORY, *words)
        self.assertEqual([(card["bytes"] // MIB, card["verdict"], card["fits"]) for card in told["cards"]],
                         [(600, "does_not_fit", False), (900, "fits_with_overflow", True), (1024, "fits", True)])
        self.assertEqual([card["overflow"] is None for card in told["cards"]], [True, False, True])
        bill = told["cards"][1]["overflow"]
        self.assertEqual((bill["steps"], bill["of_steps"], bill["blocks"], bill["estimated"]), (None, None, 1, True))
        self.assertTrue(124 * MIB <= bill["bytes_peak"] <= 128 * MIB, bill)  # what was lacking, and the spare's page
        self.assertEqual(bill["link_bytes"], 2 * bill["bytes_peak"])
        self.assertEqual(errors.count("may do with part of the memory elsewhere"), 2)
        self.assertEqual(self.verdict(0, "--card", "900MiB,1GiB", "--overflow", "host=300MiB", "--", OWN_MEMORY, *words)[0]["outcome"],
                         "completed")
        told, _ = self.verdict(3, "--card", "900MiB", "--", OWN_MEMORY, *words)
        self.assertEqual((told["cards"][0]["verdict"], told["cards"][0]["overflow"], told["outcome"]), ("does_not_fit", None, "out_of_memory"))

    def test_text(self):
        said = self.rehearse(0, "--card", "900MiB", "--overflow", "host=300MiB", "--rate", "10GiB", "--", OWN_MEMORY, "m786432", "m262144")
        self.assertRegex(said.stdout, r"900.00 MiB: fits with overflow, 12\d.00 MiB of the host's memory, estimated at 2\d(\.\d)? ms in all "
                                      r"at 10.7 GB/s; without it the smallest card that does has 1.00 GiB, 124.00 MiB more\.")
        self.assertRegex(said.stdout, r"\nNext: segalloc run .*--conf overflow:host=300MiB -- ")

    def test_another_device(self):
        """What the first device lacks lies on the second, which the command does not use, and the rest in the host's memory."""
        words = ("--", OWN_MEMORY, "m786432", "m262144")
        said = self.rehearse(0, "--card", "900MiB", "--devices", "2", "--overflow", "peer", *words)
        self.assertRegex(said.stdout, r"900.00 MiB: fits with overflow, 12\d.00 MiB on another device, estimated at ")
        said = self.rehearse(0, "--card", "900MiB", "--devices", "2", "--overflow", "peer=64MiB,host=1GiB", *words)
        self.assertRegex(said.stdout, r"900.00 MiB: fits with overflow, 12\d.00 MiB elsewhere, estimated at ")
        self.assertRegex(said.stdout, r"\nNext: segalloc run .*--conf overflow:peer=64MiB,host=1GiB -- ")

    def test_the_margin_is_not_there_either(self):
        """200 MiB of the card are the context's, so as much more lies elsewhere."""
        peaks = [self.verdict(0, "--card", "900MiB", "--margin", margin, "--overflow", "host=1GiB", "--", OWN_MEMORY, "m524288", "m262144", "m262144")[0]
                 ["cards"][0]["overflow"]["bytes_peak"] for margin in ("0", "200MiB")]
        self.assertEqual(peaks[1] - peaks[0], 200 * MIB)

    def test_try(self):
        """A value that fits so counts."""
        told = json.loads(self.rehearse(0, "--json", "--card", "900MiB", "--overflow", "host=200MiB", "--try", "{}=1048576,524288,262144", "--",
                                        OWN_MEMORY, "m524288", "m{}").stdout)
        self.assertEqual(([each["result"]["cards"][0]["verdict"] for each in told["tried"]], told["fits"]),
                         (["does_not_fit", "fits_with_overflow"], "524288"))

    def test_wrong(self):
        for words, text in ((["--overflow", "host=lots"], "--overflow takes host=SIZE, such as host=4GiB, peer, peer=SIZE, or peer and host with a comma, not \"host=lots\""),
                            (["--overflow", "host=1GiB,conf=x"], "--overflow takes"), (["--overflow", "host=1GiB,sites:True"], "--overflow takes"),
                            (["--overflow", "peer"], "--overflow peer needs another device: --devices 2"),
                            (["--overflow", "host=1GiB", "--with", "true"], "not both"), (["--rate", "pcie4"], "--rate is of --with and of")):
            self.assertIn(text, self.rehearse(2, *words, "--", "true").stderr)

    @unittest.skipIf("SANITIZER" in os.environ, "Python has no runtime of a sanitizer in it")
    def test_the_bill(self):
        """Steps and bytes are those of the run; what the simulator has counted is what is billed."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PROGRAM)
            for steps, times, lives in (("7,30", 1, 1), ("7,30", 4, 1), ("40", 2, 1), ("1", 1, 3),
                                        (",".join(map(str, range(2, 41, 2))), 1, 1)):
                with self.subTest(steps=steps, times=times, lives=lives):
                    told, errors = self.verdict(0, "--card", "512MiB,1GiB", "--overflow", "host=1GiB", "--", sys.executable, path, steps,
                                                str(times), str(lives))
                    bill, touched = told["cards"][0]["overflow"], int(re.findall(r"touched (\d+)", errors)[-1])
                    self.assertEqual((bill["steps"], bill["of_steps"], bill["estimated"], bill["rate_bytes_per_s"]),
                                     (self.far_steps(steps, lives), 40, False, RATE))
                    self.assertTrue(88 * MIB <= bill["bytes_peak"] <= 92 * MIB, bill)
                    self.assertEqual(bill["link_bytes"], touched)
                    self.assertGreater(touched, 0)
                    self.assertAlmostEqual(bill["seconds_a_step"], touched / RATE / bill["steps"], places=6)
                    self.assertEqual(told["cards"][1]["overflow"], None)

    @unittest.skipIf("SANITIZER" in os.environ, "Python has no runtime of a sanitizer in it")
    def test_kernels_that_say_nothing(self):
        """What was counted is a part of what they all touch, so it is billed only where the estimate is less."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PROGRAM)
            for times in (0, 1, 4):
                with self.subTest(times=times):
                    told, errors = self.verdict(0, "--card", "512MiB", "--overflow", "host=1GiB", "--", sys.executable, path, "7,30",
                                                str(times), "1", "kernel")
                    bill, touched = told["cards"][0]["overflow"], int(re.findall(r"touched (\d+)", errors)[-1])
                    self.assertEqual((bill["steps"], bill["estimated"]), (2, True))
                    self.assertEqual(touched > 0, times > 0)
                    self.assertEqual(bill["link_bytes"], max(touched, 2 * 2 * bill["bytes_peak"]))

    def far_steps(self, steps, lives):
        """Steps in which a block was there: it is freed right before the one after its last begins."""
        return len({step for first in map(int, steps.split(",")) for step in range(first, min(41, first + lives))})


if __name__ == "__main__":
    unittest.main()
