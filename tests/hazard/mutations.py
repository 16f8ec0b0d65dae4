#!/usr/bin/env python3
"""Breaks the ordering code on purpose, one bug at a time, and says which test notices.

    mutations [--json] [--only NAME] [--seeds N] [--list]

Each seeded bug of mutation_table.py is a piece of text in one source file and what stands there instead. The file is
copied, changed, compiled as the build compiles it, and linked into a library of its own, or into a test of its own.
Nothing of the build is touched. A text that is not in its file any more is an error: the table must follow the code.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

SOURCE, BUILD = "@SOURCE@", "@BUILD@"
sys.path.insert(0, os.path.join(SOURCE, "tests", "hazard"))
from mutation_table import MUTATIONS  # noqa: E402  (its folder is only known now)

LIBRARY = "@LIBRARY@"  # relative to the build folder, as every file here
ORDERING = os.path.join(BUILD, "tests", "hazard", "ordering")
FAILURE = re.compile(r"^seed (\d+), policy (\w+), kind (\w+): (.*)$")
STEPS = [10, 20, 40, 80, 160]  # seeds, one step after another until one is noticed


def run(command, **kwargs):
    return subprocess.run(command, cwd=BUILD, capture_output=True, text=True, **kwargs)


def compile_commands():
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        return {os.path.normpath(os.path.join(c["directory"], c["output"])): c for c in json.load(file)}


COMMANDS = compile_commands()


def objects_of(source):
    """The objects that the build makes of a source file, with their commands."""
    path = os.path.normpath(os.path.join(SOURCE, source))
    return {output: shlex.split(c["command"]) for output, c in COMMANDS.items()
            if os.path.normpath(os.path.join(c["directory"], c["file"])) == path}


def mutate(mutation, folder):
    """Writes the changed copy; returns its path."""
    with open(os.path.join(SOURCE, mutation["file"]), encoding="utf-8") as file:
        text = file.read()
    count = text.count(mutation["find"])
    if count != mutation.get("times", 1):
        raise ValueError(f"{mutation['name']}: its text is {count} times in {mutation['file']}, "
                         f"not {mutation.get('times', 1)}")
    path = os.path.join(folder, os.path.basename(mutation["file"]))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(mutation["find"], mutation["replace"]))
    return path


def compile_copy(mutation, folder, copy, output, command):
    made = os.path.join(folder, "object-" + re.sub(r"\W", "_", os.path.relpath(output, BUILD)) + ".o")
    if os.path.exists(made):
        return made
    original = os.path.normpath(os.path.join(SOURCE, mutation["file"]))
    arguments = []
    skip = False
    for argument in command:
        if skip:
            skip = False
        elif argument in ("-o", "-MF", "-MQ"):
            skip = True
        elif argument != "-MD" and os.path.normpath(os.path.join(BUILD, argument)) != original:
            arguments.append(argument)
    done = run(arguments + ["-w", "-iquote", os.path.dirname(original), "-o", made, "-c", copy])
    if done.returncode:
        raise ValueError(f"{mutation['name']}: it does not compile: {done.stderr.strip()[:400]}")
    return made


def link(mutation, folder, copy, target, name):
    """Links `target` of the build with the changed file in its place; returns the new file's path."""
    made = os.path.join(folder, name)
    commands = run(["ninja", "-t", "commands", target]).stdout.strip().split("\n")
    arguments = shlex.split(commands[-1].split(" && ")[0])
    objects = objects_of(mutation["file"])
    own = {os.path.relpath(o, BUILD) for o in objects}
    if any(a in own for a in arguments):
        arguments = [compile_copy(mutation, folder, copy, os.path.join(BUILD, a), objects[os.path.join(BUILD, a)])
                     if a in own else a for a in arguments]
    else:  # in a static library: an object before it takes the place of its member
        output, command = next(iter(objects.items()))
        at = next(i for i, a in enumerate(arguments) if a.endswith((".o", ".a")))
        arguments.insert(at, compile_copy(mutation, folder, copy, output, command))
    arguments[arguments.index("-o") + 1] = made
    arguments = [a for a in arguments if not a.startswith("-Wl,-rpath")]
    done = run(arguments)
    if done.returncode:
        raise ValueError(f"{mutation['name']}: it does not link: {done.stderr.strip()[:400]}")
    return made


