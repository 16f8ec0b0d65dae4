"""Which branches no test takes, and whether each is listed with the reason.

Usage: unreached.py GCOVR_JSON LISTS

Prints a table by folder of src/ (lines, branches, functions), then what a list lacks. LISTS holds a file FOLDER.txt for
each folder of src/ whose untaken branches must all be listed:

    kind NAME
        What such branches have in common: why no test can take them.

    FILE FUNCTION COUNT KIND
        the line of the source, as it stands there
        What is particular to it, if anything.

COUNT is how many of the line's outcomes no test takes; a line that stands in the function more than once is listed once,
with the sum. Lines are found by their text, so that an entry outlives changes elsewhere. Exit status 0: every untaken
branch is listed, and every entry's line is there."""
import collections
import json
import pathlib
import re
import sys

ASSERTION = re.compile(r"\bassert\(")  # of headers, in tests that keep them
Entry = collections.namedtuple("Entry", "file function count kind line")


def percent(part, whole):
    return f"{100 * part / whole:5.1f}" if whole else "    -"


class Measured:
    """One source file: how often its lines, branches and functions were run."""

    def __init__(self, file):
        self.name = file["file"]
        self.lines, self.branches, self.functions = (collections.Counter() for _ in range(3))
        for function in file["functions"]:
            if "execution_count" in function:
                self.functions[function["lineno"], function.get("name")] += function["execution_count"]
        for line in file["lines"]:
            number = line["line_number"]
            # A function that stands for one of C++ has its name.
            function = (line.get("function_name") or line.get("demangled_function_name", "-")).split("(")[0]
            self.lines[number] += line["count"]
            for branch in line["branches"]:
                self.branches[number, function, branch["branchno"]] += branch["count"]

    def untaken(self, text):
        """(function, line's text) -> how many outcomes no test takes, and (function, line's text) -> its number."""
        missing, where = collections.Counter(), {}
        for (number, function, _), count in sorted(self.branches.items()):
            key = (function, text[number - 1].strip())
            if ASSERTION.search(key[1]):
                continue
            missing[key] += count == 0
            where.setdefault(key, number)
        return missing, where


def table(files):
    rows = collections.defaultdict(lambda: [0] * 6)
    for file in files:
        for key in (pathlib.PurePath(file.name).parts[1], "all"):
            row = rows[key]
            for place, counts in zip((0, 2, 4), (file.lines, file.branches, file.functions)):
                row[place] += sum(count > 0 for count in counts.values())
                row[place + 1] += len(counts)
    print(f"\n{'folder':<12}{'lines':>14} {'%':>5}{'branches':>16} {'%':>5}{'functions':>14} {'%':>5}")
    for folder in sorted(rows, key=lambda name: (name == "all", name)):
        r = rows[folder]
        name = folder if folder == "all" else "src/" + folder
        print(f"{name:<12}{f'{r[0]}/{r[1]}':>14} {percent(r[0], r[1])}{f'{r[2]}/{r[3]}':>16} {percent(r[2], r[3])}"
              f"{f'{r[4]}/{r[5]}':>14} {percent(r[4], r[5])}")


def read_list(path):
    """Kinds and entries of one list; ends the program with a line that names the place if it can't be read."""
    kinds, entries = {}, []

    def wrong(number, what):
        sys.exit(f"{path}:{number}: {what}")

    numbered = list(enumerate(path.read_text().splitlines(), 1))
    for position, (number, line) in enumerate(numbered):
        if not line.strip() or line.startswith(("#", " ")):
            continue
        following = numbered[position + 1][1] if position + 1 < len(numbered) else ""
        if not following.startswith("    ") or not following.strip():
            wrong(number, "an indented line must follow")
        if re.fullmatch(r"kind \S+", line):
            kinds[line.split()[1]] = following.strip()
            continue
        fields = line.split()
        if len(fields) != 4 or not fields[2].isdigit():
            wrong(number, "neither 'kind NAME' nor 'FILE FUNCTION COUNT KIND'")
        if fields[3] not in kinds:
            wrong(number, f"no kind '{fields[3]}' before this line")
        entries.append(Entry(fields[0], fields[1], int(fields[2]), fields[3], following.strip()))
    return kinds, entries


def compare(folder, files, root, kinds, entries):
    """Prints what the list of one folder lacks, and what is in it in vain. Returns how much is wrong."""
    listed = {(e.file, e.function, e.line): e.count for e in entries}
    wrong, better, untaken = [], [], 0
    for file in files:
        text = (root / file.name).read_text().splitlines()
        missing, where = file.untaken(text)
        untaken += sum(missing.values())
        for key, number in where.items():
            count, allowed = missing[key], listed.pop((file.name, *key), 0)
            if count > allowed:
                wrong.append((file.name, number, f"{file.name} {key[0]} {count}", key[1]))
            elif count < allowed:
                better.append(f"{file.name}:{number}: {count} untaken, {allowed} listed: {key[1]}")
    gone = [f"{file} {function}: no such line with a branch: {line}" for file, function, line in listed]
    by_kind = collections.Counter()
    for entry in entries:
        by_kind[entry.kind] += entry.count
    print(f"\nsrc/{folder}: {untaken} branches are taken by no test; {sum(by_kind.values())} are listed"
          + "".join(f", {count} {kind}" for kind, count in by_kind.most_common()))
    for kind in kinds:
        if kind not in by_kind:
            gone.append(f"no entry is of kind {kind}")
    for _, number, head, line in sorted(wrong):
        print(f"NOT LISTED (line {number})\n{head} KIND\n    {line}")
    for line in gone:
        print("STALE      " + line)
    for line in better:
        print("taken now  " + line)
    return len(wrong) + len(gone)


def main():
    report, lists = map(pathlib.Path, sys.argv[1:3])
    root = pathlib.Path.cwd()
    files = [Measured(file) for file in json.loads(report.read_text())["files"]]
    table(files)
    wrong = 0
    for path in sorted(lists.glob("*.txt")):
        folder = path.stem
        wrong += compare(folder, [f for f in files if f.name.startswith(f"src/{folder}/")], root, *read_list(path))
    print(f"\n{wrong} untaken branches or stale entries that a list must be changed for" if wrong else
          "\nevery untaken branch is listed")
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
