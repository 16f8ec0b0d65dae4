#!/usr/bin/env python3
"""Breaks the ordering code on purpose, one bug at a time, and says which test notices.

    mutations [--json] [--only NAME] [--test TEST] [--seeds N] [--list]
    mutations --check [--json] [--only NAME] [--seeds N] [--write]
    mutations --check-list | --check-sample N

Each seeded bug, mutations/<area>/<name>.bug, names a function, a text in it and the text instead; README.md there says
how. The source that has them is copied, changed, compiled as the build compiles it, and linked into a library of its
own, or into a test of its own. Nothing of the build is touched. A bug whose text is not found once is an error.

With --check the library's own `check` is on trial: which of the bugs by which memory gets a second owner too early it
notices by itself, in the programs in which the simulator's hazard checker notices them, with that checker off. The
table mutations/checked.txt has what came of each bug. A bug that stands there as noticed, and is not any more, fails.
--write writes the table anew. --check-list asks whether table and bugs are the same, and --check-sample N tries N of
those that are noticed, each in the program that the table names.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = "@SOURCE@", "@BUILD@"
BUGS = os.path.join(SOURCE, "tests", "hazard", "mutations")
LIBRARY = "@LIBRARY@"  # relative to the build folder, as every file here
ORDERING = os.path.join(BUILD, "tests", "hazard", "ordering")
FAILURE = re.compile(r"^seed (\d+), policy (\w+), kind (\w+): (.*)$")
STEPS = [10, 20, 40, 80, 160, 190, 500]  # seeds, one step after another until one is noticed
# Programs that several seeded bugs share, or that are run several times: command, configuration, simulated card.
GROUPS = {
    # Where parts of pages lie depends on which stream is ahead, so a bug shows in some of these. One run takes 0.2 s.
    "memory_pressure_caches": [(f"tests/hazard/memory_pressure caches {streams}", "free_sync:stream,reserve_slack:1.0",
                       f"1GiB,hazard,run_ahead={ahead}")
                      for ahead in (30, 300, 3, 10, 100) for streams in ("1", "3", "3 200", "2", "2 400")],
    # Whether a context ends between a free's look at it and its wait is a matter of moments. One run takes 0.1 s.
    "ends_under_frees": [("tests/preload/programs/preload_multi_device ends", "free_sync:strict", "4GiB,count=2")] * 16,
}


def read_changes(path, text):
    """The changes of a seeded bug: (function or macro, text to replace, text instead), one or more."""
    parts = re.split(r"^In: (\w+)$", text, flags=re.MULTILINE)
    changes = []
    for name, body in zip(parts[1::2], parts[2::2]):
        match = re.fullmatch(r"\s*Replace:\n(.+?)\nBy:(.*)", body.rstrip("\n"), re.DOTALL)
        if not match:
            raise ValueError(f"{path}: In: {name} needs Replace: and By:")
        changes.append((name, match[1], match[2].lstrip("\n")))
    if parts[0].strip() or not changes:
        raise ValueError(f"{path}: changes begin with In:, and there is one at least")
    return changes


def read_bug(path):
    """A seeded bug: its header, up to the first empty line, and what it changes."""
    with open(path, encoding="utf-8") as file:
        header, _, changes = file.read().partition("\n\n")
    fields = [line.partition(": ") for line in header.split("\n")]
    programs = []
    for key, _, value in fields:
        if key == "Program":
            programs.append(tuple(part.strip() for part in value.split("|")))
        elif key == "Programs":
            programs += GROUPS[value]
        elif key not in ("Rule", "Kinds", "Test", "Build"):
            raise ValueError(f"{path}: no such field: {key}")
    rules = [value for key, _, value in fields if key == "Rule"]
    if len(rules) != 1:
        raise ValueError(f"{path}: one rule is needed")
    builds = [value for key, _, value in fields if key == "Build"]
    if builds not in ([], ["asserted"]):
        raise ValueError(f"{path}: Build: asserted is the only one")
    return {"asserted": bool(builds), "name": os.path.basename(path)[:-len(".bug")], "what": rules[0], "changes": read_changes(path, changes),
            "kinds": next((value.split() for key, _, value in fields if key == "Kinds"), ["all"]),
            "tests": [value for key, _, value in fields if key == "Test"], "programs": programs}


def read_bugs():
    return [read_bug(os.path.join(folder, name)) for folder, _, names in sorted(os.walk(BUGS))
            for name in sorted(names) if name.endswith(".bug")]


MUTATIONS = read_bugs()


def run(command, **kwargs):
    return subprocess.run(command, cwd=BUILD, capture_output=True, text=True, **kwargs)


def compile_commands():
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        return {os.path.normpath(os.path.join(c["directory"], c["output"])): c for c in json.load(file)}


COMMANDS = compile_commands()
ASSERTED = not any("-DNDEBUG" in command["command"] for command in COMMANDS.values())


def objects_of(source):
    """The objects that the build makes of a source file, with their commands."""
    path = os.path.normpath(os.path.join(SOURCE, source))
    return {output: shlex.split(c["command"]) for output, c in COMMANDS.items()
            if os.path.normpath(os.path.join(c["directory"], c["file"])) == path}


def layer_of(path):
    """The layer that a source file is of, which is on the include path as src is, and its name from there."""
    parts = path.split("/")
    return "/".join(parts[:2]), "/".join(parts[2:])


def copy_of(path, folder):
    """Where the copy of a source file is: from `folder` on it has the name that it has from src on."""
    return os.path.join(folder, *path.split("/")[1:])


def sources_of(mutation):
    """The file itself; of a header, the files of its layer that include it, themselves or by another header."""
    layer, name = layer_of(mutation["file"])
    if not name.endswith(".h"):
        return [mutation["file"]]
    including, found, texts = {name}, set(), {}
    from_src = os.path.basename(layer) + "/"
    for folder, _, files in os.walk(os.path.join(SOURCE, layer)):
        for file in files:
            path = os.path.join(folder, file)
            with open(path, encoding="utf-8", errors="replace") as text:
                included = re.findall(r'^#include "([^"]+)"', text.read(), re.MULTILINE)
                texts[os.path.relpath(path, os.path.join(SOURCE, layer))] = {
                    one[len(from_src):] if one.startswith(from_src) else one for one in included}
    while found != including:
        found = set(including)
        including |= {other for other, names in texts.items() if names & found}
    sources = sorted(f"{layer}/{other}" for other in including if other.endswith(".c"))
    if not sources:
        raise ValueError(f"{mutation['name']}: no source of {layer} includes {name}")
    return sources


def blank(text):
    """The text without its comments and continued lines, with every character where it was."""
    spaces = lambda match: re.sub(r"[^\n]", " ", match[0])
    return re.sub(r"\\(?=\n)", " ", re.sub(r"/\*.*?\*/", spaces, text, flags=re.DOTALL))


def read_sources():
    """The sources that a bug may be in: {path: (text, text without comments)}."""
    sources = {}
    for folder, _, names in sorted(os.walk(os.path.join(SOURCE, "src"))):
        for name in names:
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                sources[os.path.relpath(path, SOURCE)] = (text, blank(text))
    return sources


SOURCES = read_sources()


def definitions(name, text, blanked):
    """Where functions and macros of a name begin and end in a source."""
    function = rf"^\w[^\n;{{}}#]*?\b{name}\([^;{{}}]*?\)\n\{{\n.*?^\}}"
    for match in re.finditer(function, blanked, re.MULTILINE | re.DOTALL):
        yield match.span()
    for match in re.finditer(rf"^#define {name}\b(?:[^\n]*\\\n)*[^\n]*", text, re.MULTILINE):
        yield match.span()


def places(name, wanted):
    """The places in the tree where a function or macro of that name has a text, however wrapped and commented."""
    pattern = re.compile(r"\s+".join(re.escape(word) for word in blank(wanted).split()))
    found = []
    for path, (text, blanked) in SOURCES.items():
        if name in text:
            found += [(path, match.span()) for begin, end in definitions(name, text, blanked)
                      for match in pattern.finditer(blanked, begin, end)]
    return found


def locate(mutation):
    """The file that a seeded bug changes, and its text with the bug in it."""
    edits = []
    for name, wanted, instead in mutation["changes"]:
        found = places(name, wanted)
        if len(found) != 1:
            raise ValueError(f"{mutation['name']}: {len(found)} places of {name}, a function or macro, have\n{wanted}")
        edits.append((*found[0], instead))
    if len({path for path, _, _ in edits}) != 1:
        raise ValueError(f"{mutation['name']}: it changes several files")
    path = edits[0][0]
    text = SOURCES[path][0]
    for _, (begin, end), instead in sorted(edits, key=lambda edit: edit[1], reverse=True):
        if "\\\n" in text[begin:text.index("\n", end) + 1]:  # lines of a macro are continued
            instead = instead.replace("\n", " ")
        text = text[:begin] + instead + text[end:]
    return path, text


def mutate(mutation, folder):
    """Writes the changed copy where its layer has it, and of a header copies of what includes it."""
    mutation["file"], text = locate(mutation)
    for source in sources_of(mutation) + [mutation["file"]]:
        copy = copy_of(source, folder)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy(os.path.join(SOURCE, source), copy)
    with open(copy_of(mutation["file"], folder), "w", encoding="utf-8") as file:
        file.write(text)


def compile_copy(mutation, folder, source, output, command):
    made = os.path.join(folder, "object-" + re.sub(r"\W", "_", os.path.relpath(output, BUILD)) + ".o")
    if os.path.exists(made):
        return made
    original = os.path.normpath(os.path.join(SOURCE, source))
    arguments = []
    skip = False
    for argument in command:
        if skip:
            skip = False
        elif argument in ("-o", "-MF", "-MQ"):
            skip = True
        elif argument != "-MD" and os.path.normpath(os.path.join(BUILD, argument)) != original:
            arguments.append(argument)
    done = run(arguments + ["-w", "-iquote", folder, "-iquote", copy_of(layer_of(source)[0], folder), "-iquote",
                            os.path.dirname(original), "-o", made, "-c", copy_of(source, folder)])
    if done.returncode:
        raise ValueError(f"{mutation['name']}: it does not compile: {done.stderr.strip()[:400]}")
    return made


def link(mutation, folder, target, name):
    """Links `target` of the build with the changed file in its place; returns the new file's path."""
    made = os.path.join(folder, name)
    listed = run(["ninja", "-t", "commands", target])
    if listed.returncode:
        raise ValueError(f"{mutation['name']}: the build has no {target}")
    arguments = shlex.split(listed.stdout.strip().split("\n")[-1].split(" && ")[0])
    for source in sources_of(mutation):
        objects = objects_of(source)
        own = [i for i, a in enumerate(arguments) if os.path.join(BUILD, a) in objects]
        if own:
            output = os.path.join(BUILD, arguments[own[0]])
            arguments[own[0]] = compile_copy(mutation, folder, source, output, objects[output])
        elif objects:  # in a static library: an object before it takes the place of its member
            member = next((o for o in objects if ".a.p" in o), None)
            if not member:
                raise ValueError(f"{mutation['name']}: {target} is not made of {source}")
            output, command = member, objects[member]
            at = next(i for i, a in enumerate(arguments) if a.endswith((".o", ".a")))
            arguments.insert(at, compile_copy(mutation, folder, source, output, command))
    arguments[arguments.index("-o") + 1] = made
    arguments = [a.replace("$ORIGIN", os.path.join(BUILD, os.path.dirname(target))) for a in arguments]
    done = run(arguments)
    if done.returncode:
        raise ValueError(f"{mutation['name']}: it does not link: {done.stderr.strip()[:400]}")
    return made


