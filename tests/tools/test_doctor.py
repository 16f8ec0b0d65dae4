"""`segalloc doctor` on the simulated GPU: who is served, and why others are not.

Usage: test_doctor.py SEGALLOC CLIENT OWN_RUNTIME STATIC_PROGRAM (empty: none could be linked) RUNTIME NAMES_ERRORS"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, CLIENT, OWN_RUNTIME, STATIC, RUNTIME, NAMES_ERRORS = (sys.argv.pop(1) for _ in range(6))
# In a build with a sanitizer its runtime, which must come before all other libraries.
SANITIZER = os.environ.get("SANITIZER", "")
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")


def doctor(*arguments, env=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    if SANITIZER:
        clean["LD_PRELOAD"] = SANITIZER
    with tempfile.TemporaryDirectory() as folder:
        clean.update({"TMPDIR": folder, **(env or {})})
        result = subprocess.run([SEGALLOC, "doctor", *arguments], env=clean, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, timeout=60)
        assert os.listdir(folder) == [], "files are left"
    return result


class Doctor(unittest.TestCase):
    def answer(self, *command, options=(), status=1, env=None):
        result = doctor("--sim", "1GiB", "--json", *options, *(["--", *command] if command else []), env=env)
        self.assertEqual(result.returncode, status, result)
        told = json.loads(result.stdout)
        self.assertEqual(told["schema"], "segalloc.doctor/1")
        return told

    def test_machine(self):
        told = self.answer(status=0, options=("--conf", "live:False"))
        self.assertEqual(told["answer"], "ready")
        self.assertEqual([d["bytes"] for d in told["devices"]], [1 << 30])
        self.assertIn("libsegalloc.so", told["library"])
        self.assertEqual(self.answer(status=1, options=("--conf", "backend:cudaMallocAsync"))["answer"], "switched_off")
        told = doctor("--sim", "1GiB,count=2,no-vmm").stdout
        self.assertIn("ready: without virtual memory management", told)
        self.assertIn("device   1", told)

    def test_hidden_devices(self):
        """Devices are those that CUDA_VISIBLE_DEVICES leaves, and where it leaves none that is said."""
        for visible, devices in (("1", 1), ("1,0", 2), ("0,7,1", 1)):
            told = self.answer(CLIENT, "ordinary", status=0, options=("--sim", "1GiB,count=2"), env={"CUDA_VISIBLE_DEVICES": visible})
            self.assertEqual((told["answer"], len(told["devices"])), ("served", devices), visible)
        for visible, said in (("", False), ("-1", False), ("2", True), ("0,0", False)):
            told = doctor("--sim", "1GiB,count=2", CLIENT, "ordinary", env={"CUDA_VISIBLE_DEVICES": visible})
            self.assertIn(f'found no CUDA device (CUDA_VISIBLE_DEVICES is "{visible}")', told.stdout)
            self.assertEqual("names no device of a machine that has 2; count=N makes more" in told.stderr, said, told.stderr)
        told = doctor("--sim", "1GiB", env={"CUDA_VISIBLE_DEVICES": "-1"})
        self.assertIn('the driver has no device (cuInit says 100) (CUDA_VISIBLE_DEVICES is "-1")', told.stdout)

    def test_served(self):
        told = self.answer(CLIENT, "ordinary", status=0)
        self.assertEqual((told["answer"], told["served"], told["passed_on"], told["status"]), ("served", 3, 0, 0))
        self.assertEqual([p["served"] for p in told["processes"]], [3])

    def test_driver_too_old_for_the_runtime(self):
        """Said before all else, since such a program finds no device, or falls back to the CPU."""
        for version in ("11.4", "12.2"):
            ran = doctor("--json", "--sim", f"1GiB,driver={version}", RUNTIME)
            told = json.loads(ran.stdout)
            self.assertEqual(told["answer"], "driver_too_old", told)
            self.assertIn(f"for CUDA {version}, is too old for the runtime", told["because"])
            self.assertIn("libcudart.so.13", told["because"])

    @unittest.skipIf(SANITIZER, "the copy of the driver wants the sanitizer twice")
    def test_two_drivers(self):
        """What the second serves passes unseen, however much came by of the first."""
        with tempfile.TemporaryDirectory() as folder:
            script = f"""
import ctypes, shutil
def take(path):
    cuda, context, address = ctypes.CDLL(path), ctypes.c_void_p(), ctypes.c_uint64()
    done = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)]
    assert not any(done + [cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20))]), done
