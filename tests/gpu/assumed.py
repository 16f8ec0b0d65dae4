"""Facts of a machine beside what the simulator and the allocator's table of costs assume, and the settings by which the
simulator comes to be like that machine."""
import json
import re

import facts

DEFINITIONS = facts.ROOT / "src" / "sim" / "setting.def"


def settings_known():
    """Keys that SEGALLOC_SIM takes, by the simulator's own table."""
    return re.findall(r'^(?:FLAG|NUMBER|OTHER)\("([^"]+)"', DEFINITIONS.read_text(), re.M)


# The rows that settle something about a simulator: the others are about times that it has none of.
ROWS = ("device", "names", "handles", "pointers", "costs of handles", "addresses of a handle", "growth", "context event",
        "addresses", "managed", "reset", "last release", "small", "pages", "plain", "control", "copy engine")


def simulator_facts(machine, spec):
    """Facts of the simulated GPU under a specification."""
    lines = list(machine.asked("native", "--quick", *ROWS, timeout=120, sim=spec))
    mapless = "no-vmm" in spec.split(",")  # rows that map then end with an error, as on such a machine
    broken = next((line for line in lines if "error" in line and not mapless), None)
    if not lines or broken:
        raise ValueError(f"the simulator does not start with SEGALLOC_SIM={spec}"
                         + (f": {broken['row']}: {broken['error']}" if broken else ""))
    told = [line for line in lines if "error" not in line]
    return {name: value for name, value in facts.of(told).items()
            if not name.startswith("alias.")}  # of kernels; whether there is one wrong word is aliases_coherent


def size(found):
    """The specification's size and number of devices, which are always given."""
    total = int(found.get("total_bytes") or 24 << 30) >> 21 << 21
    devices = found.get("devices") or 1
    return f"{total}B" + (f",count={devices}" if devices != 1 else "")


def facts_file(lines, simulated):
    """What tests/gpu/run writes as facts.json, with the simulator's facts beside."""
    found = facts.of(lines)
    first = next((line for line in lines if "device" in line), {})
    table = facts.allocator_costs()
    return {"schema": facts.SCHEMA,
            "machine": {"name": first.get("device", "unknown"), "assumed": bool(first.get("simulated"))},
            "facts": {name: {"value": value, "simulator": simulated.get(name),
                             **({"allocator": table[name]} if name in table else {})}
                      for name, value in found.items() if value is not None}}


def load(path):
    """{fact: value} of such a file, and its machine."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    if data.get("schema") != facts.SCHEMA:
        raise ValueError(f"{path} is no file of facts: its schema is {data.get('schema')!r}, wanted {facts.SCHEMA!r}")
    return {name: fact["value"] for name, fact in data["facts"].items()}, data["machine"]


def differs(name, one, other):
    """Whether two values of a fact are not the same for what is decided by it: times within a fifth."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)) and not isinstance(one, bool) and \
            re.search(r"^cost\.|_ns$|ns_a_page", name):
        return abs(one - other) > max(abs(one), abs(other)) / 5 and abs(one - other) > 500
    return one != other


def version(number):
    return f"{number // 1000}.{number % 1000 // 10}"


# (key of setting.def, facts that it is made from, value by those facts: None where the default is right, True for a flag)
RULES = [
    ("driver", ("driver",), lambda f: version(f["driver"])),
    ("no-vmm", ("vmm",), lambda f: None if f["vmm"] else True),
    ("no-posix-handles", ("posix_handles",), lambda f: None if f["posix_handles"] else True),
    ("no-rdma", ("rdma_vmm",), lambda f: None if f["rdma_vmm"] else True),
    ("fabric", ("fabric_handles",), lambda f: True if f["fabric_handles"] else None),
    ("integrated", ("integrated",), lambda f: True if f["integrated"] == 1 else None),
    ("hostpages", ("host_pages",), lambda f: None if f["host_pages"] == 1 else "off"),
    ("no-ipc", ("pointer.plain_ipc",), lambda f: True if f["pointer.plain_ipc"] else None),
    ("no-p2p", ("peer_access",), lambda f: None if f["peer_access"] else True),
    ("managed-apart", ("managed.on_device",), lambda f: None if f["managed.on_device"] else True),
    ("aliases-apart", ("aliases_coherent",), lambda f: None if f["aliases_coherent"] else True),
    ("mappings", ("addresses.stopped_at", "addresses.stopped_code"),
     lambda f: f"{f['addresses.stopped_at']}:{f['addresses.stopped_code']}"),
    ("vmm_sync", ("vmm_waits",), lambda f: "always" if f["vmm_waits"] else None),
    ("quota_mb", ("total_bytes", "info_total_bytes"),
     lambda f: None if f["info_total_bytes"] >= f["total_bytes"] else f["info_total_bytes"] >> 20),
]


# Made otherwise: by size() and cost_settings().
ELSEWHERE = ("count", "cost")
# What a machine is not, but how a simulator runs, and a card by its name: no fact decides it.
NO_FACT = ("device", "model", "hazard", "hazard_exit", "schedule", "run_ahead", "depth", "at-once", "drop_mb", "compute_mb", "kernel_us", "card",
           "fail", "peaks", "host", "notifies")


def cost_settings(found):
    """cost=NAME:CALL[+HANDLE] for each call of which the facts tell."""
    for name in sorted({fact.split(".")[1] for fact in found if fact.startswith("cost.")}):
        if f"cost.{name}" in found:
            yield f"cost={name}:{found[f'cost.{name}']}"
        elif f"cost.{name}.call" in found:
            each = found.get(f"cost.{name}.handle") or 0
            yield f"cost={name}:{found[f'cost.{name}.call']}" + (f"+{each}" if each else "")


def settings(found, simulated):
    """(settings, [(fact, why no setting was made of it)]) for facts that differ."""
    known, chosen, unmet = settings_known(), [], []
    different = {name for name, value in found.items() if name in simulated and differs(name, value, simulated[name])}
    met = {"total_bytes", "devices"}
    for key, wanted, make in RULES:
        if not different & set(wanted) or any(found.get(name) is None for name in wanted):
            continue
        if key not in known:
            unmet += [(name, f"the simulator has no setting {key}") for name in wanted if name in different]
            met |= set(wanted)
            continue
        value = make(found)
        chosen += [] if value is None else [key if value is True else f"{key}={value}"]
        met |= set(wanted)
    costs = {name for name in different if name.startswith("cost.")}
    if costs and "cost" in known:
        called = {name.split(".")[1] for name in costs}
        chosen += cost_settings({name: value for name, value in found.items()
                                 if name.startswith("cost.") and name.split(".")[1] in called})
        met |= costs
    unmet += [(name, "no setting") for name in sorted(different - met)]
    return chosen, unmet