def failures(library, first, count, kinds):
    """What random programs notice under a library: {(seed, policy, kind): what}."""
    found = {}
    for kind in kinds:
        command = [ORDERING, "--from", str(first), "--seeds", str(count), "--patience", "4", "--jobs", "1"]
        if library is not None:
            command.append("--first")
        if kind != "all":
            command += ["--kind", kind]
        environment = dict(os.environ)
        environment.pop("SEGALLOC_LIBRARY", None)
        if library:
            environment["SEGALLOC_LIBRARY"] = library
        done = run(command, env=environment, errors="replace")
        for line in done.stderr.split("\n"):
            match = FAILURE.match(line)
            if match:
                found.setdefault((int(match[1]), match[2], match[3]), match[4])
        if found and library:
            break
    return found


def by_programs(mutation, library, seeds, ignored):
    first = 1
    for step in STEPS:
        count = min(step, seeds - first + 1)
        if count <= 0:
            break
        found = failures(library, first, count, mutation.get("kinds", ["all"]))
        for (seed, policy, kind), what in sorted(found.items()):
            if (policy, kind) not in ignored:
                return f"ordering, policy {policy}, kind {kind}, seed {seed}: {what}"
        first += count
    return ""


def by_test(mutation, folder, copy, target):
    """A test of the build, linked with the changed file; noticed where it fails."""
    program = link(mutation, folder, copy, target, "test-" + os.path.basename(target))
    environment = dict(os.environ, SEGALLOC_SIM="256MiB,count=2")
    try:
        done = run([program], env=environment, timeout=60, errors="replace")
    except subprocess.TimeoutExpired:
        return f"{target}: hangs"
    return f"{target}: status {done.returncode}" if done.returncode else ""


def judge(mutation, seeds, ignored):
    row = {"name": mutation["name"], "what": mutation["what"], "caught_by": ""}
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        try:
            copy = mutate(mutation, folder)
            for target in mutation.get("tests", []):
                row["caught_by"] = row["caught_by"] or by_test(mutation, folder, copy, target)
            if not row["caught_by"]:
                library = link(mutation, folder, copy, LIBRARY, os.path.basename(LIBRARY))
                row["caught_by"] = by_programs(mutation, library, seeds, ignored)
        except ValueError as error:
            row["error"] = str(error)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one object a seeded bug")
    parser.add_argument("--only", action="append", help="of this name; may be given again")
    parser.add_argument("--seeds", type=int, default=sum(STEPS), help="random programs tried before one counts as missed")
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--list", action="store_true", help="names the seeded bugs, and ends")
    arguments = parser.parse_args()
    chosen = [m for m in MUTATIONS if not arguments.only or m["name"] in arguments.only]
    if arguments.list:
        for mutation in chosen:
            print(f"{mutation['name']}: {mutation['what']}")
        return 0
    sound = failures(None, 1, 40, ["all"])
    for (seed, policy, kind), what in sorted(sound.items()):
        print(f"without any seeded bug: seed {seed}, policy {policy}, kind {kind}: {what}", file=sys.stderr)
    ignored = {(policy, kind) for _, policy, kind in sound}
    missed = len(sound)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda m: judge(m, arguments.seeds, ignored), chosen):
            missed += not row["caught_by"]
            if "error" in row:
                print(row["error"], file=sys.stderr)
            if arguments.json:
                print(json.dumps(row), flush=True)
            else:
                print(f"{row['name']}: {row['caught_by'] or 'NOT CAUGHT'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