take("libcuda.so.1")
first = next(line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so.1" in line)
take(shutil.copy(first, {folder!r} + "/libcuda.so.1"))
"""
            told = self.answer(sys.executable, "-c", script)
        self.assertEqual(told["answer"], "partly_served", told)
        self.assertIn("has two drivers loaded", told["because"])
        self.assertIn(folder, told["because"])

    def test_runtime_within_the_program(self):
        """Said in one line before the start, whatever stands before the program; by the simulated driver where only a
        script knows the program; by `doctor` from the file; by `rehearse` in place of the program's own last line."""
        said = "own_runtime has NVIDIA's runtime within itself; on the simulated GPU it runs only when linked with -cudart shared"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        if SANITIZER:
            clean["LD_PRELOAD"] = SANITIZER
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "start")
            with open(script, "w") as file:
                file.write(f"#!/bin/sh\nexec {OWN_RUNTIME}\n")
            os.chmod(script, 0o755)
            for command, line in (([OWN_RUNTIME], said), (["env", "A=1", OWN_RUNTIME], said),
                                  ([script], "own_runtime is or has NVIDIA's own runtime, which can't start on the simulated GPU")):
                ran = subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--", *command], env=clean, capture_output=True,
                                     text=True)
                lines = ran.stderr.splitlines()
                self.assertEqual((ran.returncode, len(lines), lines[-1]), (3, 2, "named symbol not found"), ran)
                self.assertIn(line, lines[0])
            told = self.answer(OWN_RUNTIME)
            self.assertEqual(told["answer"], "runtime_within")
            self.assertIn(said, told["because"])
            self.assertEqual(self.answer(script)["answer"], "runtime_within")
            told = json.loads(subprocess.run([SEGALLOC, "rehearse", "--json", "--", OWN_RUNTIME], env=clean,
                                             capture_output=True, text=True).stdout)
            self.assertEqual(told["outcome"], "stopped")
            self.assertIn(said, told["reason"])
            # debugging information names all errors of the runtime too
            named = os.path.join(folder, "named")
            with open(CLIENT, "rb") as program, open(named, "wb") as file:
                file.write(program.read() + b"\0cudaErrorMapBufferObjectFailed\0")
            os.chmod(named, 0o755)
            for command in ([CLIENT, "ordinary"], [SEGALLOC, "--version"], [named, "ordinary"],
                            [NAMES_ERRORS, "ordinary"]):
                ran = subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--", *command], env=clean, capture_output=True,
                                     text=True)
                self.assertNotIn("runtime", ran.stderr)

    def test_a_tool_that_watches(self):
        """The library stays out of the process, and says so once."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        if SANITIZER:
            clean["LD_PRELOAD"] = SANITIZER
        for injection in (None, "/no/such/tool.so"):
            environment = dict(clean, **({"CUDA_INJECTION64_PATH": injection} if injection else {}))
            ran = subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--", CLIENT, "ordinary"], env=environment, capture_output=True, text=True)
            self.assertEqual((ran.returncode, ran.stderr.count("a profiler or checker is in this process")), (0, int(injection is not None)))
        self.assertEqual(self.answer(CLIENT, "ordinary", env={"CUDA_INJECTION64_PATH": "/no/such/tool.so"})["answer"], "switched_off")

    def test_what_ends_the_order_of_streams(self):
        """Looking a name up does not; calling what can't be followed does, and everything that tells of the process says
        so."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.trace")
            for way, by in (("ordinary", None), ("graphics", "cuStreamBeginCaptureToCig")):
                result = doctor("--sim", "1GiB,driver=13.2", "--json", "--", CLIENT, way)
                told = json.loads(result.stdout)
                for where in (told, *told["processes"]):
                    self.assertEqual((where["untracked_order"], where["untracked_by"]), (int(by is not None), by))
                text = doctor("--sim", "1GiB,driver=13.2", "--", CLIENT, way).stdout
                self.assertEqual("lost at cuStreamBeginCaptureToCig" in text, by is not None)
                clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
                subprocess.run([SEGALLOC, "run", "--sim", "1GiB,driver=13.2", "-o", trace, "--", CLIENT, way],
                               env={**clean, **({"LD_PRELOAD": SANITIZER} if SANITIZER else {})}, check=True)
                report = json.loads(subprocess.run([SEGALLOC, "report", "--json", trace], check=True,
                                                   stdout=subprocess.PIPE).stdout)
                self.assertEqual((report["untracked_order"], report["untracked_by"]), (int(by is not None), by))
                self.assertEqual(report["allocs"], 3)
                os.unlink(trace)

    def test_calls_of_the_driver_that_fail(self):
        for sim, errors in (("1GiB", 0), ("1GiB,fail=cuMemMap:2:999", 1)):
            told = json.loads(doctor("--sim", sim, "--json", "--", CLIENT, "ordinary").stdout)
            self.assertEqual((told["answer"], told["served"], told["vmm_errors"]), ("served", 3, errors))
            self.assertEqual([p["vmm_errors"] for p in told["processes"]], [errors])
            text = doctor("--sim", sim, "--", CLIENT, "ordinary").stdout
            self.assertEqual("  errors   1 call of the driver's memory management failed" in text, errors > 0)

    def test_aliases(self):
        apart = "off: two addresses of a page are not coherent"
        for sim, way, said in (("1GiB", "ordinary", "not tried: no page was to have a second address yet"),
                               ("1GiB,aliases-apart", "ordinary", "not tried: no page was to have a second address yet"),
                               ("64MiB", "ordered", "on"), ("64MiB,aliases-apart", "ordered", apart),
                               ("64MiB,no-vmm", "ordered", None)):
            told = json.loads(doctor("--sim", sim, "--json", "--", CLIENT, way).stdout)
            self.assertEqual([p["aliases"] for p in told["processes"]], [said])
            text = doctor("--sim", sim, "--", CLIENT, way).stdout
            self.assertEqual("  aliases  off: two addresses of a page" in text, said == apart)

    def test_nccl(self):
        """What NCCL holds is not paused, and the line names its own way."""
        import _ctypes
        with tempfile.TemporaryDirectory() as folder:
            nccl = shutil.copy(_ctypes.__file__, os.path.join(folder, "libnccl.so.2"))
            loads = f"import ctypes; ctypes.CDLL({nccl!r}); ctypes.CDLL('libcuda.so.1').cuInit(0)"
            told = doctor("--sim", "1GiB", "--", sys.executable, "-c", loads).stdout
            self.assertIn("ncclCommSuspend()", told)
            processes = self.answer(sys.executable, "-c", loads)["processes"]
            self.assertTrue(any(process["nccl"] for process in processes), processes)
        self.assertNotIn("nccl", doctor("--sim", "1GiB", "--", CLIENT, "ordinary").stdout.lower())

    def test_served_in_a_child(self):
        told = self.answer("sh", "-c", f"'{CLIENT}' ordinary; '{CLIENT}' ordinary; exit 7", status=0)
        self.assertEqual((told["answer"], told["served"], told["status"]), ("served", 6, 7))

    def test_static(self):
        if not STATIC:
            self.skipTest("no static libc")
        told = self.answer(STATIC)
        self.assertEqual(told["answer"], "statically_linked")
        self.assertIn(os.path.basename(STATIC), told["because"])

    def test_preload_taken_away(self):
        told = self.answer("sh", "-c", "exec env -i SEGALLOC_SIM=$SEGALLOC_SIM LD_LIBRARY_PATH=$LD_LIBRARY_PATH "
                           f"'{CLIENT}' ordinary")
        self.assertEqual(told["answer"], "not_loaded")
        self.assertIn("LD_PRELOAD", told["because"])

    def test_memory_from_elsewhere(self):
        for way in ("virtual", "pooled", "none"):
            told = self.answer(CLIENT, way)
            self.assertIn(told["answer"], ("allocated_elsewhere", "passed_on"), way)
            self.assertEqual(told["served"], 0)
            self.assertEqual(told["status"], 0)

    def test_switched_off(self):
        self.assertEqual(self.answer(CLIENT, "ordinary", options=("--conf", "backend:cudaMallocAsync"))["answer"],
                         "switched_off")
        told = self.answer(CLIENT, "ordinary", env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
        self.assertEqual(told["answer"], "switched_off")

    def test_no_cuda(self):
        told = self.answer("true")
        self.assertEqual(told["answer"], "no_cuda_call")

    def test_no_device(self):
        result = doctor("--sim", "1GiB,count=0", "--json", "--", CLIENT, "ordinary")
        self.assertEqual(result.returncode, 1)
        told = json.loads(result.stdout)
        self.assertEqual((told["answer"], told["status"]), ("no_device", 3))

    def test_command_that_cannot_run(self):
        result = doctor("--sim", "1GiB", "--json", "--", "no-such-program")
        self.assertEqual((result.returncode, result.stdout), (127, ""))
        self.assertEqual(result.stderr.count("\n"), 1)

    def test_a_simulated_gpu_that_is_not_understood(self):
        for command, status in (([], 2), (["--", "true"], 2)):
            result = doctor("--sim", "bad", *command)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (status, "", 1))

    def test_killed(self):
        told = self.answer("sh", "-c", f"'{CLIENT}' ordinary; kill -9 $$", status=0)
        self.assertEqual((told["served"], told["status"]), (3, 137))

    def test_signals(self):
        """Told to end, it has the command end, and leaves neither it nor a folder behind."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        if SANITIZER:
            clean["LD_PRELOAD"] = SANITIZER
        for number in (signal.SIGTERM, signal.SIGHUP):
            with tempfile.TemporaryDirectory() as folder, self.subTest(signal=number):
                script = "sleep 1000 & echo $! $$ >&2; exec sleep 1000"
                process = subprocess.Popen([SEGALLOC, "doctor", "--sim", "1GiB", "--", "sh", "-c", script],
                                           env=dict(clean, TMPDIR=folder), stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True,  # under nohup HUP would be ignored
                                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
                left = process.stderr.readline().split()
                process.send_signal(number)
                self.assertIn("not served", process.communicate(timeout=60)[0])
                self.assertEqual([pid for pid in left if os.path.exists(f"/proc/{pid}")], [])
                self.assertEqual(os.listdir(folder), [])

    def test_what_the_command_prints(self):
        result = doctor("--sim", "1GiB", "echo", "hello")
        self.assertTrue(result.stdout.startswith("hello\nnot served: "), result.stdout)
        result = doctor("--sim", "1GiB", "--json", "echo", "hello")
        self.assertEqual(result.stderr, "hello\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
