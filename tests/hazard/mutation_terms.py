"""The words of the tables of seeded bugs: sources, tests and programs by name, and bug()."""

FREE, CONTEXTS, ORDER, PENDING, MARKS, REGION, OWNER, PLACE, PLAN, PERFORM, SEW, ALIAS = (
    f"src/core/{f}.c" for f in ("free", "contexts", "order", "pending", "marks", "region", "owner", "place", "plan",
                                "perform", "sew", "alias"))
PARTS, DEVICE = "src/core/region_parts.h", "src/core/device.c"
EVENTS, STREAMS, WAITS, CAPTURES, GRAPHS, MEMORY, GATED, TAINTS, SUBMIT, USERS, COPIES = (
    f"src/preload/{f}.c" for f in ("events", "streams", "waits", "captures", "graphs", "memory", "gated", "taints",
                                   "submit", "users", "copies"))
USERS_HEADER, PRELOAD_CONTEXTS, QUICK, HOOKS = (
    "src/preload/users.h", "src/preload/contexts.c", "src/preload/quick.c", "src/preload/memory_hooks.c")

ORDER_TEST = ["tests/preload/test_order"]
ORDER_MODEL = ["tests/core/test_order_model"]
ORDER_RULES = ["tests/core/test_core_order", "tests/core/test_order_seen"]
MARKS_TEST, EPOCHS_TEST, FREES_TEST, OWNER_TEST = (
    ["tests/core/test_" + part] for part in ("marks", "epochs", "frees", "owner"))
DOUBT, WORK, GATED_TEST, CAPTURES_TEST, GRAPHS_TEST, MEMORY_TEST, QUICK_TEST, CONTEXTS_TEST = (
    ["tests/preload/test_" + part]
    for part in ("order_doubt", "work", "gated", "captures", "graphs", "memory", "quick", "contexts"))
EPOCHS = {which: [("tests/preload/preload_epochs " + which, "free_sync:event,wait_limit:0.1", "256MiB,hazard" + driver)]
          for which, driver in (("contexts", ""), ("streams", ",driver=12.4"), ("per_thread", ",driver=12.4"))}
FREE_WAITS = [("tests/preload/preload_free_waits", "free_sync:strict", "256MiB,count=2")]
GRAPHS_PROGRAM = [("tests/preload/preload_graphs", "free_sync:auto", "4GiB")]


def directed(rule, free_sync, schedule=",schedule=1"):
    return [("tests/hazard/directed " + rule, "free_sync:" + free_sync, "64MiB,hazard" + schedule)]


def far(rule):
    return [("tests/hazard/directed " + rule, "free_sync:auto", "64MiB,count=2,hazard,schedule=4")]


def shown(rule, schedule=",schedule=1"):
    return [("tests/hazard/shown " + rule, "free_sync:auto", "64MiB,hazard" + schedule)]


def told(rule, more=",schedule=1"):
    return [("tests/hazard/told " + rule, "free_sync:auto", "64MiB,hazard" + more)]


# Where parts of pages come to lie differs with who is ahead of whom, so a bug shows in some of these; one run takes
# 0.2 s.
PLAYED = [(f"tests/hazard/played caches {streams}", "free_sync:stream,reserve_slack:1.0",
           f"1GiB,hazard,run_ahead={ahead}")
          for ahead in (30, 300, 3, 10, 100) for streams in ("1", "3", "3 200", "2", "2 400")]

# Whether a context ends between a free's look at it and its wait is a matter of moments: a run without that takes
# 0.1 s.
ENDS_UNDER_FREES = [("tests/preload/preload_several ends", "free_sync:strict", "4GiB,count=2")] * 16


def bug(name, what, file, find, replace, kinds=("all",), tests=(), programs=(), times=1):
    return {"name": name, "what": what, "file": file, "find": find, "replace": replace, "kinds": list(kinds),
            "tests": list(tests), "programs": list(programs), "times": times}
