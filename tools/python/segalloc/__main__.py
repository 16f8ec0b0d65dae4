"""`python -m segalloc VERB …` is the command-line tool: that of the wheel, else the one that is installed."""
import os
import shutil
import sys

from . import _tool


def main() -> None:
    path = _tool.beside() or shutil.which("segalloc")
    if path is None or os.path.samefile(path, sys.argv[0]):
        sys.exit("segalloc: the command-line tool is not installed")
    os.execv(path, ["segalloc", *sys.argv[1:]])


if __name__ == "__main__":
    main()
