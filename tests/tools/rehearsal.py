"""What tests of `segalloc rehearse` share: the command, and its verdict.

Whoever imports it takes SEGALLOC LOOP ACTS from its own arguments."""
import json
import os
import subprocess
import sys
import unittest

import shared

SEGALLOC, LOOP, ACTS = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
RANKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ranks.py")
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
# Where a sanitizer is in the process, it would turn a SIGSEGV into an exit with a status of its own.
PLAIN_SEGV = [f"{name}={ENVIRONMENT.get(name, '')}:handle_segv=0" for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")]
MIB = 1 << 20


# A card is named in what to run next only where there is none; "()" matches nothing more.
HAS_GPU = "()" if shared.has_gpu() else ""


def rehearse(*arguments):
    return subprocess.run([SEGALLOC, "rehearse", *arguments], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=120)


class Case(unittest.TestCase):
    def verdict(self, status, *arguments):
        result = rehearse("--json", *arguments)
        self.assertEqual(result.returncode, status, result)
        return json.loads(result.stdout.splitlines()[-1])
