#!/usr/bin/env python3
"""Runs the loops on an unmodified PyTorch on the simulated GPU in every mode and compares what they did.

Usage: test_pytorch.py SEGALLOC PYTHON [--short] [TEST]…     (--short: what fits a continuous integration)"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
SEGALLOC, PYTHON = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
SHORT = "--short" in sys.argv
if SHORT:
    sys.argv.remove("--short")
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_", "TEST_MODE")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
ENVIRONMENT.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="2", PYTHONWARNINGS="ignore",
                   TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
MODES = {
    "native": ["--no-preload"],
    "direct": ["--conf", "pytorch:direct"],
    "beneath": ["--conf", "pytorch:beneath"],
    "pluggable": [],
}
# PyTorch's newer NCCL backend (2.15) asks for a snapshot in its destructor, and ends the process under any pluggable
# allocator.
SETTINGS = {"pluggable": {"TORCH_DIST_USE_NCCL2": "0"}}
TOLERANCE = 0.02  # of peaks: the thread of the backward pass races with the main one


class Loop:
    """One run of a loop: what it told, and the traces of its processes."""

    def __init__(self, name, mode, sim, launcher=(), options=()):
        with tempfile.TemporaryDirectory() as folder:
            traces = [] if mode == "native" else ["-o", os.path.join(folder, "%p.trace")]
            command = [SEGALLOC, "run", "--sim", sim, *MODES[mode], *traces, *options, "--", PYTHON, *launcher,
                       os.path.join(HERE, "loops", name + ".py")]
            self.result = subprocess.run(command, env={**ENVIRONMENT, **SETTINGS.get(mode, {}), "TEST_MODE": mode},
                                         capture_output=True, text=True, timeout=600)
            self.told = [json.loads(line[4:]) for line in self.result.stdout.splitlines() if line.startswith("RUN ")]
            self.reports = []
            for trace in sorted(os.listdir(folder)):
                report = subprocess.run([SEGALLOC, "report", "--json", os.path.join(folder, trace)], env=ENVIRONMENT,
                                        capture_output=True, text=True, timeout=120)
                report = json.loads(report.stdout)
                if report["allocs"]:
                    self.reports.append(report)


class Case(unittest.TestCase):
    maxDiff = None

    def close(self, a, b, what, tolerance=TOLERANCE):
        self.assertLess(abs(a - b), tolerance * max(a, b) + (1 << 20), f"{what}: {a} and {b}")

    def run_loop(self, name, mode, sim="8GiB", ranks=1, **more):
        loop = Loop(name, mode, sim, **more)
        self.assertEqual(loop.result.returncode, 0, f"{name}, {mode}:\n{loop.result.stdout}{loop.result.stderr}")
        self.assertEqual(len(loop.told), ranks, loop.result)
        for report in loop.reports:
            self.assertEqual((report["ooms"], report["dropped"], report["served_share"], report["passed_on"]),
                             (0, 0, 1, 0), f"{name}, {mode}")
            if report["peak_allocated_bytes"] is None:
                continue  # a rank that its launcher ended: the events are there, the last figures are not
            self.assertLessEqual(report["peak_requested_bytes"], report["peak_allocated_bytes"])
            self.assertLessEqual(report["peak_allocated_bytes"], report["peak_reserved_bytes"])
        if mode != "native":
            self.assertEqual(len(loop.reports), ranks, f"{name}, {mode}: traces of processes that allocate")
        return loop

    def same(self, name, modes=tuple(MODES), ranks=1, tolerance=TOLERANCE, pools=False, **more):
        """With `pools`, what graphs have freed counts as in use in direct mode, and as reserved in PyTorch's private
        pools."""
        native = self.run_loop(name, "native", ranks=ranks, **more)
        peaks = {"native": native.told[0]["requested"]}
        for mode in modes:
            if mode == "native":
                continue
            loop = self.run_loop(name, mode, ranks=ranks, **more)
            for a, b in zip(native.told, loop.told):
                self.assertEqual([a[k] for k in ("steps", "operators", "hash")],
                                 [b[k] for k in ("steps", "operators", "hash")], f"{name}, {mode}: another sequence")
            report = max(loop.reports, key=lambda r: r["peak_requested_bytes"])
            if mode == "beneath":  # PyTorch's segments are what is asked for here
                reserved = max(t["reserved"] for t in loop.told)
                self.close(report["peak_requested_bytes"], reserved, f"{name}, {mode}: segments", tolerance)
                self.close(max(t["requested"] for t in loop.told), max(t["requested"] for t in native.told),
                           f"{name}, {mode}", tolerance)
            else:
                peaks[mode] = report["peak_requested_bytes"]
                if pools:
                    self.assertLessEqual(peaks[mode], native.told[0]["reserved"], f"{name}, {mode}")
                    continue
                self.close(peaks[mode], max(t["requested"] for t in native.told), f"{name}, {mode}: peak asked for",
                           tolerance)
        print(f"{name}: peaks asked for {peaks}, reserved natively {native.told[0]['reserved']}", flush=True)


class Loops(Case):
    def test_lora(self):
        self.same("lora")

    @unittest.skipIf(SHORT, "short")
    def test_pretrain(self):
        self.same("pretrain")

    def test_generate(self):
        self.same("generate", ("direct", "beneath") if SHORT else tuple(MODES))

    def test_workers(self):
        self.same("workers", ("direct",) if SHORT else tuple(MODES))

    def test_ddp(self):
        """Two ranks of torchrun, each on a device of one simulated machine. What other streams have used is free once
        they are done, so the peaks depend on who is fast."""
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone"]
        self.same("ddp", ("direct", "beneath") if SHORT else tuple(MODES), ranks=2, sim="4GiB,count=2",
                  launcher=launcher, tolerance=0.25)

    def test_graphs(self):
        """A pluggable allocator cannot be captured by PyTorch without a pool of its own."""
        self.same("graphs", ("direct", "beneath"), pools=True)


class Refused(unittest.TestCase):
    """A driver whose memory management fails, call by call: nothing is noticed, and nothing stays behind."""
    CALLS = ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease")
    ERRORS = (600, 999, 1, 101, 800)

    def play(self, mode, faults):
        command = [SEGALLOC, "run", "--sim", "1GiB", *MODES[mode], "--", PYTHON,
                   os.path.join(HERE, "loops", "refused.py"), "1GiB", *faults]
        # with alias:on no call is made before those that serve
        result = subprocess.run(command, env={**ENVIRONMENT, "TEST_MODE": mode, "SEGALLOC_CONF": "alias:on"},
                                capture_output=True, text=True, timeout=600)
        self.assertEqual(result.returncode, 0, f"{mode}:\n{result.stdout}{result.stderr}")
        told = [json.loads(line[4:]) for line in result.stdout.splitlines() if line.startswith("RUN ")]
        self.assertEqual([row["fault"] for row in told], list(faults))
        return told

    def test_each_call(self):
        whole = [f"{call}:{at}:{error}" for call in self.CALLS for error in self.ERRORS for at in ("2", "6", "4+")]
        native, = self.play("native", ["none"])
        self.assertEqual(native["left"], 0)
        for mode, faults in (("direct", whole), ("beneath", whole[::7])):
            met = 0
            for row in self.play(mode, ["none", *faults]):
                lossy = row["fault"].startswith(("cuMemUnmap:4+", "cuMemRelease:4+"))
                self.assertEqual(row["hash"], native["hash"], f"{mode}, {row}")
                self.assertTrue(row["left"] == 0 or lossy, f"{mode}, {row}")
                self.assertEqual((row["allocations"], row["ooms"]), (0, 0), f"{mode}, {row}")
                self.assertLessEqual(row["passed_on"], 8, f"{mode}, {row}")
                met += row["vmm_errors"] > 0
            self.assertGreater(met, len(faults) * 2 // 3 if mode == "direct" else 2, mode)


class Faithful(Case):
    def python(self, *options, code, status=0):
        result = subprocess.run([SEGALLOC, *options, "--", PYTHON, "-c", code], env=ENVIRONMENT, capture_output=True,
                                text=True, timeout=600)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def test_copies_and_properties(self):
        code = """
