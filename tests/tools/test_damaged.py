"""Damaged files: traces, RMM's CSV, PyTorch's snapshots and statistics with flipped bits, extreme numbers, and parts gone, twice or in
another place, to every verb that reads them. Each ends with a documented status, in bounded time and memory, and
where that is 1, says in one line of which file, at which place, and what is wrong.

Usage: test_damaged.py SEGALLOC CROWD STREAMS DATA [--cases N] [--seed N] [--jobs N] [--keep FOLDER] [--only WORD]"""
import argparse
import glob
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import loads

MIB = 1 << 20
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
HEADER_BYTES, BLOCK_HEADER, RECORD = 80, 32, 32
DATA_OFFSET = 4096  # of what the tests record
FNV_BASIS, FNV_PRIME = 0xcbf29ce484222325, 0x100000001b3
EXTREMES = (0, 1, 2, 3, 7, 511, 513, 1 << 15, (1 << 16) - 1, (1 << 21) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40,
            1 << 50, 1 << 58, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 513, (1 << 64) - 2, (1 << 64) - 1)
# Fields of the header: offset and bytes.
HEADER_FIELDS = ((0, 8), (8, 4), (12, 4), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 4), (52, 4), (56, 8), (64, 8),
                 (72, 8))
BLOCK_FIELDS = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8))
RECORD_FIELDS = ((0, 1), (1, 1), (2, 2), (4, 4), (8, 8), (16, 8), (24, 8))
KINDS = (*range(13), *range(32, 54), *range(64, 72), 255)

# What each verb is asked. FILE is the damaged one, OUT a new file.
OF_TRACES = (
    "report FILE", "report FILE --json --strict", "report FILE --fail-above requested=1GiB", "trace info FILE",
    "trace info FILE --json", "trace cat FILE", "trace cat FILE --from 0.001 --to 5 --device 0",
    "trace export FILE -o OUT", "trace export FILE --to end -o OUT", "trace export FILE --format chrome -o OUT",
    "trace export FILE --format csv --to peak -o OUT", "trace export FILE --format folded -o OUT",
    "trace export FILE --format speedscope -o OUT", "trace import FILE -o OUT", "replay FILE --json", "replay FILE", "replay FILE -m",
    "replay FILE -r 10 --json", "replay FILE -r 3 --sees possible --json", "replay FILE -p pytorch",
    "replay FILE -p pytorch --conf expandable_segments:True,max_split_size_mb:64",
    "replay FILE -p pytorch --limit 300MiB --conf garbage_collection_threshold:0.6", "replay FILE --limit 200MiB --json",
    "replay FILE --bench --json", "replay FILE --conf reserve_slack:1.0 --json",
    "replay FILE --conf expandable_segments:False --json", "replay FILE --conf page_size_mb:6,free_sync:event -r 5",
    "diff FILE FILE --json", "diff FILE FILE --at end --all", "diff FILE FILE --at failure", "report FILE FILE",
    "tune FILE -b 3 -J 1", "tune FILE -b 3 -J 2 -f pytorch --json",
)
CONF = {"fixed": "expandable_segments:False", "two-cards": "reserve_slack:1.0"}  # with which traces are recorded
OF_STATISTICS = ("report FILE", "report FILE --json", "report FILE --fail-above frag=20%")


# What an error says: where, or what of the whole file.
PLACED = re.compile(r"(byte|event|line) \d|no events|is empty|neither a trace|no allocation to tune for|statistics|"
                    r"no device memory|not known from this file|snapshot|no allocation failed")


def checksum(records):
    value = FNV_BASIS
    for word in struct.unpack(f"<{len(records) // 8}Q", records):
        value = (value ^ word) * FNV_PRIME & (1 << 64) - 1
    return value or 1


def seal(data):
    """Gives the first block a checksum that holds, so that the damage is not seen there."""
    if len(data) < DATA_OFFSET + BLOCK_HEADER:
        return
    count = struct.unpack_from("<I", data, DATA_OFFSET + 4)[0]
    first = DATA_OFFSET + BLOCK_HEADER
    if count * RECORD <= len(data) - first:
        struct.pack_into("<Q", data, DATA_OFFSET + 16, checksum(bytes(data[first:first + count * RECORD])))


