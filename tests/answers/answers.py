"""What drivers answer: asking, the recorded answers, and the comparison of both but for what is listed."""
import collections
import fnmatch
import lzma
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE.parent / "data" / "driver-answers.xz"
KINDS = ("names", "codes", "errors")
# NVIDIA's version of a recorded driver, and the version of CUDA that it says.
DRIVERS = {"470": "11.4", "525": "12.0", "535": "12.2", "550": "12.4", "555": "12.5"}
UNSTEADY = "?"  # in place of an answer that is not the same each time it is asked for


def recorded(path=RECORDED):
    """{driver: {kind: [line, ...]}}"""
    found = collections.defaultdict(dict)
    lines = []
    for line in lzma.open(path, "rt", encoding="utf-8").read().splitlines():
        if line.startswith("= "):
            _, driver, kind = line.split()
            lines = found[driver][kind] = []
        else:
            lines.append(line)
    return dict(found)


def record(answers, path=RECORDED):
    text = "".join(f"= {driver} {kind}\n" + "".join(line + "\n" for line in lines)
                   for driver, kinds in answers.items() for kind, lines in kinds.items())
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def questions(kind, lines):
    """What the lines of recorded answers were asked for."""
    if kind == "errors":
        return ""
    return "".join(name + "\n" for name in dict.fromkeys(
        line.split()[1 if kind == "names" else 0] for line in lines if kind == "codes" or line.startswith("D ")))


def ask(command, kind, questions, environment):
    """The lines that a driver answers. `command` starts tests/answers/ask, within whatever it has to run in."""
    done = subprocess.run([*command, kind], input=questions, env=environment, capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} {kind}: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout.splitlines()


def steady(runs):
    """One answer for each word of a line of `codes` that is the same in all runs."""
    merged = []
    for lines in zip(*runs, strict=True):
        words = zip(*(line.split() for line in lines), strict=True)
        merged.append(" ".join(same[0] if len(set(same)) == 1 else UNSTEADY for same in words))
    return merged


Difference = collections.namedtuple("Difference", "driver kind what expected found")


def _by_question(kind, lines):
    """Lines by what they are about."""
    words = {"names": 3, "codes": 2, "errors": 1}[kind]
    found = {}
    for line in lines:
        parts = line.split(" ")
        count = 2 if line.startswith("D ") else words
        found[" ".join(parts[:count])] = parts[count:]
    return found


def _same(expected, found):
    return expected == found or (len(expected) == len(found) and
                                 all(a in (b, UNSTEADY) for a, b in zip(expected, found, strict=True)))


def _without_marks(lines):
    return [line.replace("*", "") for line in lines]


def compare(driver, kind, expected, found):
    """Where answers differ; which library has a function is not looked at."""
    expected = _by_question(kind, expected)
    found = _by_question(kind, _without_marks(found))
    for what in sorted(expected.keys() | found.keys()):
        want, got = expected.get(what), found.get(what)
        if want is None or got is None or not _same(want, got):
            yield Difference(driver, kind, what, " ".join(want or ["nothing"]), " ".join(got or ["nothing"]))


def hooked(nm, library):
    """The driver's functions that the library has."""
    lines = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[2] for line in lines if re.match(r"cu[A-Z]", line.split()[2])}


def handed_out(lines, hooks):
    """Functions that are another library's and should be the driver's, or the other way round."""
    wrong = set()
    for line in lines:
        for symbol, mark in re.findall(r"[ ,](cu\w+|\?)(\*?)(?= |$)", line.split(" ", 2)[2]):
            if symbol == "?" or bool(mark) != (symbol in hooks):
                wrong.add((symbol, line))
    return wrong


class Listed:
    """Differences that are known, each with its reason: lines of `listed.txt`.
    Columns: who differs, kind, driver, what it is about, reason; of the first four patterns as of file names."""

    def __init__(self, path=HERE / "listed.txt"):
        self.rows = []
        self.used = set()
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                row = [cell.strip() for cell in line.split(" | ")]
                row[3:-1] = [" | ".join(row[3:-1])]
                assert len(row) == 5 and all(row), line
                self.rows.append(row)

    def reason(self, who, difference):
        for at, (side, kind, driver, what, reason) in enumerate(self.rows):
            if all(fnmatch.fnmatchcase(*pair) for pair in (
                    (who, side), (difference.kind, kind), (difference.driver, driver), (difference.what, what))):
                self.used.add(at)
                return reason
        return None

    def unused(self, who, kinds, drivers):
        """Rows that apply to what was compared, and found no difference."""
        return [" | ".join(row) for at, row in enumerate(self.rows) if at not in self.used and fnmatch.fnmatchcase(who, row[0]) and
                any(fnmatch.fnmatchcase(kind, row[1]) for kind in kinds) and
                any(fnmatch.fnmatchcase(driver, row[2]) for driver in drivers)]


def is_unsteady(kind, what, lines):
    """Whether the recording has found that a driver answers this now so, now otherwise."""
    return kind == "codes" and any(UNSTEADY in line.split() for line in lines if line.startswith(what + " "))


def names_to_ask(tables, symbol_lists):
    """What drivers export, the names that those are known by, what the simulator's tables have, and some that nobody has."""
    exported = {line.split()[2].split("@")[0] for text in symbol_lists for line in text.splitlines()}
    exported |= {word for line in tables for row in [re.match(r"[A-Z_]+\((.*)\)$", line)] if row
                 for word in row[1].split(", ")}
    exported = {name for name in exported if name.startswith("cu")}
    plain = {re.sub(r"_pt[ds][sz]$", "", name) for name in exported}
    none = {"cuFoo", "cudaMalloc", "cumemalloc", "cuGetProcAddress_ptsz", "cuGetProcAddress_v2_ptsz", "cuEventCreateFromEGLSync"}
    return sorted(exported | plain | {re.sub(r"_v\d+$", "", name) for name in plain} | none)
