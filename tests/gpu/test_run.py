"""tests/gpu/run on the simulator, so that on a real GPU nothing fails for a typo.

Usage: test_run.py BUILD   (PYTORCH_PYTHON: an interpreter with PyTorch, for the parts that need it)"""
import json
import os
import pathlib
import py_compile
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import assumed  # noqa: E402
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PYTHON = os.environ.get("PYTORCH_PYTHON", sys.executable)
ALWAYS = {"what", "build", "probe", "alias", "managed", "costs", "frameworks"}  # the rest needs headers or modules that may not be there


ROOT = HERE.parent.parent
ENVIRONMENT = {**os.environ, "LD_LIBRARY_PATH": f"{BUILD / 'src' / 'sim' / 'cudart'}:{BUILD / 'src' / 'sim'}"}


def probe(*arguments, **more):
    return subprocess.run([BUILD / "tests" / "gpu" / "gpu_probe", "--quick", *arguments] if "--list" not in arguments else
                          [BUILD / "tests" / "gpu" / "gpu_probe", *arguments], env={**ENVIRONMENT, **more}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def run(*arguments):
    return subprocess.run([sys.executable, HERE / "run", "--build", BUILD, "--python", PYTHON, *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=1500)


class Run(unittest.TestCase):
    def test_all_parts(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("--sim", "8GiB", "--seconds", "1400", "--out", folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            results = json.loads(pathlib.Path(folder, "results.json").read_text())
            text = pathlib.Path(folder, "results.txt").read_text()
            told = json.loads(pathlib.Path(folder, "facts.json").read_text())
        self.assertTrue(told["machine"]["assumed"])
        self.assertEqual(told["facts"]["driver"], {"value": 13000, "simulator": 13000})
        self.assertTrue(results["simulated"])
        for name, part in results["parts"].items():
            self.assertIn(part["status"], ("ok", "skipped"), name)
            for row in part["rows"]:
                self.assertIn(row["status"], ("ok", "skipped"), f"{name}: {row}")
            self.assertEqual(part["status"], "ok" if name in ALWAYS else part["status"], f"{name}: {part}")
            self.assertIn(f"| {name} |", text)
        self.assertIn("No figure here says anything about a GPU", text)
        rows = results["parts"]["costs"]["data"]
        self.assertTrue({row["call"] for row in rows} >= {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                                          "cuMemRelease", "cuEventRecord", "cuEventQuery",
                                                          "cuCtxRecordEvent"})
        self.assertEqual({row["streams"] for row in rows if "streams" in row}, {1, 8, 64, 200})
        self.assertLess(len(done.stdout), 12000)

    def test_clients_compile(self):
        for path in sorted(HERE.glob("clients/*.py")):
            with self.subTest(path=path.name), tempfile.NamedTemporaryFile(suffix=".pyc") as out:
                py_compile.compile(str(path), cfile=out.name, doraise=True)

    def test_refusals(self):
        """A row that fails is said, and the next goes on; one that takes too long is ended."""
        done = probe("costs of handles", "peer", SEGALLOC_SIM="1GiB,fail=cuMemMap:1+")
        rows = {row["row"]: row for row in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(rows["costs of handles"]["code"], 2)
        self.assertIn("one device", rows["peer"]["skipped"])
        done = probe("marks", "peer", SEGALLOC_SIM="1GiB,kernel_us=60000000")
        rows = {row["row"]: row for row in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(rows["marks"]["error"], "no answer within 10 s")
        self.assertIn("one device", rows["peer"]["skipped"])
        self.assertEqual(done.returncode, 1)

    def test_rows_are_documented(self):
        text = (HERE / "README.md").read_text()
        for row in map(json.loads, probe("--list").stdout.splitlines()):
            self.assertIn(f"| {row['row']} |", text)

    def test_compare(self):
        """A made-up machine changes the simulator, which then says the same; nothing is left but what has no setting."""
        facts = ROOT / "tests" / "data" / "gpu-facts-assumed.json"
        done = subprocess.run([sys.executable, HERE / "compare", facts, "--build", BUILD, "--apply"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("assumed: no GPU said this", done.stdout)
        spec = done.stdout.splitlines()[-1].removeprefix("SEGALLOC_SIM=")
        for setting in ("driver=13.2", "no-posix-handles", "no-rdma", "no-ipc", "managed-apart"):
            self.assertIn(setting, spec.split(","))
        told = [json.loads(line) for line in probe("device", SEGALLOC_SIM=spec).stdout.splitlines()]
        self.assertEqual(told[0]["driver"], 13020)
        self.assertEqual(told[2]["posix_handles"], 0)
        library = BUILD / "src" / "preload" / "libsegalloc.so"
        done = probe("--group", "costs", "managed", "reset", SEGALLOC_SIM=spec, LD_PRELOAD=str(library))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout[-2000:])
        self.assertNotIn('"error"', done.stdout)
        for name in ("blocks", "events", "captures", "threads"):
            program = BUILD / "tests" / "preload" / "stranger" / f"stranger_{name}_13"
            if program.exists():
                ran = subprocess.run([ROOT / "tests" / "preload" / "stranger" / "compare.sh", program, library,
                                      "free_sync:auto", "free_sync:strict"],
                                     env={**ENVIRONMENT, "SEGALLOC_SIM": spec}, text=True, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, timeout=300)
                self.assertEqual(ran.returncode, 0, f"{name}: {ran.stdout[-2000:]}")

    def test_every_setting_follows_from_a_fact(self):
        """A machine that lacks all that a setting of the simulator can take away; no setting is left out."""
        self.assertEqual(sorted(assumed.settings_known()),
                         sorted({key for key, _, _ in assumed.RULES} | {*assumed.ELSEWHERE, *assumed.NO_FACT}))
        lacking = {"driver": 12080, "devices": 2, "total_bytes": 8 << 30, "info_total_bytes": 7 << 30, "rdma_vmm": 0,
                   "integrated": 1, "host_pages": 0,
                   "posix_handles": 0, "pointer.plain_ipc": 801, "peer_access": 0, "managed.on_device": False,
                   "aliases_coherent": False, "addresses.stopped_at": 3000, "addresses.stopped_code": 999,
                   "vmm_waits": True}
        spec = self.applied(lacking)
        for setting in ("count=2", "driver=12.8", "quota_mb=7168", "no-rdma", "no-posix-handles", "no-ipc", "no-p2p",
                        "integrated", "hostpages=off",
                        "managed-apart", "aliases-apart", "mappings=3000:999", "vmm_sync=always"):
            self.assertIn(setting, spec)
        self.assertIn("no-vmm", self.applied({"driver": 13000, "devices": 1, "total_bytes": 8 << 30, "vmm": 0}))

    def applied(self, values):
        """The settings that compare finds for a machine of which these facts are known."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"schema": "segalloc.facts/1", "machine": {"name": "made up", "assumed": True},
                       "facts": {name: {"value": value} for name, value in values.items()}}, file)
            file.flush()
            done = subprocess.run([sys.executable, HERE / "compare", file.name, "--build", BUILD, "--apply"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout.splitlines()[-1].removeprefix("SEGALLOC_SIM=").split(",")

    def test_no_facts(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write("{}")
            file.flush()
            done = subprocess.run([sys.executable, HERE / "compare", file.name], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no file of facts", done.stderr)

    def test_wrong_part(self):
        done = run("--sim", "--only", "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such part: nothing", done.stderr)


if __name__ == "__main__":
    unittest.main()
