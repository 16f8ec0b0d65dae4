#!/usr/bin/env python3
"""Compares `segalloc replay --policy pytorch` with PyTorch's own allocator on the simulated GPU, to the byte, under
settings that few people combine.

Usage: test_rules.py SEGALLOC PYTHON [--short] [TEST]…"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SEGALLOC, PYTHON = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
SHORT = "--short" in sys.argv
if SHORT:
    sys.argv.remove("--short")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "CUDA_"))}
VERSION = (2, 11)  # whose rules these are
# Fixed segments that go back to the driver under max_split_size_mb are not among these: where the next one comes to lie
# is the driver's choice then, and PyTorch takes the lower of two equal blocks.
SETTINGS = [
    "max_split_size_mb:20",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.1,expandable_segments:True,max_split_size_mb:20,"
    "roundup_power2_divisions:[1:2,16:4,>:8],max_non_split_rounding_mb:25",
    "",
    "max_split_size_mb:64,max_non_split_rounding_mb:200",
    "expandable_segments:True,max_split_size_mb:2048,roundup_power2_divisions:8",
    "roundup_power2_divisions:[>:4,64:8]",
    "roundup_power2_divisions:[2:0,16:4,>:0]",
    "roundup_power2_divisions:36028797018963968",
    "garbage_collection_threshold:0.01,per_process_memory_fraction:0.1",
    "per_process_memory_fraction:0.08",
    "per_process_memory_fraction:0.08,expandable_segments:True,max_split_size_mb:40",
    "large_segment_size_mb:64,expandable_segments:True,max_split_size_mb:64",
    "pinned_use_cuda_host_register:True,pinned_num_register_threads:8,pinned_use_background_threads:True",
]
REFUSED = ["max_split_size_mb:19", "max_split_size_mb:99999999999999999999", "roundup_power2_divisions:3",
           "roundup_power2_divisions:[3:4]", "garbage_collection_threshold:1", "expandable_segments:true",
           "release_lock_on_cudamalloc:maybe", "pinned_num_register_threads:3", "max_spilt_size_mb:64"]
KEYS = ("peak_requested_bytes", "peak_reserved_bytes", "end_reserved_bytes", "ooms")


class Rules(unittest.TestCase):
    def setUp(self):
        """Another version may refuse settings, or have no such key: it is asked first."""
        ask = "from importlib.metadata import version; print(version('torch'))"
        version = subprocess.run([PYTHON, "-c", ask], check=True, env=ENVIRONMENT, stdout=subprocess.PIPE,
                                 text=True).stdout.strip()
        if tuple(map(int, version.split(".")[:2])) != VERSION:
            self.skipTest(f"the rules are those of PyTorch {VERSION[0]}.{VERSION[1]}, and this is {version}")

    def run_pytorch(self, folder, settings, streams):
        csv = os.path.join(folder, "program.csv")
        # Work is complete when its event is asked for, as it is in a replay.
        done = subprocess.run([SEGALLOC, "run", "--no-preload", "--sim", "16GiB,at-once", "--", PYTHON,
                               os.path.join(HERE, "loops", "random_sizes.py"), csv, "7", "3000", str(streams), "1300"],
                              env={**ENVIRONMENT, "PYTORCH_CUDA_ALLOC_CONF": settings}, capture_output=True, text=True,
                              timeout=600)
        told = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("RULES ")]
        return csv, told[0] if told else None, done.stderr

    def replay(self, csv, settings, card):
        return subprocess.run([SEGALLOC, "replay", csv, "--policy", "pytorch", "--limit", str(card), "--json", "--conf",
                               settings],
                              env=ENVIRONMENT, capture_output=True, text=True, timeout=120)

    def test_equal_to_the_byte(self):
        for settings in SETTINGS[:2] if SHORT else SETTINGS:
            for streams in (1, 3):
                with self.subTest(settings=settings, streams=streams), tempfile.TemporaryDirectory() as folder:
                    csv, told, errors = self.run_pytorch(folder, settings, streams)
                    self.assertIsNotNone(told, errors)
                    replayed = json.loads(self.replay(csv, settings, told["card"]).stdout)
                    self.assertEqual({key: replayed[key] for key in KEYS}, {key: told[key] for key in KEYS})

    def test_what_pytorch_refuses(self):
        with tempfile.TemporaryDirectory() as folder:
            csv, told, errors = self.run_pytorch(folder, "", 1)
            for settings in REFUSED[:2] if SHORT else REFUSED:
                with self.subTest(settings=settings):
                    self.assertIsNone(self.run_pytorch(folder, settings, 1)[1])
                    done = self.replay(csv, settings, told["card"])
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done)


if __name__ == "__main__":
    unittest.main()