def failures(library, first, count, kinds):
    """What random programs notice under a library: {(seed, policy, kind): what}."""
    found = {}
    for kind in kinds:
        # Little patience where hanging is what a bug does; without one it would only be a busy machine.
        command = [ORDERING, "--from", str(first), "--seeds", str(count), "--patience", "4" if library else "20",
                   "--jobs", "1"]
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


def by_test(mutation, folder, target):
    """A test of the build, linked with the changed file; noticed where it fails."""
    program = link(mutation, folder, target, "test-" + os.path.basename(target))
    environment = dict(os.environ, SEGALLOC_SIM="256MiB,count=2")
    try:
        done = run([program], env=environment, timeout=60, errors="replace")
    except subprocess.TimeoutExpired:
        return f"{target}: hangs"
    return f"{target}: status {done.returncode}" if done.returncode else ""


def under_library(library, command, conf, sim):
    """A program of the build under the library, with a configuration, on a card; noticed where it fails."""
    target, *arguments = command.split()
    environment = dict(os.environ, LD_PRELOAD=library, SEGALLOC_SIM=sim, SEGALLOC_CONF="pytorch:direct," + conf,
                       LD_LIBRARY_PATH=os.path.join(BUILD, "src/sim") + ":" + os.path.join(BUILD, "src/sim/cudart"))
    try:
        done = subprocess.run([os.path.join(BUILD, target)] + arguments, env=environment, capture_output=True,
                              timeout=30)
    except subprocess.TimeoutExpired:
        return f"{command}: hangs"
    return f"{command}: status {done.returncode}" if done.returncode else ""


