"""results.json as tables, in Markdown: for docs/measurements.md when the machine is real."""

MIB = 1 << 20


def rows(head, lines):
    return "\n".join(["| " + " | ".join(map(str, line)) + " |" for line in [head, ["---"] * len(head), *lines]]) + "\n"


def micro(ns):
    return f"{ns / 1000:.1f}"


def costs(data):
    by_page, by_stream = {}, {}
    for row in (row for row in data if "call" in row):
        key, place = ("bytes", by_page) if "bytes" in row else ("streams", by_stream)
        place.setdefault((row["call"], row[key]), {})[row["busy"]] = row

    def lines(place, unit):
        for (call, value), found in place.items():
            idle, busy = found.get(False), found.get(True)
            outlived = f"{busy['kernel_outlived']} of {busy['rounds']}" if busy and "kernel_outlived" in busy else "-"
            yield [call, unit(value), micro(idle["median_ns"]) if idle else "-",
                   micro(busy["median_ns"]) if busy else "-", outlived]
    return ("Driver calls, microseconds in the median; with a kernel running, and in how many rounds that outlived "
            "the call:\n\n" +
            rows(["call", "size", "idle", "busy", "kernel outlived it"],
                 lines(by_page, lambda value: f"{value // MIB} MiB" if value else "-")) + "\n" +
            rows(["call", "streams", "idle", "busy", "still at work"], lines(by_stream, str)))


def tuning(data):
    data = {mode: row for mode, row in data.items() if "losses" in row}

    def line(mode, row):
        seconds = row["step_seconds"]
        return [mode, row["ended"], "-" if seconds is None else f"{seconds * 1000:.1f}",
                f"{row['peak_reserved'] / MIB:.0f}", row["allocations"] or "-", row["driver_calls"] or "-",
                "yes" if row["losses"] == data["native"]["losses"] else "no"]
    return ("Fine-tuning a small decoder with LoRA:\n\n" +
            rows(["mode", "ended", "step, ms", "peak reserved, MiB", "allocations served", "driver calls",
                  "losses as natively"],
                 [line(mode, row) for mode, row in data.items()]))


def limits(data):
    return ("The smallest limit under which that completes (6 steps):\n\n" +
            rows(["mode", "completes, MiB", "fails, MiB"],
                 [[mode, f"{row['completes'] / MIB:.0f}", f"{row['fails'] / MIB:.0f}"] for mode, row in data.items()]))


def text(results):
    parts = results["parts"]
    pieces = []
    if results["simulated"]:
        pieces.append("**On the simulated GPU: shows that the commands work. No figure here says anything about a "
                      "GPU.**\n")
    machine = parts.get("what", {}).get("data", {})
    pieces.append(", ".join(filter(None, [*machine.get("gpu", []), f"Python {machine.get('python')}",
                                          *(f"{name} {version}"
                                            for name, version in machine.get("modules", {}).items())])) + "\n")
    pieces.append(rows(["part", "result", "seconds", ""],
                       [[name, part["status"], part["seconds"],
                         "; ".join(part.get("problems", [])) or part.get("why", "")]
                        for name, part in parts.items()]))
    pieces.append(rows(["part", "row", "result", ""],
                       [[name, row["row"], row["status"], row.get("note", "").replace("|", "/")]
                        for name, part in parts.items() for row in part.get("rows", [])]))
    for name, make in (("tuning", tuning), ("limits", limits), ("costs", costs)):
        if parts.get(name, {}).get("data"):
            pieces.append(make(parts[name]["data"]))
    return "\n".join(pieces)
