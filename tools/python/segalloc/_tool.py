"""The command-line tool, for what only it can read out of a trace."""
from __future__ import annotations

import os
import shutil
import subprocess


def beside() -> str | None:
    """Path of the tool in the same wheel, None where this is no wheel's package."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_tree", "bin", "segalloc")
    return path if os.access(path, os.X_OK) else None


def find() -> str | None:
    """Path of the tool, None where there is none."""
    return os.environ.get("SEGALLOC_TOOL") or beside() or shutil.which("segalloc")


def run(*arguments: str) -> bytes | None:
    """Runs the tool without the library in it, and what it prints as bytes. None where there is no tool, or it fails."""
    path = find()
    if path is None:
        return None
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "PYTHONPATH")}
    done = subprocess.run([path, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return done.stdout if done.returncode == 0 else None