def judge(mutation, seeds, ignored):
    row = {"name": mutation["name"], "what": mutation["what"], "caught_by": ""}
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        try:
            mutate(mutation, folder)
            for target in mutation.get("tests", []):
                row["caught_by"] = row["caught_by"] or by_test(mutation, folder, target)
            if not row["caught_by"] and (mutation["programs"] or mutation["kinds"]):
                library = link(mutation, folder, LIBRARY, os.path.basename(LIBRARY))
                for program in mutation["programs"]:
                    row["caught_by"] = row["caught_by"] or under_library(library, *program)
                row["caught_by"] = row["caught_by"] or by_programs(mutation, library, seeds, ignored)
        except ValueError as error:
            row["error"] = str(error)
    return row


HAZARD = re.compile(r"^segalloc simulator: hazard \d", re.MULTILINE)
FINDING = re.compile(r"^segalloc: check: (?!checked)(.*)$", re.MULTILINE)


def said_by(library, command, conf, sim, patience_s=30):
    """What a program of the build under the library writes to standard error; None where it hangs."""
    target, *arguments = command.split()
    environment = dict(os.environ, LD_PRELOAD=library, SEGALLOC_SIM=sim, SEGALLOC_CONF="pytorch:direct," + conf,
                       LD_LIBRARY_PATH=os.path.join(BUILD, "src/sim") + ":" + os.path.join(BUILD, "src/sim/cudart"))
    try:
        return subprocess.run([os.path.join(BUILD, target)] + arguments, env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=patience_s).stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None