class Inputs:
    """Good files, by kind: small ones of what the library writes, of every kind of record that a program on the simulator
    brings about, and of RMM's CSV."""

    def __init__(self, arguments, folder):
        self.segalloc, self.folder = arguments.segalloc, folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
            self.environment["LD_PRELOAD"] = os.environ["SANITIZER"]
        self.traces, self.tables, self.statistics, self.snapshots = {}, {}, {}, {}
        self.record("crowd", "256MiB", "", arguments.crowd, "4", "120", "1", "30000000", "trim")
        self.record("two-cards", "256MiB,count=2", CONF["two-cards"], arguments.crowd, "3", "60", "2", "60000000")
        self.record("fixed", "256MiB", CONF["fixed"], arguments.crowd, "3", "80", "1", "30000000", "trim")
        self.record("streams", "1GiB,schedule=5", "free_sync:stream", arguments.streams, "2", "80", "3", "20000000")
        self.record("sites", "256MiB", "sites:True", arguments.crowd, "3", "60", "1", "30000000")
        for path in glob.glob(os.path.join(arguments.data, "snapshots", "*.pickle")):
            with open(path, "rb") as file:
                self.snapshots[os.path.basename(path)] = file.read()
        killed = bytearray(self.traces["crowd"])
        struct.pack_into("<Q", killed, DATA_OFFSET + 16, 0)
        self.traces["killed"] = bytes(killed[:-RECORD])
        lora = os.path.join(arguments.data, "qwen25-7b-lora.csv.zst")
        rows = self.call("trace", "cat", lora, "--to", "0.02").stdout.splitlines()[:1500]
        self.tables["lora"] = b"\n".join(rows) + b"\n"
        self.tables["order"] = "\n".join(loads.offload(3, steps=1, layers=6).splitlines()[:800]).encode() + b"\n"
        with open(lora, "rb") as file:  # of a compressed file the first part
            self.tables["compressed"] = file.read(200000)
        imported = os.path.join(folder, "imported")
        with open(os.path.join(folder, "order"), "wb") as file:
            file.write(self.tables["order"])
        self.call("trace", "import", file.name, "-o", imported)
        with open(imported, "rb") as file:
            self.traces["imported"] = file.read()

    def call(self, *arguments):
        return subprocess.run([self.segalloc, *arguments], env=self.environment, capture_output=True, timeout=120)

    def record(self, name, card, conf, *program):
        trace, stats = (os.path.join(self.folder, f"{name}.{kind}") for kind in ("trace", "stats"))
        result = self.call("run", "--sim", card, "-o", trace, "--conf", f"stats:{stats},oom_report:never,{conf}", "--",
                           *program)
        assert result.returncode == 0, result
        with open(trace, "rb") as file:
            self.traces[name] = file.read()
        with open(stats, "rb") as file:
            self.statistics[name] = file.read()


