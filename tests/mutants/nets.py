"""The tests that are asked to notice a mutant: those of the build, run around it, the likeliest and quickest first."""
import json
import os
import resource
import signal
import subprocess
import tempfile
import time

LIBRARY = "src/preload/libsegalloc.so"
# Reads the library's file itself, packs it, or watches over the machine.
NEVER = {"library_file", "mutations_fit"}
CPU_LEAST_S, WALL_LEAST_S, PATIENCE = 2, 20, 10
REPORTED = ("rror", "ssert", "ail", "seed", "expected", "!=")


class Net:
    """A test of the build: its command, what of that is linked, and what it takes when nothing is wrong."""

    def __init__(self, build, test):
        self.name = test["suite"][0].split(":")[-1] + "/" + test["name"]
        self.command, self.environment = test["cmd"], test["env"]
        self.targets = {part: build.target(part) for part in self.command if build.target(part)}
        texts = [*self.command, *self.environment.values()]
        self.needs_library = any(LIBRARY in text for text in texts) or any("segalloc@sha" in d for d in test["depends"])
        self.library = None
        if self.needs_library:
            self.library = os.path.relpath(os.path.realpath(os.path.join(build.folder, LIBRARY)), build.folder)
        self.folder = build.folder
        self.cpu_s = self.wall_s = 0.0

    def parts(self):
        """What it is linked of, by the names of ninja."""
        return list(self.targets.values()) + ([self.library] if self.library else [])

    def run(self, mutant=None, patience=None):
        """Runs it, around a mutant if there is one. Returns what went wrong; empty: nothing."""
        command, environment = list(self.command), dict(self.environment)
        if mutant:
            made = {part: mutant.link(target) for part, target in self.targets.items()}
            command = [made.get(part, part) for part in command]
            if self.library:
                old, new = os.path.join(self.folder, self.library), mutant.link(self.library)
                command = [part.replace(old, new) for part in command]
                environment = {name: text.replace(old, new) for name, text in environment.items()}
                environment["SEGALLOC_LIBRARY"] = new  # of the random programs, which preload it themselves
        else:
            command = [os.path.join(self.folder, self.targets[part]) if part in self.targets else part
                       for part in command]
        cpu, wall = patience or (max(CPU_LEAST_S, PATIENCE * self.cpu_s), max(WALL_LEAST_S, PATIENCE * self.wall_s))
        return bounded(command, dict(os.environ, **environment), self.folder, cpu, wall)


def bounded(command, environment, folder, cpu_s, wall_s):
    """Runs a command within seconds of processor and of time; whatever it started is ended with it."""
    limits = f"ulimit -c 0; ulimit -t {int(cpu_s + 1)}; echo 1000 >/proc/self/oom_score_adj"
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(["sh", "-c", limits + '; exec "$@"', "sh", *command], env=environment, cwd=folder,
                                 stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        try:
            status = child.wait(timeout=wall_s)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        if status == 0:
            return ""
        if status is None or status == -signal.SIGXCPU or status == -signal.SIGKILL:
            return "hangs"
        output.seek(max(0, output.seek(0, os.SEEK_END) - 4000))
        lines = output.read().decode(errors="replace").split("\n")
    said = next((line.strip() for line in lines if any(word in line for word in REPORTED)), "")
    return f"status {status}: {said[:160]}"


def find(build):
    nets = [Net(build, test) for test in build.tests if test["name"] not in NEVER]
    return [net for net in nets if net.parts()]


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(nets, path):
    """What each takes; those that fail as they are can show nothing and are left out."""
    known = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    sound = []
    for net in nets:
        key = f"{net.name} {' '.join(net.command)} {sorted(net.environment.items())}"
        if key not in known:
            cpu, start = cpu_of_children(), time.monotonic()
            wrong = net.run(patience=(600, 600))
            known[key] = [cpu_of_children() - cpu, time.monotonic() - start, wrong]
            with open(path, "w", encoding="utf-8") as file:
                json.dump(known, file, indent=0)
        net.cpu_s, net.wall_s, wrong = known[key]
        if not wrong:
            sound.append(net)
    return sound


class Order:
    """Which test to ask first: by how often it noticed a mutant, of the same file before all, for what it costs."""

    def __init__(self, nets):
        self.nets = nets
        self.asked, self.noticed = {}, {}

    def tell(self, file, name, noticed):
        for key in ((file, name), ("", name)):
            self.asked[key] = self.asked.get(key, 0) + 1
            self.noticed[key] = self.noticed.get(key, 0) + noticed

    def chance(self, file, name):
        anywhere = (self.noticed.get(("", name), 0) + 0.3) / (self.asked.get(("", name), 0) + 1)
        return (self.noticed.get((file, name), 0) + 2 * anywhere) / (self.asked.get((file, name), 0) + 2)

    def of(self, file):
        return sorted(self.nets, key=lambda net: -self.chance(file, net.name) / (net.cpu_s + 0.1))