def said_by_ordering(library, seeds, kind, *options):
    command = [ORDERING, "--seeds", str(seeds), "--patience", "4", "--jobs", "1", *options]
    if kind != "all":
        command += ["--kind", kind]
    return run(command, env=dict(os.environ, SEGALLOC_LIBRARY=library), errors="replace").stderr


# `check` sees what happens, and no order that would have allowed something else. So a program is played under many
# schedules of the simulator: the one that it is written for, the lazy one, and those of the first seeds. Of each eight
# seeds two have the streams apart (src/sim/streams/schedule.c), and two a mixture.
SCHEDULES = ["own", "4"] + [str(8 * i + k) for i in range(60) for k in ((6, 7, 2, 3) if i < 8 else (6, 7))]
PATIENCE_S, HANGS = 8, 4  # a program may wait for what a schedule does not give it
# Random programs that `check` is tried on, from the first one on that the hazard checker reports: in these steps.
STEPS_SHOWN = [20, 40, 80, 160]
SEEDS_NONE = 10  # random programs in which a bug is looked for that the table says gives no second owner


def scheduled(sim, schedule):
    sim = sim.replace(",hazard", "")
    return sim if schedule == "own" else re.sub(r",schedule=\d+", "", sim) + f",schedule={schedule}"


def found_by_check(library, command, conf, sim, schedules=None):
    """The first schedule under which `check` says something of a program, and what; None: none."""
    hangs = 0
    for schedule in schedules or SCHEDULES:
        said = said_by(library, command, conf + ",check:on", scheduled(sim, schedule), PATIENCE_S)
        found = FINDING.search(said or "")
        if found:
            return f"{command} | {schedule}", found[1]
        hangs += said is None
        if hangs == HANGS:
            break
    return None


def found_in_ordering(library, policy, kind, first, steps):
    """The random programs of which `check` says something, and what; None: none. They run to the end, as the first
    error is seldom what `check` has to say."""
    for count in steps:
        said = said_by_ordering(library, count, kind, "--from", str(first), "--policy", policy, "--check", "on",
                                "--unwatched")
        found = FINDING.search(said)
        if found:
            return f"ordering {policy} {kind} | {first}+{count}", found[1]
        first += count
    return None


def shown_by_ordering(library, seeds, kind):
    """The first random program of a kind in which the hazard checker sees two owners: (seed, policy, kind), or None."""
    first = 1
    for step in STEPS:
        count = min(step, seeds - first + 1)
        if count <= 0:
            return None
        said = said_by_ordering(library, count, kind, "--from", str(first), "--first")
        shown = [match for match in map(FAILURE.match, said.split("\n")) if match] if HAZARD.search(said) else []
        if shown:
            return shown[0].group(1, 2, 3)
        first += count
    return None