import torch
x = torch.arange(1 << 20, dtype=torch.float32)
y = x.cuda()
assert torch.equal(y.cpu(), x)
assert torch.equal(y.clone().cpu(), x)
assert torch.equal(y[1000:5000].cpu(), x[1000:5000])
p = torch.cuda.get_device_properties(0)
assert p.total_memory == 2 << 30 and p.multi_processor_count > 0 and p.warp_size == 32, p
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total == 2 << 30
torch.cuda.synchronize()
"""
        self.python("run", "--sim", "2GiB", code=code)
        self.python("run", "--sim", "2GiB", "--no-preload", code=code)

    def test_libraries(self):
        """What reaches each of the vendor's libraries runs, and gives the right shapes."""
        self.python("run", "--sim", "2GiB", code="""
import torch
a, d = torch.zeros(32, 32, device='cuda'), dict(device='cuda')
for layer in (torch.nn.LSTM(16, 32, 2), torch.nn.GRU(16, 32, bidirectional=True), torch.nn.LSTM(16, 32, proj_size=8), torch.nn.RNN(16, 32, bias=False)):
    x = torch.zeros(5, 4, 16, requires_grad=True, **d)
    layer = layer.cuda()
    layer(x)[0].sum().backward()
    assert layer.weight_ih_l0.grad.shape == layer.weight_ih_l0.shape
x = torch.zeros(2, 3, 16, 16, requires_grad=True, **d)
torch.nn.BatchNorm2d(8).cuda()(torch.nn.Conv2d(3, 8, 3, padding=1).cuda()(x)).sum().backward()
assert x.grad.shape == x.shape
assert torch.linalg.solve(a, a).shape == torch.linalg.svd(a)[0].shape == torch.linalg.qr(a)[0].shape == a.shape
assert torch.linalg.cholesky(a).shape == torch.linalg.eigh(a)[1].shape == a.shape
sparse = torch.sparse_csr_tensor(torch.arange(33).cuda(), torch.arange(32).cuda(), a[0], (32, 32))
assert torch.fft.rfft(a).shape == (32, 17) and torch.sparse.mm(sparse, a).shape == a.shape
assert torch.nn.functional.linear(a, a, a[0]).shape == torch.bmm(a[None], a[None])[0].shape == a.shape
q = torch.zeros(1, 4, 128, 64, dtype=torch.bfloat16, **d)
assert torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape == q.shape
assert torch.special.airy_ai(a).shape == a.shape  # by NVRTC
with torch.profiler.profile():
    a + a
torch.cuda.synchronize()
""")

    def test_out_of_memory(self):
        code = """
import torch
held = []
try:
    while True:
        held.append(torch.empty(1 << 28, dtype=torch.uint8, device='cuda'))
except torch.cuda.OutOfMemoryError as error:
    assert str(error).startswith('CUDA out of memory. Tried to allocate'), error
    assert len(held) >= 3, held
del held
torch.empty(1 << 28, dtype=torch.uint8, device='cuda')
"""
        for options in (["--no-preload"], [], ["--conf", "pytorch:beneath"]):
            self.python("run", "--sim", "1GiB", *options, code=code)

    @unittest.skipIf(SHORT, "short")
    def test_unchanged_script(self):
        """accelerate's own test of its collectives, as it comes with it."""
        find = "import accelerate, os; print(os.path.join(os.path.dirname(accelerate.__file__), 'test_utils/scripts/test_ops.py'))"
        script = self.python("run", "--sim", "2GiB", code=find).stdout.strip()
        for options in (["--no-preload"], [], ["--conf", "pytorch:beneath"]):
            result = subprocess.run([SEGALLOC, "run", "--sim", "2GiB", *options, "--", PYTHON, script], env=ENVIRONMENT,
                                    capture_output=True, text=True, timeout=600)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_snapshot(self):
        """PyTorch's own viewer reads what we export."""
        with tempfile.TemporaryDirectory() as folder:
            trace, snapshot, page = (os.path.join(folder, n) for n in ("t", "s.pickle", "p.html"))
            self.python("run", "--sim", "2GiB", "-o", trace, code="""
import torch
a = [torch.empty(n << 18, device='cuda') for n in range(1, 60)]
del a[::2]
b = torch.empty(1 << 20, device='cuda')
import os; os._exit(0)
""")
            subprocess.run([SEGALLOC, "trace", "export", trace, "--to", "end", "-o", snapshot], check=True, env=ENVIRONMENT)
            self.python("run", "--sim", "2GiB", "--no-preload", code=f"""
import pickle
from torch.cuda import _memory_viz as viz
data = pickle.load(open({snapshot!r}, 'rb'))
live = [b for s in data['segments'] for b in s['blocks'] if b['state'] == 'active_allocated']
assert len(live) >= 30, len(live)
for s in data['segments']:
    at = s['address']
    for b in s['blocks']:
        assert b['address'] == at, (s['address'], b)
        at += b['size']
    assert at == s['address'] + s['total_size']
assert len(data['device_traces'][0]) >= 60 + 2 * 30
assert sum(s['total_size'] for s in data['segments']) <= 2 << 30
assert 'total_allocated' in viz.segsum(data)
assert 'entries' in viz.trace(data)
open({page!r}, 'w').write(viz.trace_plot(data))
viz.segment_plot(data)
""")
            self.assertGreater(os.path.getsize(page), 1000)


