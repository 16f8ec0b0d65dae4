"""Programs and tools on a host that is short of something: each call by which the allocator asks the host for memory,
address space, files, room on a disk or threads is made to fail, one by one and from one on (host_faults.c).

    host_faults.py --build FOLDER [--every N] [--limits] [--jobs N] [--scenario NAME] [--kind NAME] [--verbose]

A program must not notice: output and exit status are as without a fault, on stderr there is at most a line of ours.
What was written of trace and statistics can be reported on. A tool ends with what it would have said, or with one line
and status 1. --every takes each Nth fault only. --limits runs the programs under limits of the system instead, such as
few descriptors or a full disk: where one can run without the library, it must run with it. Exit status 1 where something
fell short; each with its command.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import shlex
import struct
import subprocess
import sys
import tempfile

KINDS = ("memory", "map", "protect", "open", "write", "thread", "syscall")
PATIENCE_S = 120
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_", "HOST_FAULTS")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
CONFS = {
    "pages": "reserve_slack:1.0,oom_report:never",
    "fixed": "expandable_segments:False,oom_report:never",
    "live": "live:True,oom_report:never",
}
SIM = "96MiB"
NOT_IN_USE = "asked for no device memory while segalloc was in it"  # the driver served all of it

Scenario = collections.namedtuple("Scenario", "name command environment tool")


class Build:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.segalloc = self.path("tools/segalloc/segalloc")
        self.library = self.path("src/preload/libsegalloc.so.0")
        self.faults = self.path("tests/fuzz/libhost_faults.so")
        self.driver, self.runtime = self.path("src/sim"), self.path("src/sim/cudart")

    def path(self, name):
        return str(self.folder / name)


def programs(build):
    """Each with each configuration; trace and statistics are written, but where the live page takes their place."""
    commands = {
        "loop": [build.path("tests/tools/loop"), "3000"],
        "calls": [build.path("tests/preload/programs/preload_calls")],
        "start": [build.path("tests/preload/programs/preload_start"), "any"],
        "streams": [build.path("tests/tools/streams"), "3", "100", "4", "3000000"],
        "crowd": [build.path("tests/tools/crowd"), "4", "500", "1", "3000000"],
    }
    base = {"LD_LIBRARY_PATH": f"{build.driver}:{build.runtime}", "CUDART": "libcudart.so.13",
            "LD_PRELOAD": f"{build.faults}:{build.library}"}
    for name, command in commands.items():
        for kind, conf in CONFS.items():
            files = "" if kind == "live" else ",trace:{folder}/T,stats:{folder}/S"
            sim = "4GiB" if name == "calls" else SIM
            yield Scenario(f"{name}-{kind}", command, base | {"SEGALLOC_SIM": sim, "SEGALLOC_CONF": conf + files}, False)


def tools(build, folder):
    """Over a trace of the first program."""
    trace, stats = folder / "tool.trace", folder / "tool.stats"
    subprocess.run([build.segalloc, "run", "--sim", SIM, "-o", str(trace), "--conf", f"stats:{stats}", "--",
                    build.path("tests/tools/loop"), "3000"], env=ENVIRONMENT, check=True, capture_output=True)
    base = {"LD_PRELOAD": build.faults, "HOST_FAULTS_BY": "the program itself"}
    verbs = {
        "report": ["report", str(trace)], "report-stats": ["report", str(stats)], "conf": ["conf"],
        "replay": ["replay", str(trace), "-l", "24MiB", "--conf", "reserve_slack:1.0"],
        "replay-pytorch": ["replay", str(trace), "--policy", "pytorch"],
        "tune": ["tune", str(trace), "--threads", "2", "--budget", "4"],
        "export": ["trace", "export", str(trace), "-o", "{folder}/out"],
        "cat": ["trace", "cat", str(trace), "-o", "{folder}/out"],
        "run": ["run", "--sim", SIM, "-o", "{folder}/out.trace", "--", build.path("tests/tools/loop"), "100"],
    }
    for name, arguments in verbs.items():
        yield Scenario(f"tool-{name}", [build.segalloc, *arguments], base, True)


def limits():
    """Commands that run another one under a limit, by name. `{folder}`: where trace and statistics go."""
    mount = "unshare -mr sh -c 'mount -t tmpfs -o {0} none {1} && \"$@\"; code=$?; mkdir -p {{folder}}.kept && " \
            "cp {{folder}}/T {{folder}}/S {{folder}}.kept 2>/dev/null; exit $code' sh"
    for count in (*range(3, 21), 32, 64):
        yield f"nofile-{count}", f"prlimit --nofile={count}"
    for size in (0, 1, 4095, 4096, 100000, 1 << 20, (1 << 20) + 4096, 3 << 20):
        yield f"fsize-{size}", f"prlimit --fsize={size}"
    for mib in (*range(1024, 4096, 128), *range(4096, 65536, 2048)):
        yield f"as-{mib}", f"prlimit --as={mib << 20}"
    for mib in (8, 64, 256, 1024):
        yield f"data-{mib}", f"prlimit --data={mib << 20}"
    for stack in (64, 256):
        yield f"stack-{stack}", f"prlimit --stack={stack << 10}"
    if subprocess.run(shlex.split(mount.format("size=4k", "/dev/shm")) + ["true"], capture_output=True).returncode == 0:
        for how in ("size=4k", "size=64k", "ro"):
            yield f"shm-{how}", mount.format(how, "/dev/shm")
        for how in ("size=4k", "size=8k", "size=64k", "size=1m", "size=1100k", "size=3m", "ro", "nr_inodes=2"):
            yield f"disk-{how}", mount.format(how, "{folder}")


def limits_of(scenario):
    """Those that say something of a program: heaps of 16 threads take as many addresses as there happen to be."""
    if not scenario.tool and "calls" not in scenario.name:
        yield from ((n, l) for n, l in limits() if "start" not in scenario.name or not n.startswith("as"))


class Run:
    """One run of a scenario in a folder of its own; `fault` is what HOST_FAULTS says, or None. `limit` is a command that
    the scenario's is given to; `alone`: without the library."""

    def __init__(self, build, scenario, fault, folder, limit=None, alone=False):
        counts = folder / "counts"
        counts.write_bytes(bytes(4096))
        fill = lambda text: text.replace("{folder}", str(folder))
        self.environment = {k: fill(v) for k, v in scenario.environment.items()} | {"HOST_FAULTS_COUNTS": str(counts)}
        if fault:
            self.environment["HOST_FAULTS"] = fault
        self.command = [fill(part) for part in scenario.command]
        if limit:
            left_out = ("LD_PRELOAD", "SEGALLOC_CONF", "HOST_FAULTS_COUNTS") if alone else ("HOST_FAULTS_COUNTS",)
            kept = [f"{k}={v}" for k, v in self.environment.items() if k not in left_out]
            self.command = [*shlex.split(fill(limit)), "env", *kept, *self.command]
            self.environment = {}
        self.hangs = False
        try:
            done = subprocess.run(self.command, env=ENVIRONMENT | self.environment, capture_output=True, text=True,
                                  errors="replace", timeout=PATIENCE_S)
            self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            self.hangs, self.status, self.out, self.err = True, None, "", ""
        self.counts = dict(zip(KINDS, struct.unpack_from(f"{len(KINDS)}Q", counts.read_bytes())))
        self.files = {}
        kept = folder.with_name(folder.name + ".kept")
        for name in ("T", "S"):
            for path in (folder / name, kept / name):
                if path.exists() and not scenario.tool:
                    self.files[name] = self.report(build, path)

    @staticmethod
    def report(build, path):
        if not path.stat().st_size:
            return None  # there was no room for so much as its beginning
        done = subprocess.run([build.segalloc, "report", "--json", str(path)], env=ENVIRONMENT, capture_output=True,
                              text=True, timeout=PATIENCE_S)
        return done.returncode, done.stderr.strip()

    def said(self):
        assignments = [f"{k}={v}" for k, v in self.environment.items() if k != "HOST_FAULTS_COUNTS"]
        return " ".join(map(shlex.quote, [*assignments, *self.command]))


