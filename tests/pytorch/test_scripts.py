#!/usr/bin/env python3
"""Scripts as others write them (scripts/), unmodified, in every mode: each must end as it does natively on the
simulated GPU. And what a child of a program sees of its environment.

Usage: test_scripts.py SEGALLOC PYTHON [--short] [TEST]…     (--short: in the default mode only)"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SEGALLOC, PYTHON = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
SHORT = "--short" in sys.argv
if SHORT:
    sys.argv.remove("--short")
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
ENVIRONMENT.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="2", PYTHONWARNINGS="ignore", PYTHONDONTWRITEBYTECODE="1")
MODES = {"native": ["--no-preload"], "auto": [], "direct": [], "beneath": [], "torch": ["--torch"]}
RANKS = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone")


def run(mode, *command, sim="4GiB", conf="oom_report:never", options=(), settings=None):
    conf = f"pytorch:{mode}," + conf if mode in ("direct", "beneath") else conf
    return subprocess.run([SEGALLOC, "run", "--sim", sim, *MODES[mode], "--conf", conf, *options, "--", PYTHON,
                           *command],
                          env={**ENVIRONMENT, **(settings or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=600)


class Scripts(unittest.TestCase):
    def same(self, name, *arguments, launcher=(), sim="4GiB", modes=tuple(MODES)):
        said = {}
        for mode in ("auto",) if SHORT else modes:
            done = run(mode, *launcher, HERE / "scripts" / f"{name}.py", *arguments, sim=sim)
            self.assertEqual(done.returncode, 0, f"{name}, {mode}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
            said[mode] = sorted(done.stdout.splitlines())
        return said

    def equal(self, name, *arguments, **more):
        """And say the same, where nothing that they say is a result."""
        said = self.same(name, *arguments, **more)
        for mode, lines in said.items():
            self.assertEqual(lines, next(iter(said.values())), f"{name}, {mode}")

    def test_operators(self):
        self.equal("operators")

    def test_integers(self):
        self.equal("integers")

    def test_reals(self):
        self.equal("reals")

    def test_fraction(self):
        """A limit that PyTorch is told of is kept to."""
        self.equal("fraction")

    def test_solvers(self):
        self.equal("solvers")

    def test_objects(self):
        """Pickled, by way of the device."""
        self.same("objects", launcher=RANKS, sim="4GiB,count=2")

    def test_split_model(self):
        """No work on reused memory is unordered, and where PyTorch's rule for tensors holds none is kept back."""
        checked = "4GiB,count=2,hazard=all,hazard_exit=9"
        self.equal("split_model", "--bounded", sim=checked, modes=("auto", "direct", "torch"))
        if not SHORT:
            self.equal("split_model", sim=checked, modes=("native", "beneath"))

    @unittest.skipIf(SHORT, "short")
    def test_generation(self):
        self.equal("generation")

    @unittest.skipIf(SHORT, "short")
    def test_convnet(self):
        self.equal("convnet")
        self.equal("convnet", "--benchmark")

    @unittest.skipIf(SHORT, "short")
    def test_preference(self):
        self.equal("preference")

    @unittest.skipIf(SHORT, "short")
    def test_compiled(self):
        self.equal("compiled")

    @unittest.skipIf(SHORT, "short")
    def test_compiled_to_graphs(self):
        """PyTorch looks for what its compiler captured among the blocks of its own cache."""
        self.equal("compiled", "--graphs", modes=("native", "auto", "beneath"))

    @unittest.skipIf(SHORT, "short")
    def test_pools(self):
        """And with settings of the user's own, under each of their names."""
        modes = ("native", "auto", "direct", "beneath")
        self.equal("pools", modes=modes)
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            for mode in modes:
                settings = {name: "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.8"}
                done = run(mode, HERE / "scripts" / "pools.py", settings=settings)
                self.assertEqual((done.returncode, done.stdout.count("\n")), (0, 3), f"{mode}, {name}: {done.stderr}")

    def test_sending(self):
        """Tensors go to other processes; beneath, PyTorch's segments have to be such as can be given away."""
        script = HERE / "scripts" / "sending.py"
        said = set()
        for mode in ("native", "auto", "direct", "beneath"):
            done = run(mode, script, conf="oom_report:never" + ",ipc:always" * (mode == "beneath"))
            self.assertEqual(done.returncode, 0, f"{mode}: {done.stderr}")
            said.add(done.stdout)
        self.assertEqual(len(said), 1)

    def test_sending_without_room(self):
        """The refusal names the way out, and what becomes of a receiver. The tensor stays as it was. Without a copy it is sent."""
        for mode in ("auto", "direct"):
            done = run(mode, HERE / "scripts" / "sending_full.py", sim="400MiB")
            self.assertEqual(done.returncode, 0, f"{mode}: {done.stderr}")
            for part in ("CUDA is out of memory for the 300.00 MiB", "SEGALLOC_CONF=pytorch:beneath,ipc:always",
                         "its receiver goes on waiting"):
                self.assertIn(part, done.stdout)
            self.assertEqual(done.stdout.splitlines()[-1], "[7, 7] 300")
        for mode, conf in (("native", ""), ("beneath", "oom_report:never,ipc:always")):
            self.assertEqual(run(mode, HERE / "scripts" / "sending_full.py", sim="400MiB", conf=conf).stdout, "sent\n[7, 7] 300\n")

    @unittest.skipIf(SHORT, "short")
    def test_where_compiled_graphs_fail(self):
        """The way out is said, and only there."""
        done = run("direct", HERE / "scripts" / "compiled.py", "--graphs")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("SEGALLOC_CONF=pytorch:auto", done.stderr)
        for code in ("raise SystemExit(3)", "import torch; torch.zeros(9).cuda(); raise SystemExit(3)"):
            done = run("direct", "-c", code)
            self.assertEqual((done.returncode, done.stderr), (3, ""))

    def test_forty_graphs(self):
        """What was freed in one capture is used again in the next one of its pool."""
        said = self.same("forty_graphs", modes=("native", "auto", "beneath"), sim="24GiB")
        held = {mode: int(next(line for line in lines if line.startswith("held ")).split()[1])
                for mode, lines in said.items()}
        for mode, bytes_held in held.items():
            self.assertLessEqual(bytes_held, 1.1 * held.get("native", 360710144), mode)  # PyTorch 2.11 has that

    def test_peak_formula(self):
        """1 GiB of weights and 2 GiB at the peak of a step, in MiB."""
        for mode, lines in self.same("peak_formula", sim="8GiB").items():
            self.assertLess(abs(int(lines[0]) - 3072), 0.1 * 2048, mode)

    def test_everyday(self):
        self.equal("everyday", modes=("native", "auto", "direct", "beneath"))

    @unittest.skipIf(SHORT, "short")
    def test_reduce_overhead(self):
        """Needs Triton beside PyTorch."""
        if subprocess.run([PYTHON, "-c", "import triton"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no Triton")
        self.equal("reduce_overhead", modes=("native", "auto", "beneath", "torch"))

    @unittest.skipIf(SHORT, "short")
    def test_words(self):
        self.equal("words")

    def test_trainer_peft(self):
        self.same("trainer_peft")

    @unittest.skipIf(SHORT, "short")
    def test_accelerate(self):
        self.equal("accelerate_loop")

    @unittest.skipIf(SHORT, "short")
    def test_accelerate_launch(self):
        launcher = ("-m", "accelerate.commands.launch", "--num_processes=2", "--multi_gpu", "--main_process_port=0",
                    "--mixed_precision=bf16")
        self.same("accelerate_loop", launcher=launcher, sim="4GiB,count=2")

    @unittest.skipIf(SHORT, "short")
    def test_trainer_of_two_ranks(self):
        self.same("trainer_peft", launcher=RANKS, sim="4GiB,count=2")

    def test_ranks_tell_each_other(self):
        self.same("distributed", launcher=RANKS, sim="4GiB,count=2")


def has(*modules):
    """Without importing them, for which PyTorch would need a device."""
    code = f"import importlib.util as u; raise SystemExit(any(u.find_spec(m) is None for m in {modules!r}))"
    return subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


@unittest.skipIf(SHORT, "short")
class Libraries(unittest.TestCase):
    """What others build on PyTorch (`install --libraries`) ends natively and in every mode, with all of its memory
    served."""

    def served(self, name, *arguments, ranks=1, modes=tuple(MODES), settings=None):
        launcher, sim = (RANKS, f"4GiB,count={ranks}") if ranks > 1 else ((), "4GiB")
        for mode in modes:
            with self.subTest(mode=mode), tempfile.TemporaryDirectory() as folder:
                traces = () if mode == "native" else ("-o", os.path.join(folder, "%p.trace"))
                done = run(mode, *launcher, HERE / "scripts" / f"{name}.py", *arguments, sim=sim, options=traces,
                           settings=settings)
                self.assertEqual(done.returncode, 0, f"{name}, {mode}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
                yield mode, done.stdout
                reports = [json.loads(subprocess.run([SEGALLOC, "report", "--json", os.path.join(folder, trace)],
                                                     check=True, stdout=subprocess.PIPE, env=ENVIRONMENT).stdout)
                           for trace in sorted(os.listdir(folder))]
                reports = [report for report in reports if report["allocs"]]
                self.assertEqual(len(reports), 0 if mode == "native" else ranks, f"{name}, {mode}: processes")
                for report in reports:
                    self.assertEqual((report["ooms"], report["dropped"], report["served_share"], report["passed_on"]),
                                     (0, 0, 1, 0), f"{name}, {mode}")

    @unittest.skipUnless(has("triton"), "no Triton")
    def test_static_generate(self):
        """Compiled with CUDA graphs, which direct mode can't."""
        for mode, said in self.served("static_generate", modes=("native", "auto", "beneath", "torch")):
            self.assertEqual(said.split("\n")[-2:], ["graphs True", ""], mode)

    def test_fsdp2(self):
        for mode, said in self.served("fsdp2", ranks=2):
            self.assertEqual(said.count("of 2 is done\n"), 2, mode)

    @unittest.skipUnless(has("deepspeed"), "no DeepSpeed")
    def test_zero3(self):
        for arguments in ((), ("--device",)):
            for mode, said in self.served("zero3", *arguments, ranks=2):
                self.assertEqual(said.count("of 2 is done after 3 steps\n"), 2, mode)

    @unittest.skipUnless(has("trl"), "no TRL")
    def test_trl(self):
        for mode, said in self.served("trl_trainers"):
            steps = [line for line in said.splitlines() if line.startswith("steps ")]
            self.assertEqual(steps, ["steps sft 3", "steps dpo 3", "steps grpo 3"], mode)


    def test_graph_after_a_pause(self):
        """A graph that was captured before a pause gives the same bytes after it, and another process had the card meanwhile."""
        done = run("torch", HERE / "scripts" / "pause_graph.py", sim="1GiB")
        self.assertEqual((done.stdout, done.returncode), ("done\n", 0), done.stderr[-3000:])

    def test_vllm_sleeps(self):
        """vLLM's sleep mode by the entry point: levels, tags, contents and addresses; nothing stays on the card."""
        done = run("torch", HERE / "scripts" / "vllm_sleep.py", sim="1GiB")
        self.assertEqual((done.stdout, done.returncode), ("done\n", 0), done.stderr[-3000:])

    @unittest.skipUnless(has("torch_memory_saver"), "no torch_memory_saver")
    def test_memory_saver_of_ours(self):
        """With --memory-saver its Python module pauses tags: contents come back, errors are raised, settings are kept."""
        for hook in ("preload", "torch"):
            for mode in ("auto", "beneath", "torch"):
                with self.subTest(hook=hook, mode=mode):
                    done = run(mode, HERE / "scripts" / "regions.py", hook, options=("--memory-saver",))
                    self.assertEqual((done.stdout, done.returncode), ("done\n", 0), done.stderr[-3000:])

    @unittest.skipUnless(has("torch_memory_saver"), "no torch_memory_saver")
    def test_memory_saver(self):
        """Memory that sleeps leaves the device and comes back as natively, by either hook, and with its library preloaded
        before ours and after it. Direct mode bypasses the pool that the hook `torch` works by, and a line says so.

        Natively, too, its hook `torch` ends the process with status 1 where PyTorch frees its pool at the end."""
        script = HERE / "scripts" / "saver.py"
        natively = {hook: run("native", script, hook) for hook in ("torch", "preload")}
        for done in natively.values():
            self.assertIn("paused weights 768\n", done.stdout)
            self.assertTrue(done.stdout.endswith("done\n"), done.stderr[-3000:])
        for mode in ("auto", "direct", "beneath", "torch"):
            for how in (("torch",), ("preload", "before"), ("preload", "after")):
                with self.subTest(mode=mode, how=how):
                    done = run(mode, script, *how)
                    if mode == "direct" and how == ("torch",):
                        self.assertIn("pytorch:direct bypasses it: SEGALLOC_CONF=pytorch:auto", done.stderr)
                    else:
                        self.assertEqual((done.stdout, done.returncode),
                                         (natively[how[0]].stdout, natively[how[0]].returncode), done.stderr[-3000:])


# What a program and its children see, from before PyTorch is there until after it has run. Prints the names that one of
# them saw and the program was not started with, and values that differ.
LOOK = """
import ctypes, json, multiprocessing, os, subprocess, sys, threading

START = dict(os.environ)
put = set()  # what Python modules set themselves, if only for a moment
sys.addaudithook(lambda event, given: put.add(os.fsdecode(given[0])) if event == "os.putenv" else None)
ASK = "import json, os; print(json.dumps(dict(os.environ)))"
seen, wrong = 0, set()


def compare(found, where):
    global seen
    seen += 1
    for name in set(found) | set(START):
        if found.get(name) != START.get(name) and name != "_":
            wrong.add((where, name))


def own():
    with open("/proc/self/environ", "rb") as file:
        compare({entry.split("=", 1)[0]: entry.split("=", 1)[1] for entry in file.read().decode().split("\\0") if "=" in entry}, "proc")
    compare(c_environ(), "environ")
    compare(dict(os.environ), "os.environ")


def c_environ():
    table = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found, at = {}, 0
    while table[at]:
        name, _, value = table[at].decode().partition("=")
        found[name] = value
        at += 1
    return found


def child(where):
    compare(json.loads(subprocess.run([sys.executable, "-S", "-c", ASK], check=True, stdout=subprocess.PIPE).stdout), where)


def forked(where):
    ends = os.pipe()
    if os.fork() == 0:
        os.write(ends[1], json.dumps(c_environ()).encode())
        os._exit(0)
    os.close(ends[1])
    with os.fdopen(ends[0]) as file:
        compare(json.loads(file.read()), where)
    os.wait()


def shell(where):
    text = subprocess.run("env -0", shell=True, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = dict(entry.split("=", 1) for entry in text.split("\\0") if "=" in entry)
    found = {name: value for name, value in found.items() if name not in ("PWD", "SHLVL", "OLDPWD", "_")}
    compare({**{n: START[n] for n in ("PWD", "SHLVL", "OLDPWD") if n in START}, **found}, where)


over = False


def watch():  # from another thread, all the while
    while not over:
        compare(c_environ(), "watched")
        child("a child of another thread")


watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
for ask in (own, lambda: child("exec, before"), lambda: forked("fork, before"), lambda: shell("shell, before")):
    ask()
import torch
own(), child("exec, imported"), forked("fork, imported")
x = torch.ones(1 << 20, device="cuda")
for i in range(20):
    x = x + torch.ones(1 << 20, device="cuda")
own(), child("exec, at work"), forked("fork, at work"), shell("shell, at work")
with multiprocessing.get_context("spawn").Pool(1) as pool:
    compare(dict(pool.apply(eval, ("dict(__import__('os').environ)",))), "spawn")
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    pass
torch.cuda.empty_cache()
own(), child("exec, after running out")
over = True
watcher.join()
print(json.dumps([seen, sorted(wrong), sorted(put)]))
"""


class Environment(unittest.TestCase):
    def test_children_see_what_was_given(self):
        """Nothing of ours is ever added: a program's children see the environment that it was started with. The
        variables which the module torch itself sets at its import are known from a run without the library, and those
        that a module sets for a moment, which another thread may see or not, from the same run."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "look.py")
            script.write_text("if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in LOOK.splitlines()))
            said, put = {}, {}
            for mode in ("native", "auto") if SHORT else MODES:
                done = run(mode, script)
                self.assertEqual(done.returncode, 0, f"{mode}: {done.stderr[-3000:]}")
                seen, wrong, put[mode] = json.loads(done.stdout.splitlines()[-1])
                self.assertGreater(seen, 15)
                said[mode] = {tuple(row) for row in wrong if row[0] not in ("watched", "a child of another thread")}
                said[mode] |= {("watched", name) for where, name in wrong if where == "watched"}
            for mode, wrong in said.items():
                self.assertEqual(set(put[mode]) - set(put["native"]), set(), mode)
                momentary = {("watched", name) for name in put["native"]}
                self.assertEqual(wrong - said["native"] - momentary, set(), mode)
                self.assertFalse([row for row in wrong if row[1].startswith(OURS) and row[1] != "LD_LIBRARY_PATH"],
                                 mode)

    def test_the_library_has_no_means_to(self):
        """It calls nothing that changes the environment."""
        needed = subprocess.run(["nm", "-D", "--undefined-only", self.library()], check=True, stdout=subprocess.PIPE,
                                text=True).stdout
        for name in ("setenv", "putenv", "unsetenv", "clearenv"):
            self.assertNotRegex(needed, rf"\b{name}(@|$)")

    def library(self):
        done = run("direct", "-c", "import os; print(os.environ['LD_PRELOAD'])")
        return next(path for path in done.stdout.strip().split(":") if "libsegalloc.so" in path)


class Served(unittest.TestCase):
    """How PyTorch's allocations are served, as the report of its trace has it."""
    SCRIPT = """
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()
for n in range(8):
    model(torch.ones(64 + 8 * n, 512, device="cuda")).sum().backward()
    model.zero_grad(set_to_none=True)
counts = torch.cuda.memory_stats()["allocation.all.allocated"]
print("counted", counts)
"""

    def report(self, mode, **more):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace")
            done = run(mode, "-c", self.SCRIPT, options=("-o", trace), **more)
            self.assertEqual(done.returncode, 0, done.stderr)
            text = subprocess.run([SEGALLOC, "report", "--json", trace], check=True, stdout=subprocess.PIPE,
                                  env=ENVIRONMENT).stdout
        return json.loads(text), int(done.stdout.split()[-1])

    def test_every_allocation(self):
        natively = int(run("native", "-c", self.SCRIPT).stdout.split()[-1])
        for mode in ("direct", "torch"):
            report, _ = self.report(mode)
            self.assertEqual((report["served_share"], report["passed_on"], report["dropped"]), (1, 0, 0), mode)
            self.assertEqual(report["allocs"], natively, f"{mode}: PyTorch's own count of tensors")

    def test_expandable(self):
        """Pages come and go under ranges of addresses, and no segment is asked of the driver."""
        report, _ = self.report("direct")
        statistics = report["devices"][0]["statistics"] if "devices" in report else report
        self.assertGreater(statistics["calls_create"], 0)
        self.assertGreater(statistics["calls_map"], 0)
        self.assertEqual(statistics["calls_alloc"], 0)
        report, _ = self.report("direct", conf="expandable_segments:False")
        statistics = report["devices"][0]["statistics"] if "devices" in report else report
        self.assertGreater(statistics["calls_alloc"], 0)
        self.assertEqual(statistics["calls_map"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
