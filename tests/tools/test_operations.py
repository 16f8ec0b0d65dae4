"""The lines that docs/operations.md quotes are printed: each is brought about, and stands in what is printed as the page has it.

Usage: test_operations.py SEGALLOC ACTS"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import shared

SEGALLOC, ACTS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("SEGALLOC", "PYTORCH", "CUDA_INJECTION"))}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
PID = "22954"  # which the page shows


def quoted_blocks():
    """The lines of the page's blocks, without what a terminal's width cut."""
    return {line for block in re.findall(r"^```\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()}


class Lines(unittest.TestCase):
    def run_it(self, *command, **variables):
        """What a command prints, with the page's PID for those that it names."""
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, env=ENVIRONMENT | variables)
        return re.sub(r"^(  process  )\d+", rf"\g<1>{PID}", done.stdout + done.stderr, flags=re.M), done.returncode

    def acts(self, *acts, verb="run", sim="1GiB", options=(), **variables):
        return self.run_it(SEGALLOC, verb, "--sim", sim, *options, "--", ACTS, *acts, **variables)

    def printed(self, text, *quotes):
        """Each quote is a text of the page, and printed: in a block a whole line, elsewhere a part of one."""
        for quote in quotes:
            with self.subTest(quote):
                self.assertIn(quote, text)
                if quote in quoted_blocks():
                    self.assertIn(quote, text.splitlines())
                else:
                    self.assertIn(f"`{quote}`", PAGE)

    def test_options(self):
        text, status = self.acts("a+1", SEGALLOC_CONF="limt:3GiB")
        self.printed(text, 'segalloc: SEGALLOC_CONF: there is no option "limt"; did you mean limit? It is ignored')
        self.assertEqual(status, 0)
        text, status = self.acts("a+1", options=("--conf", "limt:3GiB"))
        self.printed(text, "segalloc run: --conf is wrong: nothing was run")
        self.assertEqual(status, 125)
        self.assertEqual(self.acts("a+1", SEGALLOC_CONF="limt:3GiB,abort_conf:True")[1], 125)
        text, _ = self.run_it(SEGALLOC, "conf", SEGALLOC_CONF="reserve_slack:1.02", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128")
        self.printed(text, "max_split_size_mb             128     PYTORCH_CUDA_ALLOC_CONF", "reserve_slack                 1.02    SEGALLOC_CONF")

    def test_stays_out(self):
        self.printed(self.acts("a+1", CUDA_INJECTION64_PATH="/x.so")[0],
                     "segalloc: a profiler or checker is in this process (CUDA_INJECTION64_PATH, compute-sanitizer): the driver serves its memory, not segalloc")
        if "libasan" not in ENVIRONMENT.get("LD_PRELOAD", ""):
            self.printed(self.run_it("true", LD_PRELOAD="/nonexistent/libsegalloc.so", LC_ALL="C")[0],
                         "cannot be preloaded (cannot open shared object file): ignored.")
        self.assertEqual(self.acts("a+1", SEGALLOC_CONF="backend:cudaMallocAsync"), ("", 0))
        self.assertEqual(self.acts("a+1", options=("--no-preload",)), ("", 0))

    def test_out_of_memory(self):
        text, _ = self.acts("a+200", "b+100", sim="256MiB")
        self.printed(text, "segalloc: out of memory on device 0: short by 44.00 MiB: 100.00 MiB asked for, 56.00 MiB to be had (0 B idle + 56.00 MiB free)",
                     "  cause    too big: with the 200.00 MiB in use that is 300.00 MiB, of 256.00 MiB at most",
                     "  help     smaller batches or sequences, or checkpointing, need less")
        text, _ = self.acts("a+100", sim="256MiB", options=("--conf", "limit:64MiB"))
        self.printed(text, "  cause    limit: 64.00 MiB may be held of the device's 256.00 MiB, and 100.00 MiB are needed", "  help     raise `limit`")
        self.assertNotIn("segalloc:", self.acts("a+200", "b+100", sim="256MiB", SEGALLOC_CONF="oom_report:never")[0])

    def test_doctor(self):
        self.printed(self.acts("a+10", verb="doctor")[0], "served: the only allocation was served",
                     f"  process  {PID} acts: library loaded, driver loaded, 1 allocation served, 0 passed on")
        self.printed(self.acts("a+10", verb="doctor", sim="1GiB,no-vmm")[0], "without virtual memory management")
        self.printed(self.acts("a+10", verb="doctor", sim="1GiB,fail=cuMemMap:1+:CUDA_ERROR_UNKNOWN")[0],
                     "calls of the driver's memory management failed; memory was had without")
        with tempfile.TemporaryDirectory() as folder:
            source, own = pathlib.Path(folder) / "own.c", pathlib.Path(folder) / "own"
            source.write_text("int main(void) { return 0; }\n")
            subprocess.run(["cc", "-static", source, "-o", own], check=True, timeout=120)
            self.printed(self.run_it(SEGALLOC, "doctor", "--sim", "1GiB", "--", own)[0],
                         "not served: own is statically linked: nothing can be preloaded into it")

    @unittest.skipIf(shared.has_gpu(), "there is a driver here")
    def test_no_driver(self):
        self.printed(self.run_it(SEGALLOC, "doctor", LD_LIBRARY_PATH="")[0], "there is no CUDA driver (libcuda.so.1)")

    def test_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "k.trace"
            self.acts("a+1", "kill", options=("-o", trace))
            self.printed(self.run_it(SEGALLOC, "report", trace)[0],
                         "The trace is incomplete: the process ended without closing it. It was read to the last complete record.")

    def test_files(self):
        self.printed(self.acts("a+1", SEGALLOC_CONF="stats:/proc/nonexistent/x")[0],
                     "segalloc: no statistics in /proc/nonexistent/x: No such file or directory")
        with tempfile.TemporaryDirectory() as folder:
            if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True).returncode:
                self.skipTest("no file system can be mounted")
            try:
                text, status = self.acts("a+1", options=("-o", f"{folder}/x.trace"))
            finally:
                subprocess.run(["umount", folder], check=True)
        self.printed(text, "no space left on the device; no trace is written, the program goes on")
        self.assertEqual(status, 0)

    def test_trim(self):
        process = shared.start(self, SEGALLOC, ACTS, "a+100", "b+100", "b-", environment=ENVIRONMENT)
        self.printed(self.run_it(SEGALLOC, "trim", process.pid)[0], "100.00 MiB given back")

    @shared.needs_terminal
    def test_last_line(self):
        said = subprocess.run(["script", "-qec", f"{SEGALLOC} run --sim 1GiB -- {ACTS} a+10", "/dev/null"], capture_output=True, text=True,
                              timeout=120, env=ENVIRONMENT | {"COLUMNS": "200"})
        self.printed(said.stdout.replace("\r", ""), "segalloc: 10.00 MiB reserved at the peak for 10.00 MiB allocated. To see what holds it: segalloc run --sites -o run.trace -- CMD")

    def test_all_are_tried(self):
        """No line of a block of the page is left out above."""
        source = pathlib.Path(__file__).read_text()
        self.assertEqual([line for line in quoted_blocks() if repr(line.replace(PID, "{PID}"))[1:-1] not in source.replace("\\'", "'")], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