def judge_check(mutation, seeds, listed):
    """Whether the hazard checker sees two owners with a bug in place, and what `check` says of the same programs."""
    row = {"name": mutation["name"], "what": mutation["what"], "two_owners": "", "where": "", "caught_by": ""}
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        try:
            mutate(mutation, folder)
            library = link(mutation, folder, LIBRARY, os.path.basename(LIBRARY))
        except ValueError as error:
            return dict(row, error=str(error))
        for command, conf, sim in dict.fromkeys(mutation["programs"]):
            if not row["where"] and HAZARD.search(said_by(library, command, conf, sim) or ""):
                row["two_owners"] = row["two_owners"] or command
                found = found_by_check(library, command, conf, sim)
                row["where"], row["caught_by"] = found or ("", "")
        if not row["two_owners"]:
            look_at_random_programs(library, mutation, SEEDS_NONE if listed == NO_OWNER else seeds, row)
    return row


def look_at_random_programs(library, mutation, seeds, row):
    for kind in mutation["kinds"] or ["all"]:
        shown = shown_by_ordering(library, seeds, kind)
        if not shown:
            continue
        seed, policy, kind = shown
        row["two_owners"] = row["two_owners"] or f"ordering, policy {policy}, kind {kind}, seed {seed}"
        found = found_in_ordering(library, policy, kind, int(seed), STEPS_SHOWN)
        if found:
            row["where"], row["caught_by"] = found
            return


TABLE = os.path.join(BUGS, "checked.txt")
NOTICED, MISSED, NO_OWNER = "noticed", "missed", "none"
HEAD = """# What `check` notices of the seeded bugs by which memory gets a second owner too early: mutations --check --write.
# A row is a bug, then one of three:
#   noticed | program | schedule, "own" being the one of its test; of random programs the first seed and how many
#   missed | reason
#   none: nobody gets memory too early by it, in the programs that were tried
"""


def read_table():
    """What the table says of each bug: (noticed, program, schedule), (missed, reason) or (none,)."""
    table = {}
    with open(TABLE, encoding="utf-8") as file:
        for line in file:
            if line.startswith("#"):
                continue
            name, *said = [part.strip() for part in line.split(" | ")]
            if name in table or len(said) != {NOTICED: 3, MISSED: 2, NO_OWNER: 1}.get(said[0]):
                raise ValueError(f"{TABLE}: {line.strip()}: no such row, or a second one")
            table[name] = tuple(said)
    return table


def write_table(rows, table):
    """The table with these rows. A reason stays as long as the bug is missed."""
    for row in rows:
        before = table.get(row["name"], (NO_OWNER,))
        if row["where"]:
            table[row["name"]] = (NOTICED, *row["where"].split(" | "))
        elif row["two_owners"]:
            table[row["name"]] = before if before[0] == MISSED else (MISSED, "not looked into")
        else:
            table[row["name"]] = (NO_OWNER,)
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(HEAD + "".join(" | ".join((name, *table[name])) + "\n" for name in sorted(table)))


def tried_by_check(mutations):
    """The bugs that programs can show; the others need a unit test or a build with assertions."""
    return [m for m in mutations if (m["programs"] or m["kinds"]) and not m["asserted"]]


def try_check(mutations, arguments):
    """One line for each bug by which memory gets a second owner, and the share of them that `check` notices. Fails
    where one is not noticed that was, where one has a second owner that had none, and below 80 %."""
    table, rows, worse = read_table() if os.path.exists(TABLE) else {}, [], []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda m: judge_check(m, arguments.seeds, table.get(m["name"], ("",))[0]), mutations):
            rows.append(row)
            before = table.get(row["name"], (NO_OWNER,))
            if "error" in row or (row["two_owners"] and not row["where"] and before[0] != MISSED):
                worse.append(row["name"])
            if arguments.json:
                print(json.dumps(row), flush=True)
            else:
                verdict = row["caught_by"] or f"MISSED ({row['two_owners']})" if row["two_owners"] else "no second owner"
                print(f"{row['name']}: {row.get('error') or verdict}{' | ' if row['where'] else ''}{row['where']}", flush=True)
    if arguments.write:
        write_table(rows, table)
    owners, caught = sum(bool(row["two_owners"]) for row in rows), sum(bool(row["where"]) for row in rows)
    print(f"check notices {caught} of {owners} bugs by which memory gets a second owner", file=sys.stderr)
    for name in worse:
        print(f"{name}: worse than mutations/checked.txt says", file=sys.stderr)
    return 1 if worse or caught * 5 < owners * 4 else 0


