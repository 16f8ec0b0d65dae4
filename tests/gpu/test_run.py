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
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PYTHON = os.environ.get("PYTORCH_PYTHON", sys.executable)
ALWAYS = {"what", "build", "costs", "frameworks"}  # the rest needs headers or modules that may not be there


def run(*arguments):
    return subprocess.run([sys.executable, HERE / "run", "--build", BUILD, "--python", PYTHON, *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=560)


class Run(unittest.TestCase):
    def test_all_parts(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("--sim", "8GiB", "--out", folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            results = json.loads(pathlib.Path(folder, "results.json").read_text())
            text = pathlib.Path(folder, "results.txt").read_text()
        self.assertTrue(results["simulated"])
        for name, part in results["parts"].items():
            self.assertIn(part["status"], ("ok", "skipped"), name)
            self.assertEqual(part["status"], "ok" if name in ALWAYS else part["status"], f"{name}: {part}")
            self.assertIn(f"| {name} |", text)
        self.assertIn("No figure here says anything about a GPU", text)
        rows = results["parts"]["costs"]["data"]["rows"]
        self.assertTrue({row["call"] for row in rows} >= {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                                          "cuMemRelease", "cuEventRecord", "cuEventQuery",
                                                          "cuCtxRecordEvent"})
        self.assertEqual({row["streams"] for row in rows if "streams" in row}, {1, 8, 64})

    def test_clients_compile(self):
        for path in sorted(HERE.glob("clients/*.py")):
            with self.subTest(path=path.name), tempfile.NamedTemporaryFile(suffix=".pyc") as out:
                py_compile.compile(str(path), cfile=out.name, doraise=True)

    def test_wrong_part(self):
        done = run("--sim", "--only", "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such part: nothing", done.stderr)


if __name__ == "__main__":
    unittest.main()
