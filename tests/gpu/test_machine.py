"""How tests/gpu/run asks: over a gpu_probe, an nvcc, a Python and a ninja that are made up. Takes no build and no device."""
import contextlib
import io
import os
import pathlib
import runpy
import sys
import tempfile
import time
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import facts  # noqa: E402
import parts  # noqa: E402
import probe_parts  # noqa: E402
import torch_parts  # noqa: E402
from machine import Failed, Machine, Slow  # noqa: E402

RUN = runpy.run_path(str(HERE / "run"))
DEVICE = 'echo \'{"row": "device", "device": "made up", "driver": 13000, "total_bytes": 8589934592}\'\n'
NAMES = 'echo \'{"row": "names", "same": 1}\'\n'
STUCK = "setsid env -i sleep 20 &\n"  # without the mark of a run: nothing of that finds it


class Asks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.machine = Machine(None, self.folder, sys.executable, time.monotonic() + 60)
        self.addCleanup(self.machine.close)
        self.machine.probe.parent.mkdir(parents=True)
        self.printed = io.StringIO()
        silent = contextlib.redirect_stdout(self.printed)
        silent.__enter__()
        self.addCleanup(silent.__exit__, None, None, None)

    def script(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

    def probe_is(self, text):
        self.script(self.machine.probe, text)

    def within(self, seconds):
        """Seconds that have passed must be fewer when the test has ended."""
        begun = time.monotonic()
        self.addCleanup(lambda: self.assertLess(time.monotonic() - begun, seconds))

    def path_has(self, name, text):
        """A program that is found before others of its name."""
        self.script(self.folder / "bin" / name, text)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{self.folder / 'bin'}:{before}"
        self.addCleanup(os.environ.__setitem__, "PATH", before)

    def test_pipe_kept_open(self):
        """A process that goes on with the pipe holds up nothing once gpu_probe has ended."""
        self.within(8)
        self.probe_is(DEVICE + STUCK + NAMES + "printf '{\"row\": \"last\"}'\n")
        self.assertEqual([row["row"] for row in self.machine.asked("native")], ["device", "names", "last"])
        self.probe_is("echo r4096\n" + STUCK)
        self.assertEqual(self.machine.free_bytes(), (4096, None))

    def test_pipe_closed(self):
        """One that closes its output and goes on is waited for, to the end of its time."""
        self.within(12)
        self.probe_is(DEVICE + "exec >&-\nsleep 20\n")
        told = []
        with self.machine.at_most(3), self.assertRaises(Slow):
            for row in self.machine.asked("native"):
                told.append(row["row"])
        self.assertEqual(told, ["device"])

    def run_probe(self, seconds=20):
        with self.machine.at_most(seconds):
            return RUN["run_part"]("probe", self.machine, {}, seconds)

    def test_lines_of_a_part_that_fails(self):
        """What has come is kept, and is in facts.json, whatever becomes of the part."""
        self.probe_is("echo NVRM: a line\n" + DEVICE + "echo\necho 7\n" + NAMES)
        self.machine.kernels = []
        with unittest.mock.patch.object(facts, "line", side_effect=RuntimeError("made up")):
            part = self.run_probe()
        self.assertEqual(part["status"], "failed")
        self.assertEqual([row["row"] for row in self.machine.lines], ["device", "names"])
        self.assertIn("NVRM: a line", "".join(self.machine.said))
        RUN["write_all"](self.folder, {"simulated": False, "parts": {}}, self.machine, {})
        self.assertIn("made up", (self.folder / "facts.json").read_text())

    def test_lines_of_a_part_that_is_interrupted(self):
        self.probe_is(DEVICE + NAMES + "sleep 2\nkill -TERM $PPID\nsleep 20\n")
        self.machine.kernels = []
        before = RUN["signal"].signal(15, RUN["interrupt"](self.machine))
        self.addCleanup(RUN["signal"].signal, 15, before)
        part = self.run_probe()
        self.assertIn("interrupted", part)
        self.assertEqual([row["row"] for row in self.machine.lines], ["device", "names"])

    def test_rows_that_no_time_is_left_for(self):
        self.within(12)
        self.probe_is(DEVICE + NAMES + "sleep 20\n")
        self.machine.kernels = []
        part = self.run_probe(4)
        self.assertEqual(part["status"], "no time")
        self.assertEqual([row["row"] for row in self.machine.lines], ["device", "names"])

    def test_free_bytes(self):
        for text, wanted in (("printf 'NVRM: a line\\nr12345'", (12345, None)), ("echo r12345", (12345, None)),
                             ("echo 9; echo no number", (None, None)), ("echo why; exit 2", (None, "why")),
                             ("exit 3", (None, "gpu_probe ended with status 3"))):
            with self.subTest(text=text):
                self.probe_is(text + "\n")
                self.assertEqual(self.machine.free_bytes(), wanted)

    def test_hold(self):
        self.probe_is('[ "$1" = --free ] && echo r5 && exit\necho NVRM: a line\nprintf r\nread end\n')
        self.assertEqual(self.machine.hold(1), 5)
        self.machine.let_go()
        self.probe_is("echo no memory\n")
        with self.assertRaises(Failed):
            self.machine.hold(1)

    def test_let_go_in_time(self):
        self.within(15)
        self.probe_is('[ "$1" = --free ] && echo r5 && exit\nprintf r\nsleep 20\n')
        self.machine.hold(1)
        with self.machine.at_most(1):
            self.machine.let_go()

    def test_simulator_sees_its_own_device(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-made-up"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        self.probe_is('echo "{\\"row\\": \\"device\\", \\"seen\\": \\"$CUDA_VISIBLE_DEVICES\\"}"\n')
        self.assertEqual([row["seen"] for row in self.machine.asked("native", sim="8GiB")], [""])
        self.assertEqual([row["seen"] for row in self.machine.asked("native")], ["GPU-made-up"])

    def test_no_simulator(self):
        """Its facts are missing then, which is said."""
        self.probe_is("exit 1\n")
        self.assertEqual(RUN["simulator"](self.machine, [{"row": "device", "total_bytes": 8 << 30}]), {})
        self.assertIn("facts.json has none of the simulator", self.printed.getvalue())

    def test_nvcc_is_asked_once(self):
        count = self.folder / "count"
        self.path_has("nvcc", f"echo x >> {count}\necho no such architecture >&2\nexit 1\n")
        self.assertEqual([probe_parts.kernels(self.machine) for _ in range(3)], [[], [], []])
        self.assertEqual(count.read_text(), "x\n")

    def test_nvcc_that_hangs_is_asked_once(self):
        self.within(12)
        self.path_has("nvcc", "sleep 20\n")
        with self.machine.at_most(3):
            self.assertEqual(probe_parts.kernels(self.machine), [])
        self.assertEqual(probe_parts.kernels(self.machine), [])

    def test_build_without_a_library(self):
        self.path_has("ninja", "exit 0\n")
        (self.folder / "build.ninja").write_text("")
        with self.assertRaisesRegex(Failed, "listed no targets"):
            parts.build(self.machine)

    def test_slow_python(self):
        """That a module is missing is not known then."""
        self.within(12)
        self.machine.python = str(self.script(self.folder / "python", "sleep 20\n"))
        with self.machine.at_most(3), self.assertRaises(Slow):
            self.machine.need("torch")
        self.machine.python = str(self.script(self.folder / "python", "exit 1\n"))
        self.assertFalse(self.machine.has("torch"))

    def test_most_rows(self):
        for number in range(12):
            parts.judge_program(self.machine, f"program {number}", {"native": False, "wrong": ["exit status 1"]})
        self.assertEqual(self.printed.getvalue().count("native no"), parts.MOST_FALSE)
        self.assertEqual(len(self.machine.rows), 12)

    def test_other_values_each_time(self):
        """A client whose values are others in each run differs natively too; one that differs with the library alone is
        the library's."""
        runs = iter(range(100))
        for value, status in ((lambda mode: next(runs), "native no"), (lambda mode: mode, "differs")):
            self.machine.client = lambda _client, mode, *_, **_more: {"value": value(mode), "seconds": 1, "computes": True}
            torch_parts.in_modes(self.machine, "other", "other", (), ("preloaded",), same=("value",))
            self.assertEqual(self.machine.rows[-1]["status"], status)


class Facts(unittest.TestCase):
    def test_alias_needs_control(self):
        """Counts of wrong words are facts only where the kernels find a wrong word that is there."""
        rows = [{"row": "volatile", "wrong": 0}, {"row": "moved", "wrong": 0}]
        for control, coherent in (([], None), ([{"row": "control", "found": 0, "of": 64}], None),
                                  ([{"row": "control", "error": "a call", "code": 1}], None),
                                  ([{"row": "control", "found": 64, "of": 64}], True)):
            told = facts.of([{"row": "device", "simulated": True}, *control, *rows])
            self.assertEqual(told["aliases_coherent"], coherent)
            self.assertEqual(told.get("alias.moved"), None if coherent is None else 0)

    def test_growth_that_failed(self):
        told = facts.of([{"row": "growth", "processes": 1, "ns_a_page": 70},
                         {"row": "growth", "error": "1 of 2 processes that grow failed", "processes": 2}])
        self.assertEqual({name: value for name, value in told.items() if name.startswith("growth.")},
                         {"growth.1.ns_a_page": 70})


if __name__ == "__main__":
    unittest.main()
