"""The line that a reader is shown of a stack: the program's own, not a vendor's header, with names as they are written; and of
a deep stack its outside too.

Usage: test_lines.py SEGALLOC CUDART_FOLDER"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, CUDART = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
MIB = 1 << 20
# As NVIDIA's header has it.
HEADER = """
extern "C" int cudaMalloc(void **address, unsigned long bytes);
template <class T> static inline int cudaMalloc(T **address, unsigned long bytes)
{
    return cudaMalloc((void **)(void *)address, bytes);
}
"""
SOURCE = """
#include "cuda_runtime.h"
namespace solver {
struct Grid {
    float *cells; int *marks;
    void grow(unsigned long n) { cudaMalloc(&cells, n); } // GROW
    void mark(unsigned long n) { cudaMalloc(&marks, n); } // MARK
};
template <class T> __attribute__((noinline)) T *make(unsigned long n) { T *x; cudaMalloc(&x, n); return x; } // MAKE
}
int main()
{
    solver::Grid grid;
    grid.grow(8 << 20);
    grid.mark(16 << 20);
    solver::make<float>(32 << 20);
    int *last;
    return cudaMalloc(&last, 64 << 20); // LAST
}
"""
DEEP = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
cuda.cuInit(0); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cuda.cuCtxSetCurrent(context)
def layer(deep):
    if deep:
        return layer(deep - 1)
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 20)) # INNERMOST
def trainer(deep):
    return layer(deep)
def main():
    trainer(3)
    trainer(40)
main() # OUTERMOST
"""
DEEP_CODE = """
extern "C" int cudaMalloc(void **address, unsigned long bytes);
#define OWN extern "C" __attribute__((noinline, visibility("default")))
OWN int layer(int deep)
{
    void *block;
    int failed = deep ? layer(deep - 1) : cudaMalloc(&block, 1 << 20); // INNERMOST
    __asm__ volatile("" ::: "memory");
    return failed;
}
OWN int trainer(int deep) { int failed = layer(deep); __asm__ volatile("" ::: "memory"); return failed; }
int main()
{
    int failed = trainer(3);
    failed += trainer(100); // OUTERMOST
    return failed + trainer(100);
}
"""


class Lines(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def traced(self, *command):
        trace = self.folder / "run.trace"
        subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--sites", "-f", "-o", trace, "--", *command], env=ENVIRONMENT, check=True)
        return trace

    def line(self, text, mark):
        return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"// {mark}") or line.endswith(f"# {mark}"))

    @unittest.skipUnless(shutil.which("g++"), "there is no g++")
    def test_the_first_frame_outside_the_vendors_headers(self):
        vendor = self.folder / "vendor"
        vendor.mkdir()
        (vendor / "cuda_runtime.h").write_text(HEADER)
        source = self.folder / "grid.cpp"
        source.write_text(SOURCE)
        for level in ("-O0", "-O2"):
            subprocess.run(["g++", "-g", level, f"-I{vendor}", "-o", self.folder / "grid", source, f"-L{CUDART}", "-l:libcudart.so.13"], check=True)
            trace = self.traced(self.folder / "grid")
            told = json.loads(subprocess.run([SEGALLOC, "report", "--json", trace], env=ENVIRONMENT, check=True, capture_output=True).stdout)
            sites = {row["bytes"] // MIB: row["site"] for row in told["devices"][0]["live_at_peak"]}
            if "+0x" in "".join(map(str, sites.values())):
                self.skipTest("built without elfutils")
            self.assertEqual(sites, {8: f"grid.cpp:{self.line(SOURCE, 'GROW')} in solver::Grid::grow",
                                     16: f"grid.cpp:{self.line(SOURCE, 'MARK')} in solver::Grid::mark",
                                     32: f"grid.cpp:{self.line(SOURCE, 'MAKE')} in solver::make<float>",
                                     64: f"grid.cpp:{self.line(SOURCE, 'LAST')} in main"}, level)

    @unittest.skipUnless(shutil.which("g++"), "there is no g++")
    def test_a_deep_stack_of_code_keeps_its_outside(self):
        source = self.folder / "deep.cpp"
        source.write_text(DEEP_CODE)
        subprocess.run(["g++", "-g", "-O1", "-fno-optimize-sibling-calls", "-rdynamic", "-o", self.folder / "deep", source, f"-L{CUDART}",
                        "-l:libcudart.so.13"], check=True)
        trace = self.traced(self.folder / "deep")
        stacks = subprocess.run([SEGALLOC, "trace", "export", "--format", "folded", trace, "-o", "-"], env=ENVIRONMENT, check=True, text=True,
                                capture_output=True).stdout.splitlines()
        self.assertEqual(len(stacks), 3, stacks)
        deep = [stack for stack in stacks if "(frames left out)" in stack]
        self.assertEqual(len(deep), 2, stacks)
        for stack in deep:
            outside, inside = stack.split(";(frames left out);")
            self.assertIn("in main", outside)
            self.assertIn("in trainer", outside)
            self.assertEqual(inside.count("in layer"), 16)
        self.assertTrue(any(re.search(rf"deep.cpp:{self.line(DEEP_CODE, 'OUTERMOST')} in main", stack) for stack in deep) or
                        all("+0x" in stack for stack in deep), deep)

    def test_a_deep_stack_keeps_its_outside(self):
        script = self.folder / "train.py"
        script.write_text(DEEP)
        trace = self.traced(sys.executable, script)
        stacks = subprocess.run([SEGALLOC, "trace", "export", "--format", "folded", trace, "-o", "-"], env=ENVIRONMENT, check=True, text=True,
                                capture_output=True).stdout.splitlines()
        outside, inside = f"train.py:{self.line(DEEP, 'OUTERMOST')}", f"train.py:{self.line(DEEP, 'INNERMOST')} in layer"
        self.assertEqual(len(stacks), 2, stacks)
        for stack in stacks:
            frames = re.sub(r" \d+$", "", stack).split(";")
            frames = frames[next(i for i, frame in enumerate(frames) if frame.startswith("train.py")):]
            self.assertEqual(frames[0], outside)
            self.assertTrue(any(frame.startswith(inside) for frame in frames), stack)
        deep = [stack for stack in stacks if "(frames left out)" in stack]
        self.assertEqual(len(deep), 1, stacks)
        self.assertEqual(deep[0].count("(frames left out)"), 1)
        self.assertIn("in main", deep[0].split("(frames left out)")[0])
        # the line that is shown is of the inside, of both
        said = subprocess.run([SEGALLOC, "report", trace], env=ENVIRONMENT, check=True, text=True, capture_output=True).stdout
        self.assertIn(inside, said)
        self.assertNotIn("(frames left out)", said)


if __name__ == "__main__":
    unittest.main()
