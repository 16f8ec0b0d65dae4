"""Python imports this at its start where `segalloc run` with --torch or --sites put its folder first on PYTHONPATH: it
prepares for PyTorch, then gives way to the sitecustomize that Python would have found without it."""
import importlib.machinery
import importlib.util
import os
import sys


def _prepare():
    only_phases = os.environ.get("SEGALLOC_ONLY_PHASES")
    try:
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