def list_checked():
    """Fails where the table and the bugs are not the same, a reason is missing, or less than 80 % are noticed."""
    table, bugs = read_table(), {m["name"] for m in tried_by_check(MUTATIONS)}
    faults = [f"{name}: in the table, and no bug" for name in sorted(set(table) - bugs)]
    faults += [f"{name}: not in the table; mutations --check --write --only {name}" for name in sorted(bugs - set(table))]
    faults += [f"{name}: its reason says nothing" for name, said in table.items()
               if said[0] == MISSED and (len(said[1].split()) < 5 or said[1] == "not looked into")]
    noticed, missed = (sum(said[0] == kind for said in table.values()) for kind in (NOTICED, MISSED))
    print(f"check notices {noticed} of {noticed + missed} bugs by which memory gets a second owner")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults or noticed < 4 * missed else 0


def notices_again(mutation, said):
    """Whether `check` notices a bug again where the table says, or else in another schedule."""
    program, schedule = said[1:]
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        mutate(mutation, folder)
        library = link(mutation, folder, LIBRARY, os.path.basename(LIBRARY))
        if program.startswith("ordering "):
            _, policy, kind = program.split()
            first, count = map(int, schedule.split("+"))
            return found_in_ordering(library, policy, kind, first, [count, *STEPS_SHOWN])
        for command, conf, sim in mutation["programs"]:
            if command == program:
                return found_by_check(library, command, conf, sim, [schedule, *SCHEDULES])
    return None


def try_sample(count):
    table = read_table()
    noticed = [m for m in MUTATIONS if table.get(m["name"], ("",))[0] == NOTICED]
    chosen = noticed[::max(1, len(noticed) // count)][:count]
    missed = 0
    for mutation in chosen:
        found = notices_again(mutation, table[mutation["name"]])
        missed += not found
        print(f"{mutation['name']}: {found[1] if found else 'MISSED, and mutations/checked.txt says that it is noticed'}", flush=True)
    return 1 if missed or not chosen else 0


def list_all(mutations):
    behind = 0
    for mutation in mutations:
        print(f"{mutation['name']}: {mutation['what']}")
        try:
            mutation["file"], _ = locate(mutation)
            sources_of(mutation)
        except (OSError, ValueError) as error:
            behind += 1
            print(error, file=sys.stderr)
    return 1 if behind else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one object a seeded bug")
    parser.add_argument("--only", action="append", help="of this name; may be given again")
    parser.add_argument("--test", help="those that name this test, tests/core/test_fences; it alone is asked")
    parser.add_argument("--asserted", action="store_true", help="those that only a build with assertions notices")
    parser.add_argument("--seeds", type=int, default=sum(STEPS),
                        help="random programs tried before one counts as missed")
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--list", action="store_true",
                        help="names the seeded bugs, and ends; fails where the code has left the table behind")
    parser.add_argument("--check", action="store_true", help="what the library's own check notices, the hazard checker being off")
    parser.add_argument("--write", action="store_true", help="with --check: writes the table anew")
    parser.add_argument("--check-list", action="store_true", help="whether that table and the bugs are the same")
    parser.add_argument("--check-sample", type=int, metavar="N", help="tries N of those that the table says are noticed")
    arguments = parser.parse_args()
    if arguments.check_list:
        return list_checked()
    if arguments.check_sample:
        return try_sample(arguments.check_sample)
    chosen = [m for m in MUTATIONS if not arguments.only or m["name"] in arguments.only]
    if arguments.test:
        chosen = [dict(m, tests=[arguments.test], programs=[], kinds=[]) for m in chosen if arguments.test in m["tests"]]
    if arguments.list:
        return list_all(chosen)
    if arguments.asserted:
        chosen = [m for m in chosen if m["asserted"]]
    if not ASSERTED:
        for mutation in [m for m in chosen if m["asserted"]]:
            print(f"{mutation['name']}: needs a build with assertions (-Db_ndebug=false)", file=sys.stderr)
        chosen = [m for m in chosen if not m["asserted"]]
    if arguments.check:
        return try_check(tried_by_check(chosen), arguments)
    sound = {} if arguments.test else failures(None, 1, 20, ["all"])
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
