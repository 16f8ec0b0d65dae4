#!/usr/bin/env python3
"""Compares the roles of `segalloc report` with PyTorch's MemTracker, in the same process, on the programs of roles/programs.py. Each role
is within 1 % of the peak, and what is of no known role is 3 % of it at most. A run without MemTracker has the same roles.

MemTracker calls what a forward pass makes an activation, also where it goes at once, and what an optimizer's step makes its state. So
temporaries are compared together with activations, and its Optstate beyond the optimizer's own tensors counts among them. It knows no
workspaces of libraries. A key-value cache is an activation to it.

Usage: test_roles.py SEGALLOC PYTHON [--short] [--table] [TEST]… (--table: prints the figures, as a table)"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "roles", "programs.py")
SEGALLOC, PYTHON = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
SHORT, TABLE = "--short" in sys.argv, "--table" in sys.argv
sys.argv = [argument for argument in sys.argv if argument not in ("--short", "--table")]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "CUDA_"))}
with open(PROGRAMS, encoding="utf-8") as source:
    NAMES = re.findall(r"^def (\w+)\(watched\):", source.read(), re.MULTILINE)
# A row: our roles, and the words of MemTracker's for the same tensors.
ROWS = {"parameter": (["parameter"], ["Parameter"]), "buffer": (["buffer"], ["Buffer"]), "gradient": (["gradient"], ["Gradient"]),
        "optimizer": (["optimizer"], ["state"]), "activation": (["activation", "temporary", "kv_cache"], ["Activation", "Temp", "steps"])}


def at_peak(*command):
    """The roles at the peak of a program, and that peak. A thread of PyTorch's backward pass may let go of Python's objects while Python ends,
    and ends the process by that (pytorch#38228). On a busy machine it comes so late now and then, and the program is run again."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace")
        for _ in range(3):
            done = subprocess.run([SEGALLOC, "run", "-q", "-f", "--sim", "24GiB", "--sites", "-o", trace, "--", PYTHON, PROGRAMS, *command],
                                  env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)
            if "terminate called without an active exception" not in done.stderr:
                break
        if done.returncode:
            raise AssertionError(done.stderr)
        report = json.loads(subprocess.run([SEGALLOC, "report", "--json", trace], check=True, env=ENVIRONMENT, stdout=subprocess.PIPE).stdout)
    device, = report["devices"]
    return {row["role"]: row["bytes"] for row in device["roles"]}, device["peak_requested_bytes"]


class Roles(unittest.TestCase):
    def compare(self, name):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "truth")
            ours, peak = at_peak(name, path)
            with open(path, encoding="utf-8") as file:
                truth = json.load(file)
        told = {"state": truth["state"], "steps": truth["told"].get("Optstate", 0) - truth["state"], **truth["told"]}
        off = {row: (sum(ours.get(role, 0) for role in roles) - sum(told.get(word, 0) for word in words)) / peak * 100
               for row, (roles, words) in ROWS.items()}
        unknown = ours.get("unknown", 0) / peak * 100
        if TABLE:
            print(f"| {name} | {peak / 2 ** 20:.1f} | " + " | ".join(f"{value:+.3f}" for value in off.values()) + f" | {unknown:.3f} |", flush=True)
        for row, value in off.items():
            self.assertLessEqual(abs(value), 1, (name, row, ours, told))
        self.assertLessEqual(unknown, 3, (name, ours))
        self.assertEqual(sum(ours.values()), peak, name)
        return ours

    def test_beside_memtracker(self):
        if TABLE:
            print("| program | peak, MiB | " + " | ".join(ROWS) + " | unknown |\n|---|" + "---:|" * (len(ROWS) + 2))
        for name in ("cnn", "mlp_foreach", "recomputed", "generate") if SHORT else NAMES:
            with self.subTest(program=name):
                ours = self.compare(name)
                alone, peak = at_peak(name)
                for role in {*ours, *alone}:
                    self.assertLessEqual(abs(ours.get(role, 0) - alone.get(role, 0)), peak / 100, (name, role, ours, alone))

    def test_activations_and_temporaries(self):
        """Where the peak is in a backward pass, the two are told apart by both."""
        ours = self.compare("cnn")
        self.assertGreater(ours["activation"], 2 * ours["temporary"])
        self.assertGreater(ours["temporary"], 0)

    def test_cache(self):
        self.assertGreaterEqual(self.compare("generate")["kv_cache"], 4 * 2 * 16 * 512 * 192 * 4)

    def test_rehearsal(self):
        """At the peak, and where a card is full: lives are known beyond that moment."""
        command = ["--margin", "0", "--card", "100MiB", "--", PYTHON, PROGRAMS, "cnn"]
        done = subprocess.run([SEGALLOC, "rehearse", "--json", *command], env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)
        told, (ours, peak) = json.loads(done.stdout), at_peak("cnn")
        self.assertEqual({row["role"]: row["bytes"] for row in told["roles"]}, ours)
        self.assertEqual(peak, told["peak_requested_bytes"])
        then = {row["role"]: row["bytes"] for row in told["cards"][0]["roles_then"]}
        self.assertEqual(sum(then.values()), told["cards"][0]["live_bytes"])
        self.assertEqual([then[role] for role in ("parameter", "buffer")], [ours[role] for role in ("parameter", "buffer")])
        self.assertGreater(then["activation"], then["parameter"])
        text = subprocess.run([SEGALLOC, "rehearse", *command], env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False).stdout
        self.assertRegex(text, r"full:\n(?:.*\n)+  By role: [0-9.]+ MiB activations, .*\n(?:.*\n)+  By role: [0-9.]+ MiB activations, ")


unittest.main(verbosity=0 if TABLE else 1)
