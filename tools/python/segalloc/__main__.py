"""`python -m segalloc VERB …` is the command-line tool: that of the wheel, else the one that is installed."""
import os
import shutil
import sys


def tool():
    """Path of the tool, None where there is none."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_tree", "bin", "segalloc")
    return beside if os.access(beside, os.X_OK) else shutil.which("segalloc")


def main():
    path = tool()
    if path is None or os.path.samefile(path, sys.argv[0]):
        sys.exit("segalloc: the command-line tool is not installed")
    os.execv(path, ["segalloc", *sys.argv[1:]])


if __name__ == "__main__":
    main()
