#!/usr/bin/env python3
"""tests/tools/test_matrix.py with PyTorch's tensors in place of the driver's memory.

Usage: test_matrix.py SEGALLOC PYTHON [--short]"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
command = [sys.executable, HERE.parent / "tools" / "test_matrix.py", sys.argv[1],
           f"{sys.argv[2]} {HERE / 'loops' / 'acts.py'}", "", *sys.argv[3:]]
sys.exit(subprocess.run(command).returncode)