def wrong_program(run, good, fault):
    lines = run.err.strip().splitlines()
    if run.status != good.status:
        return f"ends with {run.status}, not {good.status}: {lines[-1:]}"
    if run.out != good.out:
        return "says something else"
    if len(lines) > len(good.err.strip().splitlines()) + 3 or not all(x.startswith("segalloc: ") for x in lines):
        return f"says on stderr: {lines[:4]}"
    for name, result in run.files.items():
        if result and result[0] != 0 and NOT_IN_USE not in result[1]:
            return f"left a file {name} that can't be reported on: {result[1]}"
    return None


def untimed(text):
    """Without how long it took."""
    return re.sub(r"in [0-9.]+ s\b.*", "", text)


def wrong_tool(run, good, fault):
    lines = run.err.strip().splitlines()
    if run.status == good.status and untimed(run.out) == untimed(good.out):
        return None
    if run.status not in (0, 1, 3):
        return f"ends with {run.status}: {lines[-1:]}"
    if run.status == 1 and not any(line.startswith("segalloc") for line in lines):
        return f"ends with 1 and no line of ours: {lines[:2]}"
    if run.status == 0 and good.status == 0 and not lines:
        return "says something else, and not why"
    return None


def play(build, scenario, good, fault, root):
    with tempfile.TemporaryDirectory(dir=root) as folder:
        run = Run(build, scenario, fault, pathlib.Path(folder))
        what = "hangs" if run.hangs else (wrong_tool if scenario.tool else wrong_program)(run, good, fault)
        return what and f"{scenario.name} {fault}: {what}\n    {run.said()}"


