"""As much of PyTorch as decides whether the module's hook works: the same modules, imported in the same order, over a
torch._C that calls the allocator in force. Names: PyTorch 2.11."""
from torch import _C  # noqa: F401
from torch import accelerator, cuda  # noqa: F401


class OutOfMemoryError(RuntimeError):
    pass