def put(data, at, size, value):
    data[at:at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def flip(r, data, first, last):
    for _ in range(r.choice((1, 1, 1, 2, 8, 64))):
        data[r.randrange(first, last)] ^= 1 << r.randrange(8)


def field(r, data, base, fields):
    offset, size = r.choice(fields)
    if base + offset + size > len(data):
        return
    before = int.from_bytes(data[base + offset:base + offset + size], "little")
    put(data, base + offset, size, r.choice((r.choice(EXTREMES), before + r.choice((-512, -1, 1, 512, 1 << 21)),
                                             r.getrandbits(8 * size), before << r.randrange(1, 8))))


def damage_records(r, data):
    """What only a record's reader can see: the block's checksum holds."""
    first, count = DATA_OFFSET + BLOCK_HEADER, (len(data) - DATA_OFFSET - BLOCK_HEADER) // RECORD
    if count <= 0:
        return
    for _ in range(r.choice((1, 1, 2, 5, 30))):
        at = first + r.randrange(count) * RECORD
        other = first + r.randrange(count) * RECORD
        how = r.randrange(6)
        if how == 0:
            data[at:at + RECORD], data[other:other + RECORD] = data[other:other + RECORD], data[at:at + RECORD]
        elif how == 1:
            data[at:at + RECORD] = data[other:other + RECORD]
        elif how == 2:
            data[at] = r.choice(KINDS)
        elif how == 3:
            flip(r, data, at, at + RECORD)
        else:
            field(r, data, at, RECORD_FIELDS)


def damaged_trace(r, good):
    data = bytearray(good)
    for _ in range(r.choice((1, 1, 2))):
        how = r.randrange(8)
        if how == 0:
            flip(r, data, 0, len(data))
        elif how <= 2:
            field(r, data, 0, HEADER_FIELDS)
        elif how == 3:
            field(r, data, DATA_OFFSET, BLOCK_FIELDS)
        elif how == 4:
            flip(r, data, 0, HEADER_BYTES)
        elif how == 5 and r.random() < 0.3:
            del data[r.randrange(len(data)):]
        else:
            damage_records(r, data)
        if not data:
            break
    if r.random() < 0.7:
        seal(data)
    elif r.random() < 0.5 and len(data) > DATA_OFFSET + BLOCK_HEADER:
        put(data, DATA_OFFSET + 16, 8, 0)
    return bytes(data)


def damaged_text(r, good):
    """Of rows, fields and characters, in CSV or JSON."""
    data = bytearray(good)
    for _ in range(r.choice((1, 1, 2, 10))):
        how, size = r.randrange(7), len(data)
        if size < 64:
            break
        lines = data.split(b"\n") if how in (0, 1) else None
        if how == 0:
            a, b = r.randrange(len(lines)), r.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            data = bytearray(b"\n".join(lines))
        elif how == 1:
            lines.insert(r.randrange(len(lines)), r.choice(lines))
            data = bytearray(b"\n".join(lines))
        elif how == 2:
            flip(r, data, 0, size)
        elif how == 3 and r.random() < 0.3:
            del data[r.randrange(size):]
        elif how == 4:
            at = r.randrange(size)
            data[at:at + r.randrange(3)] = r.randbytes(r.randrange(3))
        else:
            numbers = [match.span() for match in re.finditer(rb"\d+", data)]
            at, end = r.choice(numbers) if numbers else (0, 0)
            value = r.choice(EXTREMES) * r.choice((1, 1, -1, 1 << 64))
            data[at:end] = (b"%d" if r.random() < 0.7 else b"0x%x") % value
    return bytes(data)


def damaged_bytes(r, good):
    data = bytearray(good)
    flip(r, data, 0, len(data) if r.random() < 0.5 else 64)
    if r.random() < 0.3:
        del data[r.randrange(1, len(data)):]
    return bytes(data)


def damaged_pickle(r, good):
    """Of opcodes and their arguments, and of pieces that stand twice or in another place."""
    data = bytearray(good)
    for _ in range(r.choice((1, 1, 2, 5, 30))):
        how, at, size = r.randrange(6), r.randrange(len(data)), r.choice((1, 2, 8, 60, 1000))
        if how == 0:
            flip(r, data, 0, len(data))
        elif how == 1:
            data[at] = r.choice(b"()012]}ltdaesuqrhjNKMJXU\x8a\x85\x86\x87\x88\x89\x94\x95.")
        elif how == 2:
            other = r.randrange(len(data))
            data[at:at] = data[other:other + size]
        elif how == 3:
            data[at:at + 8] = struct.pack("<Q", r.choice(EXTREMES))
        elif how == 4:
            data[at:at] = data[at:at + size] * r.choice((1, 10, 100))
        elif r.random() < 0.2:
            del data[max(at, 2):]
    return bytes(data)


def case(seed, inputs):
    """A damaged file, and what to ask of it."""
    r = random.Random(seed)
    kind = r.random()
    if kind < 0.1:
        name = r.choice(sorted(inputs.snapshots))
        return name, damaged_pickle(r, inputs.snapshots[name]), r.choice(OF_TRACES)
    if kind < 0.7:
        name = r.choice(sorted(inputs.traces))
        as_recorded = f"replay FILE --conf {CONF[name]} --json" if name in CONF else "replay FILE --json"
        return name, damaged_trace(r, inputs.traces[name]), r.choice((as_recorded, r.choice(OF_TRACES)))
    if kind < 0.92:
        name = r.choice(sorted(inputs.tables))
        damage = damaged_bytes if name == "compressed" else damaged_text
        return name, damage(r, inputs.tables[name]), r.choice(OF_TRACES)
    name = r.choice(sorted(inputs.statistics))
    return f"{name} statistics", damaged_text(r, inputs.statistics[name]), r.choice(OF_STATISTICS)


class Run:
    def __init__(self, arguments, inputs, sanitized):
        self.arguments, self.inputs, self.sanitized = arguments, inputs, sanitized
        self.cpu_s = 120 if sanitized else 20
        self.cpu_most, self.memory, self.refused = 0, 0, 0

    def limits(self):
        resource.setrlimit(resource.RLIMIT_CPU, (self.cpu_s, self.cpu_s))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 * MIB, 256 * MIB))

    def play(self, path, words):
        """Exit status, standard error, the most memory that was used, in bytes, and seconds of the processor."""
        out = path + ".out"
        command = [self.arguments.segalloc, *(path if word == "FILE" else out if word == "OUT" else word for word in words)]
        with open(path + ".err", "w+b") as errors, open(os.devnull, "w") as null:
            process = subprocess.Popen(command, env=self.inputs.environment, stdin=subprocess.DEVNULL, stdout=null,
                                       stderr=errors, preexec_fn=self.limits)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            said = errors.read()
        for name in (path + ".err", out):
            if os.path.exists(name):
                os.unlink(name)
        return process.returncode, said.decode(errors="replace"), usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime

    def fault(self, path, size, words):
        status, said, memory, cpu_s = self.play(path, words)
        self.cpu_most = max(self.cpu_most, cpu_s)
        self.memory = max(self.memory, memory)
        self.refused += status == 1
        allowed = {0, 1} | ({4} if "--strict" in words else set()) | ({3} if "--fail-above" in words or "replay" in words else set())
        if status not in allowed:
            return f"ends with {status}: {said[-2000:]}"
        if "runtime error" in said or "Sanitizer" in said:
            return said[-3000:]
        lines = said.splitlines()
        errors = [line for line in lines if path in line]
        if status == 1 and not (len(lines) == words.count("FILE") and errors and PLACED.search(said)) and not (
                len(lines) == 1 and errors and PLACED.search(said)):
            return f"says not in one line what is wrong, and where: {said[:1000]}"
        if memory > 64 * MIB + 2 * size and not self.sanitized:
            return f"takes {memory / MIB:.0f} MiB for a file of {size / MIB:.2f} MiB"
        return None

    def one(self, seed):
        name, data, verb = case(seed, self.inputs)
        if self.arguments.only and self.arguments.only not in f"{name} {verb}":
            return None
        path = os.path.join(self.inputs.folder, f"case-{seed}")
        with open(path, "wb") as file:
            file.write(data)
        fault = self.fault(path, len(data), verb.split())
        if fault and self.arguments.keep:
            shutil.copy(path, os.path.join(self.arguments.keep, f"case-{seed}"))
        os.unlink(path)
        return fault and f"seed {seed} ({name}): segalloc {verb}: {fault}"


def main():
    parser = argparse.ArgumentParser()
    for name in ("segalloc", "crowd", "streams", "data"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("--cases", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    found, began = [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(arguments, folder)
        run = Run(arguments, inputs, "SANITIZER" in os.environ)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for fault in pool.map(run.one, range(arguments.seed, arguments.seed + arguments.cases)):
                if fault:
                    found.append(fault)
                    print(fault, flush=True)
    print(f"{arguments.cases} cases, {run.refused} refused, {len(found)} faults, {time.monotonic() - began:.0f} s; at most "
          f"{run.cpu_most:.2f} s of the processor and {run.memory / MIB:.0f} MiB")
    return 1 if found else 0


sys.exit(main())
