"""What several tests of the tools do alike."""
import itertools
import pathlib
import subprocess


def start(case, segalloc, program, *acts, environment, sim="1GiB"):
    """acts.c under segalloc with live statistics, that waits once it has done `acts`; ended with the test `case`."""
    process = subprocess.Popen([segalloc, "run", "--sim", sim, "--conf", "live:True", "--", program, *acts, "say=there", "wait"],
                               env=environment, stdout=subprocess.PIPE, text=True)
    case.addCleanup(lambda: pathlib.Path(f"/dev/shm/segalloc-live-{process.pid}").unlink(missing_ok=True))
    case.addCleanup(process.stdout.close)
    case.addCleanup(process.wait, 60)
    case.addCleanup(process.kill)
    case.assertEqual(process.stdout.readline(), "there\n")
    return process


def beginning(segalloc, trace, path, rows=40000):
    """Writes the first rows of a long trace to `path`, as CSV, and returns it."""
    whole = subprocess.Popen([segalloc, "trace", "cat", trace], stdout=subprocess.PIPE, text=True)
    path.write_text("".join(itertools.islice(whole.stdout, rows + 1)))
    whole.stdout.close()
    whole.wait(60)
    return path
