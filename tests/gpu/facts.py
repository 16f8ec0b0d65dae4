"""What the rows of gpu_probe come to: facts by name, each with the assumption that it stands beside."""
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCHEMA = "segalloc.facts/1"
MIB = 1 << 20


def of_row(lines, row, **has):
    """The lines of a row that have these values."""
    return [line for line in lines if line["row"] == row and all(line.get(key) == value for key, value in has.items())]


def value(lines, row, key, **has):
    """A value of the first such line that has it; None without one."""
    return next((line[key] for line in of_row(lines, row, **has) if key in line), None)


def fit(points):
    """(a, b) of cost = a + b·n, by least squares of the relative error; None with fewer than two points."""
    if len(points) < 2:
        return None
    weights = [(n, ns, 1 / max(ns, 1) ** 2) for n, ns in points]
    total = sum(w for _, _, w in weights)
    mean_n = sum(w * n for n, _, w in weights) / total
    mean_ns = sum(w * ns for _, ns, w in weights) / total
    spread = sum(w * (n - mean_n) ** 2 for n, _, w in weights)
    slope = sum(w * (n - mean_n) * (ns - mean_ns) for n, ns, w in weights) / spread if spread else 0
    slope = max(slope, 0)
    return max(round(mean_ns - slope * mean_n), 0), round(slope)


def cost_of_handles(lines, key):
    """(a call, each handle) in ns, of one call for n handles; of calls that take one handle each, (a handle, 0)."""
    granule = value(lines, "device", "granularity")
    points = [(line["handles"], line[key]) for line in of_row(lines, "costs of handles", busy=False, handle_bytes=granule)
              if key in line]
    return fit(points)


