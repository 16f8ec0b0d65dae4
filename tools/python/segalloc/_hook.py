"""Runs something once a module has been imported: after torch.cuda.memory, PyTorch's allocator can still be changed."""
from __future__ import annotations

import importlib.machinery
import sys

from . import _library

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any, Callable

MODULE = "torch.cuda.memory"


class _Loader:
    """The module's own loader, and afterwards what is to be done."""

    def __init__(self, loader: Any, after: Callable[[Any], None]) -> None:
        self._loader = loader
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._after(module)


class _Finder:
    """Finds one module as it would have been found, with something to be done afterwards."""

    def __init__(self, module: str, after: Callable[[Any], None]) -> None:
        self.module = module
        self.after = after

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.module:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if isinstance(spec.loader, importlib.machinery.SourceFileLoader) or hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self.after)
                return spec
        return None


def after_import(module: str, after: Callable[[Any], None]) -> None:
    """Calls after(module) once the module of that name has been imported: at once where it is there already."""
    present = sys.modules.get(module)
    if present is not None:
        after(present)
    elif not any(isinstance(finder, _Finder) and finder.module == module for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(module, after))


def _take_over(memory: Any) -> None:
    from . import _torch
    _torch.take_over(memory, _library.get())


def _follow(optimizers: Any) -> None:
    from . import _phases
    _phases.follow(optimizers, _library.get())


def install() -> bool:
    """Makes the library PyTorch's allocator, and PyTorch's memory functions ours, when PyTorch is imported. To be
    called before `import torch`. Returns whether that will be so: False where the library isn't loaded or hands
    everything on to the driver, or PyTorch is imported already."""
    library = _library.get()
    if library is None or not library.in_use() or MODULE in sys.modules:
        return False
    after_import(MODULE, _take_over)
    follow_steps()
    return True


def follow_steps() -> None:
    """Where places are noted, makes the steps of PyTorch's optimizers phases, and leaves the rest of PyTorch as it is."""
    library = _library.get()
    if library is not None and library.in_use() and library.option("sites") == "True":
        after_import("torch.optim.optimizer", _follow)
