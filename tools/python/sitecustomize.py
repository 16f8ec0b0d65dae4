"""Python imports this at its start where `segalloc run` with --torch, --sites or --sim put its folder first on PYTHONPATH: it
prepares for PyTorch, then gives way to the sitecustomize that Python would have found without it."""
import importlib.machinery
import importlib.util
import os
import sys


def _arguments():
    """Those of the interpreter itself: Python has them from 3.10 on."""
    if hasattr(sys, "orig_argv"):
        return sys.orig_argv[1:]
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(argument) for argument in file.read().split(b"\0")[1:-1]]


def _stand_in():
    """The simulated GPU needs stand-ins for CUDA's libraries, and they are those of one PyTorch. A script that has activated
    its environment has another than `segalloc run` looked at: this interpreter starts anew with that one's."""
    prepared, tool, sim = (os.environ.get(name) for name in ("SEGALLOC_STANDINS", "SEGALLOC_TOOL", "SEGALLOC_SIM"))
    if prepared is None or not tool or not sim or not sys.executable:
        return
    spec = importlib.util.find_spec("torch")
    site = os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else None
    if not site or site in (prepared, os.environ.get("SEGALLOC_STANDINS_TRIED")) or \
            not os.path.exists(os.path.join(site, "torch", "lib", "libtorch_cuda.so")):
        return
    os.environ["SEGALLOC_STANDINS_TRIED"] = site
    how = [] if "libsegalloc" in os.environ.get("LD_PRELOAD", "") else ["--no-preload"]
    how += [] if os.environ.get("SEGALLOC_SUMMARY") else ["--quiet"]
    os.execv(tool, [tool, "run", "--sim", sim, *how, "--", sys.executable, *_arguments()])


def _prepare():
    only_phases = os.environ.get("SEGALLOC_ONLY_PHASES")
    try:
        _stand_in()
        if os.environ.get("SEGALLOC_MEMORY_SAVER"):
            from segalloc import _memory_saver
            _memory_saver.prepare(os.environ["SEGALLOC_MEMORY_SAVER"])
        if only_phases == "none":
            return
        if os.environ.get("SEGALLOC_REHEARSAL"):
            from segalloc import _rehearsal
            _rehearsal.prepare()
        if only_phases:
            from segalloc import _hook
            _hook.follow_steps()
        else:
            import segalloc
            segalloc.install()
    except Exception as error:  # the program is to run in any case
        lost = "steps of optimizers are no phases" if only_phases else "PyTorch's memory functions stay as they are"
        sys.stderr.write(f"segalloc: {lost}: {error}\n")


def _give_way():
    # Another copy of this file may be on the path, which gives way too: each has its turn once.
    had = sys.__dict__.setdefault("_segalloc_gave_way", set())
    had.add(os.path.dirname(os.path.realpath(__file__)))
    others = [entry for entry in sys.path if os.path.realpath(entry or ".") not in had]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_prepare()
_give_way()
