"""Every driver call that makes order is hooked, or left out for a reason.

Usage: test_hooks.py SOURCE_ROOT [CUDA_H]…

Order is known only as far as the calls that make it are hooked: those that give work, or take a stream or an event. The
calls are those of src/driver/cuda_proto.h, and those of each of NVIDIA's cuda.h that is named."""
import pathlib
import re
import sys
import unittest

ROOT, *HEADERS = map(pathlib.Path, sys.argv[1:])
del sys.argv[1:]

# Calls without a hook, and why that loses no order.
LEFT_OUT = [
    (r"cuStream(Get|Is)\w+", "asks"),
    (r"cuEventElapsedTime(_v2)?", "asks"),
    (r"cuOccupancyMax(ActiveClusters|PotentialClusterSize)", "asks what a launch would need"),
    (r"cuGraph\w*NodeGet(Event|Attribute)", "asks"),
    (r"cuStream(Set|Copy)\w+", "changes attributes, which order nothing"),
    (r"cuGraphKernelNodeSetAttribute", "changes attributes of a node; those with an event are for launches alone (cuda.h)"),
    (r"cuGraph\w*MemcpyNode\w*", "changes what a graph does when it is launched"),
    (r"cuStreamUpdateCapture\w+", "changes the graph of a capture, which another call has begun"),
    (r"cuGraphInstantiateWithParams(_ptsz)?", "may upload the graph in a stream, which uses no block of the program"),
]
HOOKS = ("hooks", "launch_hooks", "external_alloc_hooks")


def left_out(name):
    return any(re.fullmatch(pattern, name) for pattern, _ in LEFT_OUT)


def hooked(bases):
    """Symbols that the tables answer, with the names of cuGetProcAddress where `bases` says so."""
    found = set()
    for table in HOOKS:
        text = (ROOT / f"src/preload/process/{table}.def").read_text()
        for macro, first, second in re.findall(r"^(HOOK|SUBMIT\w*|TAKES|GIVES)\((\w+), (\w+)", text, re.M):
            found.add(first)
            if bases or macro.startswith("SUBMIT"):
                found.add(second)
    return found


class Header:
    """NVIDIA's cuda.h: what it declares, and the symbols that its macros make of the names."""

    def __init__(self, text):
        self.text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S).replace("\\\n", " ")

    def types_of_order(self):
        """Streams, events, and each type that holds one."""
        found, before = {"CUstream", "CUevent"}, set()
        inner = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
        structs = re.findall(rf"(?:struct|union)\s*(\w*)\s*\{{({inner})\}}\s*(\w*)\s*;", self.text)
        aliases = re.findall(r"typedef\s+(?:struct\s+|union\s+)?(\w+)\s+(\w+)\s*;", self.text)
        while found != before:
            before = set(found)
            found.update(name for tag, body, alias in structs if set(re.findall(r"\w+", body)) & found
                         for name in (tag, alias) if name)
            found.update(alias for name, alias in aliases if name in found)
        return found

    def symbols(self):
        """Symbols of libcuda that make order. Names of before CUDA 3.2 have 32-bit addresses, which are never ours."""
        types = self.types_of_order()
        macros = {name: (target, threads) for name, threads, target in re.findall(
            r"^[ \t]*#\s*define\s+(cu\w+)\s+(?:__CUDA_API_(PTSZ|PTDS)\()?(cu\w+)\)?\s*$", self.text, re.M)}
        for name, parameters in re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^;]*?)\)\s*;", self.text):
            words = set(re.findall(r"\w+", parameters))
            if any(word.endswith("_v1") and word.startswith("CU") for word in words):
                continue
            if words & types or name.startswith(("cuMemcpy", "cuMemset")):
                symbol, threads = macros.get(name, (name, ""))
                yield symbol
                if threads:
                    yield f"{symbol}_{threads.lower()}"


class Hooks(unittest.TestCase):
    def test_declared_calls(self):
        declared = re.findall(r"CUresult (cu\w+)\(([^;]*)\);", (ROOT / "src/driver/cuda_proto.h").read_text())
        makes = {name for name, parameters in declared
                 if re.search(r"CUstream\b|CUevent\b|CUDA_MEMCPY|CUgraphNodeParams", parameters) or
                 name.startswith(("cuMemcpy", "cuMemset"))}
        known = hooked(bases=True)
        self.assertGreater(len(makes & known), 50)
        self.assertEqual(sorted(name for name in makes - known if not left_out(name)), [])

    @unittest.skipUnless(HEADERS, "none of NVIDIA's headers")
    def test_calls_of_nvidias_headers(self):
        for path in HEADERS:
            with self.subTest(header=str(path)):
                makes = set(Header(path.read_text(errors="replace")).symbols())
                known = hooked(bases=False)
                self.assertGreater(len(makes & known), 100)
                self.assertEqual(sorted(name for name in makes - known if not left_out(name)), [],
                                 "calls without a hook: a row of the tables, or of LEFT_OUT with a reason")
                stale = [pattern for pattern, _ in LEFT_OUT if not any(re.fullmatch(pattern, name) for name in makes)]
                self.assertLessEqual(set(stale), {r"cuGraph\w*MemcpyNode\w*"})

    def test_the_check_itself(self):
        header = Header("""
            typedef struct CUstream_st *CUstream;
            typedef struct inner_st { int a; struct { CUevent event; } b; } inner;
            typedef inner same;
            typedef struct outer_st { same *list; } outer;
            #define cuTakesStream __CUDA_API_PTSZ(cuTakesStream_v2)
            #define cuPlain cuPlain_v2
            CUresult CUDAAPI cuTakesStream(int, CUstream stream);
            CUresult CUDAAPI cuPlain(const outer *what); /* cuComment(CUstream) */
            CUresult CUDAAPI cuNothing(int number);
            CUresult CUDAAPI cuOld(CUdeviceptr_v1 address, CUstream stream);
            CUresult CUDAAPI cuMemsetD8(CUdeviceptr address);""")
        self.assertEqual(sorted(header.symbols()), ["cuMemsetD8", "cuPlain_v2", "cuTakesStream_v2", "cuTakesStream_v2_ptsz"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