def per_handle(lines, key):
    points = [line[key] / line["handles"] for line in of_row(lines, "costs of handles", busy=False)
              if key in line and line["handle_bytes"] == value(lines, "device", "granularity")]
    return round(sorted(points)[len(points) // 2]) if points else None


def calls(lines):
    """{fact: ns} of driver calls over handles, idle, for one page of the granularity."""
    found = {}
    for name, key in (("cuMemCreate", "create_ns"), ("cuMemMap", "map_ns"), ("cuMemRelease", "release_ns")):
        found[f"cost.{name}"] = per_handle(lines, key)
    for name, key in (("cuMemSetAccess", "access_ns"), ("cuMemUnmap", "unmap_ns")):
        fitted = cost_of_handles(lines, key)
        found[f"cost.{name}.call"], found[f"cost.{name}.handle"] = fitted if fitted else (None, None)
    return found


def having(text):
    """The values that `call=cuMemAlloc busy=false` asks of a line."""
    return {key: json.loads(word) if word in ("true", "false") or word.isdigit() else word
            for key, word in (part.split("=") for part in text.split())}


def by_table(lines):
    """The facts of tools/probe/facts.def, each of a single line."""
    found = {}
    for kind, row in re.findall(r"^(FACT|EACH|LIST)\((.*)\)$", (ROOT / "tools" / "probe" / "facts.def").read_text(), re.M):
        name, of, key, *last = re.findall(r'"([^"]*)"', row)
        if kind == "FACT":
            found[name] = value(lines, of, key, **having(last[0]))
        elif kind == "LIST":
            found[name] = next((line["names"] for line in of_row(lines, of) if key in line), None)
        else:
            found.update({name.replace("{}", str(line[key]).replace(" ", "_")): line.get(last[0])
                          for line in of_row(lines, of) if key in line and last[0] in line})
    return found


def waits(lines):
    """Whether cuMemUnmap and cuMemSetAccess wait for kernels, or else for copies; None where neither was asked."""
    for row, outlived in (("pages", "kernel_outlived"), ("beside work", "outlived")):
        rows = [line for call in ("cuMemUnmap", "cuMemSetAccess") for line in of_row(lines, row, call=call, busy=True)]
        if rows:
            return sum(line[outlived] for line in rows) * 2 < sum(line["rounds"] for line in rows)
    return None


def codes(lines):
    """What is allowed and refused, where it takes more than one line."""
    found = {}
    for line in of_row(lines, "pointers"):
        if "attribute" in line:
            key = "from_first_mapping" if "from_first_mapping" in line else "value"
            found["pointer." + line["attribute"].replace(" ", "_")] = line[key] if line["code"] == 0 else f"code {line['code']}"
    for line in of_row(lines, "context event"):
        if "capture" in line:
            by = line["recorded_by"].split()[0]
            found[f"context_event.{line['capture']}.{by}"] = [line["record"], line["end_of_capture"]]
    return found


def of(lines):
    """{fact: value}; None for what no row told. Facts of wall time on the simulator are left out: it has no such."""
    found = {**by_table(lines), **calls(lines), **codes(lines)}
    found["vmm_waits"] = waits(lines)
    refused = [line for line in of_row(lines, "addresses of a handle") if line.get("code")]
    found["addresses.stopped_at"] = refused[0]["stopped_at"] if refused else None
    found["addresses.stopped_code"] = refused[0]["code"] if refused else None
    found.update(elapsed(lines) if not value(lines, "device", "simulated") else {})
    counts = {f"alias.{row}": value(lines, row, "wrong") for row in ALIAS if value(lines, row, "wrong") is not None}
    if not control_true(lines):
        counts = {}
    counts.update({f"alias.{row}": value(lines, row, "wrong") for row in COPIED if value(lines, row, "wrong") is not None})
    found.update(counts)
    found["aliases_coherent"] = not any(counts.values()) if counts else None
    return found


ALIAS = ("volatile", "cached", "read-only", "asynchronous", "bulk", "copy engine", "graph", "programmatic", "two streams",
         "sewn", "moved")
COPIED = ("copied", "copied, two streams", "copied, sewn", "copied, graph", "copied, moved")


def control_true(lines):
    """Whether the kernels of alias find wrong words at all: without that their counts say nothing."""
    found = value(lines, "control", "found")
    return found is not None and found == value(lines, "control", "of")


def elapsed(lines):
    """Facts of real time, which the simulator knows nothing of."""
    found = {f"exit.{line['mappings']}.{line['handles']}_handles_ns": line["exit_ns"] for line in of_row(lines, "exit")
             if "exit_ns" in line}
    for line in of_row(lines, "while pages move"):
        if "moving" in line:
            state = ("moving" if line["moving"] else "still") + f".{line['mapped_bytes'] // MIB}_MiB"
            for key in ("kernel_ns", "launch_ns", "launch_p99_ns"):
                found[f"load.{state}.{key}"] = line[key]
    for line in of_row(lines, "bandwidth"):
        if "memory" in line:
            found[f"bandwidth.{line['memory']}.kernel_ns"] = line["kernel_ns"]
    for key in ("without_ns", "with_ns"):
        found[f"marks.{key}"] = value(lines, "marks", key)
    for line in of_row(lines, "streams", busy=False):
        found[f"streams.{line['call']}.{line['streams']}_ns"] = line["median_ns"]
    for key in ("first_set_ns", "second_set_ns", "third_set_ns", "location"):
        found[f"managed.{key}"] = value(lines, "managed", key)
    return found


def allocator_costs():
    """{fact: ns} as the allocator's table has them."""
    symbols = {"create": "cuMemCreate", "map": "cuMemMap", "set_access": "cuMemSetAccess", "unmap": "cuMemUnmap",
               "release": "cuMemRelease"}
    text = (ROOT / "src" / "driver" / "cost.def").read_text()
    found = {}
    for name, numbers in re.findall(r"^COST\((\w+), ([\d, ]+)\)", text, re.M):
        first, *rest = [int(number) for number in numbers.split(",")]
        fact = "cost." + symbols.get(name, name)
        split = fact.endswith(("cuMemSetAccess", "cuMemUnmap"))
        found[fact + ".call" if split else fact] = first
        if split:
            found[fact + ".handle"] = rest[0] if rest else 0
    return found


def wrong(row, lines):
    """What of a row would be a fault natively; "" where nothing is."""
    if row == "control" and not control_true(lines):
        return "the kernels do not run, or find nothing: the other rows say nothing"
    bad = sum(line.get("wrong", 0) for line in of_row(lines, row))
    return f"{bad} words wrong" if bad else ""


def line(row, lines):
    """A row in a few words."""
    make = LINES.get(row)
    if make:
        return make(lines)
    last = lines[-1]
    return ", ".join(f"{key} {value}" for key, value in list(last.items())[1:6])


def _costs_line(lines):
    access, unmap = cost_line(lines, "access_ns"), cost_line(lines, "unmap_ns")
    return f"access {access}, unmap {unmap}"


def cost_line(lines, key):
    rows = [row for row in lines if not row.get("busy") and row.get("handle_bytes") == lines[0].get("handle_bytes")]
    return " ".join(f"{row['handles']}:{row[key] / 1000:.0f}" for row in rows) + " µs"


def _times(lines):
    return "; ".join(f"{'moving' if row['moving'] else 'still'} {row['kernel_ns'] / 1000:.0f} µs a kernel, "
                     f"launch p99 {row['launch_p99_ns'] / 1000:.1f}" for row in lines if "moving" in row)


LINES = {
    "device": lambda l: f"{l[0]['device']}, driver {l[0]['driver']}, total {value(l, 'device', 'total_bytes')}, "
                        f"cuMemGetInfo's {value(l, 'device', 'info_total_bytes')}",
    "names": lambda l: f"{value(l, 'names', 'same')} of {value(l, 'names', 'hooked')} alike, "
                       f"{value(l, 'names', 'not_exported')} not exported, {value(l, 'names', 'in_no_table')} in no table, "
                       f"{value(l, 'names', 'new_forms')} new forms",
    "handles": lambda l: ", ".join(f"{row['handle']} {row['create']}" for row in l if "handle" in row),
    "pointers": lambda l: f"cuMemGetAddressRange tells {value(l, 'pointers', 'address_range_bytes')} bytes, IPC "
                          f"{value(l, 'pointers', 'ipc')}",
    "costs of handles": _costs_line,
    "addresses of a handle": lambda l: " ".join(f"{row['addresses']}:{row['access_ns'] / 1000:.0f}" for row in l
                                                if "addresses" in row) + " µs an access",
    "while pages move": _times,
    "bandwidth": lambda l: ", ".join(f"{row['memory']} {row['bytes'] / max(row['kernel_ns'], 1):.0f} GB/s" for row in l
                                     if "memory" in row),
    "growth": lambda l: " ".join(f"{row['processes']}:{row['ns_a_page'] / 1000:.0f}" for row in l
                                 if "ns_a_page" in row) + " µs a page",
    "exit": lambda l: ", ".join(f"{row['mappings']} mappings {row['exit_ns'] / 1e6:.0f} ms" for row in l
                                if "exit_ns" in row),
    "context event": lambda l: ", ".join(f"{row['capture']} {row['record']}/{row['end_of_capture']}" for row in l
                                         if "capture" in row),
    "marks": lambda l: f"{l[-1]['without_ns'] / 1e6:.1f} ms without, {l[-1]['with_ns'] / 1e6:.1f} with",
    "managed": lambda l: f"sets {l[-1]['first_set_ns'] / 1e6:.1f}, {l[-1]['second_set_ns'] / 1e6:.1f}, "
                         f"{l[-1]['third_set_ns'] / 1e6:.1f} ms",
    "transfer": lambda l: ", ".join(f"{row['way']} {row['bytes_per_s'] / 1e9:.1f} GB/s" for row in l if "way" in row),
    "peers": lambda l: ", ".join(f"to {row['to_device']} {row['bytes_per_s'] / 1e9:.1f} GB/s" for row in l if "to_device" in row),
    "pages": lambda l: f"{len(l)} measurements", "plain": lambda l: f"{len(l)} measurements",
    "streams": lambda l: f"{len(l)} measurements", "small": lambda l: f"{len(l)} measurements",
}