class Rehearse(Case):
    def rehearse(self, *arguments, status=0):
        result = subprocess.run([SEGALLOC, "rehearse", "--json", *arguments], env=ENVIRONMENT, capture_output=True,
                                text=True, timeout=900)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def test_lora_7b(self):
        """The recorded loop of 7B LoRA asked for 22,016,871,944 bytes at its peak."""
        verdict = self.rehearse("--card", "16GiB,24GiB,40GiB", "--", PYTHON,
                                os.path.join(SOURCE, "examples", "lora_sft.py"), status=3)
        self.assertEqual(verdict["outcome"], "completed")
        self.assertEqual([c["fits"] for c in verdict["cards"]], [False, True, True])
        self.assertGreaterEqual(verdict["alone"]["pytorch"], verdict["alone"]["segalloc"])
        self.assertLess(abs(verdict["peak_requested_bytes"] / 22016871944 - 1), 0.01, verdict)
        self.assertEqual(verdict["served_share"], 1)
        print(f"7B LoRA: {verdict['peak_requested_bytes']} bytes at the peak, smallest card {verdict['smallest_card_bytes']}, "
              f"{verdict['seconds']} s", flush=True)

    @unittest.skipIf(SHORT, "short")
    def test_too_large(self):
        script = os.path.join(SOURCE, "examples", "lora_sft.py")
        verdict = self.rehearse("--card", "8GiB,16GiB", "--", PYTHON, script, "--steps", "1", status=3)
        self.assertEqual((verdict["outcome"], [c["fits"] for c in verdict["cards"]]), ("out_of_memory", [False, False]))
        self.assertGreater(verdict["smallest_card_bytes"], 16 << 30)

    def test_a_share_of_the_whole_card(self):
        """Asked for by cudaMemGetInfo, or read from the properties that PyTorch itself reads all the time."""
        for total in "torch.cuda.mem_get_info()[1]", "torch.cuda.get_device_properties(0).total_memory":
            with self.subTest(total):
                verdict = self.rehearse("--margin", "0", "--card", "1GiB,2GiB", "--", PYTHON, "-c",
                                        f"import torch; torch.empty({total} // 10 * 9, dtype=torch.uint8, device='cuda')")
                self.assertEqual((verdict["adapts"], [card["fits"] for card in verdict["cards"]]), (True, [True, True]))

    def test_depends_on_results(self):
        verdict = self.rehearse("--card", "2GiB", "--", PYTHON, "-c",
                                "import torch; torch.multinomial(torch.ones(8, device='cuda').softmax(0).cpu(), 1)",
                                status=1)
        self.assertEqual(verdict["outcome"], "stopped")
        self.assertIn("multinomial", verdict["reason"])
        self.assertIn("compute nothing", verdict["reason"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
