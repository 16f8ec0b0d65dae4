"""Runs something once torch.cuda.memory has been imported: then PyTorch's allocator can still be changed."""
import importlib.machinery
import sys

from . import _library

MODULE = "torch.cuda.memory"


class _Loader:
    """The module's own loader, and afterwards what is to be done."""

    def __init__(self, loader, after):
        self._loader = loader
        self._after = after

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._after(module)


class _Finder:
    def __init__(self, after):
        self._after = after

    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if isinstance(spec.loader, importlib.machinery.SourceFileLoader) or hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._after)
                return spec
        return None


def _after(module):
    from . import _torch
    _torch.take_over(module, _library.get())


def install():
    """Makes the library PyTorch's allocator, and PyTorch's memory functions ours, when PyTorch is imported. To be called
    before `import torch`. Returns whether that will be so: False where the library isn't loaded or hands everything on
    to the driver, or PyTorch is imported already."""
    library = _library.get()
    if library is None or not library.in_use() or MODULE in sys.modules:
        return False
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(_after))
    return True
