"""What NVML says of the devices, in `top`, `metrics` and `doctor`: with a stand-in for it, and without it.

Usage: test_nvml.py SEGALLOC ACTS NVML_FOLDER"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import shared

SEGALLOC, ACTS, NVML = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
ENVIRONMENT = dict(os.environ)
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]


def told(*arguments, nvml, **more):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(NVML) if nvml else "", **more)
    return subprocess.run([SEGALLOC, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          timeout=60).stdout


class Nvml(unittest.TestCase):
    FIRST = {"index": 0, "uuid": "GPU-00000000-of-a-stand-in", "total_bytes": 24 << 30, "used_bytes": 15 << 30, "busy_percent": 45}
    SECOND = {"index": 1, "uuid": "GPU-00000001-of-a-stand-in", "total_bytes": None, "used_bytes": None, "busy_percent": None}

    def test_metrics(self):
        process = shared.start(self, SEGALLOC, ACTS, "a+10", environment=ENVIRONMENT)
        text = told("metrics", process.pid, nvml=True)
        labels = '{gpu="0",UUID="GPU-00000000-of-a-stand-in"}'
        lines = [line for line in text.splitlines() if line.startswith("segalloc_nvml")]
        self.assertEqual(lines, [f"segalloc_nvml_memory_total_bytes{labels} {24 << 30}", f"segalloc_nvml_memory_used_bytes{labels} {15 << 30}",
                                 f"segalloc_nvml_busy_ratio{labels} 0.45000000000000001"])
        self.assertNotIn("nvml", told("metrics", process.pid, nvml=False))

    def test_top(self):
        process = shared.start(self, SEGALLOC, ACTS, "a+10", environment=ENVIRONMENT)
        text = told("top", "--once", process.pid, nvml=True)
        self.assertIn("NVML 0 GPU-00000000: 15.00 GiB of 24.00 GiB in use by anybody, busy 45 %", text)
        self.assertIn("NVML 1 GPU-00000001\n", text)
        self.assertNotIn("NVML", told("top", "--once", process.pid, nvml=False))
        self.assertEqual(json.loads(told("top", "--json", process.pid, nvml=True))["nvml"], [self.FIRST, self.SECOND])
        self.assertEqual(json.loads(told("top", "--json", process.pid, nvml=False))["nvml"], [])

    def test_it_begins_once(self):
        """However often a tool looks; and once more where the driver was loaded anew, which one look misses."""
        process = shared.start(self, SEGALLOC, ACTS, "a+10", environment=ENVIRONMENT)
        for more, begins, seen in (({}, 1, [2, 2, 2]), ({"NVML_RELOAD": "1"}, 2, [2, 0, 2])):
            with self.subTest(**more), tempfile.TemporaryDirectory() as folder:
                looks = told("top", "--json", "--batch", "-n", 3, "-d", "0.1", process.pid, nvml=True, NVML_BEGINS=f"{folder}/begins",
                             **more).splitlines()
                self.assertEqual([len(json.loads(look)["nvml"]) for look in looks], seen)
                self.assertEqual(pathlib.Path(folder, "begins").read_text().count("begun"), begins)

    def test_doctor(self):
        text = told("doctor", nvml=True)
        self.assertIn("NVML     0 GPU-00000000-of-a-stand-in: 15.00 GiB of 24.00 GiB in use by anybody", text)
        self.assertIn("NVML     1 GPU-00000001-of-a-stand-in: no figures of memory", text)
        self.assertEqual(json.loads(told("doctor", "--json", nvml=True))["nvml"], [self.FIRST, self.SECOND])
        self.assertNotIn("NVML", told("doctor", "--sim", "1GiB", nvml=True))


if __name__ == "__main__":
    unittest.main()