def play_limit(build, scenario, name, limit, root):
    """Where the program can run by itself it must with the library."""
    with tempfile.TemporaryDirectory(dir=root) as folder, tempfile.TemporaryDirectory(dir=root) as other:
        alone = Run(build, scenario, None, pathlib.Path(folder), limit, alone=True)
        if alone.status != 0:
            return None
        run = Run(build, scenario, None, pathlib.Path(other), limit)
        what = "hangs" if run.hangs else wrong_program(run, alone, None)
        return what and f"{scenario.name} {name}: {what}\n    {run.said()}"


def faults_of(counts, kinds, every, turn):
    """(kind, fault) of a scenario: each call of each kind, alone and with all that follow it."""
    for kind in kinds:
        for number in range(1, counts[kind] + 1):
            for more in ("", "+"):
                turn += 1
                if turn % every == 0:
                    yield kind, f"{kind}:{number}{more}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--scenario", default="")
    parser.add_argument("--kind", help=f"{', '.join(KINDS)}, or the beginning of a limit's name")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    build, tried, found = Build(args.build), collections.Counter(), 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as root, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        root = pathlib.Path(root)
        pending = []
        for index, scenario in enumerate([*programs(build), *tools(build, root)]):
            if args.scenario not in scenario.name:
                continue
            if args.limits:
                for turn, (name, limit) in enumerate(limits_of(scenario)):
                    if (turn + index) % args.every == 0 and name.startswith(args.kind or ""):
                        tried[name.split("-")[0]] += 1
                        pending.append(pool.submit(play_limit, build, scenario, name, limit, root))
                continue
            with tempfile.TemporaryDirectory(dir=root) as folder:
                good = Run(build, scenario, None, pathlib.Path(folder))
            if args.verbose:
                print(scenario.name, good.status, good.counts, flush=True)
            kinds = [kind for kind in KINDS if args.kind in (None, kind)]
            for kind, fault in faults_of(good.counts, kinds, args.every, index):
                tried[kind] += 1
                pending.append(pool.submit(play, build, scenario, good, fault, root))
        for done in concurrent.futures.as_completed(pending):
            if done.result():
                found += 1
                print(done.result(), flush=True)
    print(json.dumps({"faults": sum(tried.values()), **tried, "fell_short": found}))
    return 1 if found or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
