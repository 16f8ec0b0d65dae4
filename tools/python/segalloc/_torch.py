"""PyTorch's allocator and memory functions, replaced by ours.

The functions of torch.cuda.memory and torch.accelerator stay PyTorch's own; what they call in torch._C is replaced.
"""
from __future__ import annotations

import functools
import os
import warnings

from . import _history, _hook, _statistics

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any

BENEATH = ("segalloc: %s needs PyTorch's own allocator, which --torch replaces in this PyTorch: run without "
           "--torch, or set SEGALLOC_CONF=pytorch:beneath")


def _beneath(what: str) -> RuntimeError:
    """The error for the program; and a word to `segalloc rehearse`, which runs the program once more without --torch."""
    note = os.environ.get("SEGALLOC_REHEARSAL_NEEDS")
    if note:
        try:
            with open(note, "a", encoding="utf-8") as file:
                file.write(f"{what}\n")
        except OSError:
            pass  # the rehearsal has ended before its program
    return RuntimeError(BENEATH % what)


class _Replaced:
    """Functions of torch._C that are replaced, until give_back()."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.originals: dict[str, Any] = {}

    def put(self, name: Any, function: Any) -> None:
        """Only what this version of PyTorch has is replaced."""
        original = getattr(self.module, name, None)
        if original is not None:
            self.originals[name] = original
            functools.update_wrapper(function, original, assigned=("__doc__",), updated=())
            setattr(self.module, name, function)

    def give_back(self) -> None:
        for name, original in self.originals.items():
            setattr(self.module, name, original)
        self.originals.clear()


class _Words:
    """Functions that take the place of torch._C's."""

    def __init__(self, library: Any, torch_cuda: Any) -> None:
        self.library = library
        self.cuda = torch_cuda
        self.counters = _statistics.Counters(library)
        self.history = _history.History(library)
        self.fractions: dict[int, float] = {}

    def devices(self) -> Any:
        return self.cuda.device_count()

    def index(self, device: Any) -> Any:
        return self.cuda.current_device() if device is None or device < 0 else device

    def empty_cache(self, *_: Any) -> None:
        self.library.empty_cache()

    def stats(self, device: Any = None) -> Any:
        return _statistics.nested(self.counters, self.index(device))

    def reset_accumulated(self, device: Any = None) -> None:
        self.counters.reset(self.index(device))

    def reset_peak(self, device: Any = None) -> None:
        self.library.reset_peaks(self.index(device))

    def snapshot(self, which: Any = None) -> Any:
        if which is not None and tuple(which[:2]) != (0, 0):
            raise _beneath("a snapshot of one pool")
        return self.history.add_to(_statistics.snapshot(self.library, self.devices()))

    def set_fraction(self, fraction: Any, device: Any = None) -> None:
        device = self.index(device)
        self.library.memory_fraction(fraction, device)
        self.fractions[device] = fraction

    def get_fraction(self, device: Any = None) -> Any:
        return self.fractions.get(self.index(device), 1.0)

    def memory_info(self, device: Any = None) -> Any:
        return self.cuda.mem_get_info(self.index(device))

    def compiled_graph(self, *_: Any) -> None:
        raise _beneath("a CUDA graph of torch.compile")

    def no_observer(self, *_: Any, **__: Any) -> None:
        warnings.warn("segalloc: an observer of running out is not called; segalloc says itself what holds the memory",
                      stacklevel=3)

    def table(self) -> Any:
        return {
            "_cuda_emptyCache": self.empty_cache,
            "_cuda_memoryStats": self.stats,
            "_cuda_resetAccumulatedMemoryStats": self.reset_accumulated,
            "_cuda_resetPeakMemoryStats": self.reset_peak,
            "_cuda_memorySnapshot": self.snapshot,
            "_cuda_checkPoolLiveAllocations": self.compiled_graph,
            "_cuda_setMemoryFraction": self.set_fraction,
            "_cuda_getMemoryFraction": self.get_fraction,
            "_cuda_record_memory_history": self.history.record,
            "_cuda_record_memory_history_legacy": self.history.legacy,
            "_cuda_attach_out_of_memory_observer": self.no_observer,
            "_accelerator_isAllocatorInitialized": self.cuda.is_initialized,
            "_accelerator_emptyCache": self.empty_cache,
            "_accelerator_getDeviceStats": self.stats,
            "_accelerator_resetAccumulatedStats": self.reset_accumulated,
            "_accelerator_resetPeakStats": self.reset_peak,
            "_accelerator_getMemoryInfo": self.memory_info,
        }


class _Cuda:
    """torch.cuda, which is still being imported when torch.cuda.memory is done."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: Any) -> Any:
        def call(*arguments: Any) -> Any:
            return getattr(self._torch.cuda, name)(*arguments)
        return call


def _hooks(library: Any, allocator: Any) -> None:
    """The optional hooks of the pluggable allocator, as far as this PyTorch and this library have them."""
    for setter, name in (("set_reset_fn", "segalloc_torch_reset"),
                         ("set_memory_fraction_fn", "segalloc_torch_memory_fraction"),
                         ("set_base_alloc_fn", "segalloc_torch_base"),
                         ("set_record_stream_fn", "segalloc_torch_record_stream")):
        address = library.address(name)
        if address is not None and hasattr(allocator, setter):
            getattr(allocator, setter)(address)
            if setter == "set_record_stream_fn":
                library.calls.segalloc_torch_record_stream(None, None)  # says that it is set


def _no_pool(self: Any, *_: Any, **__: Any) -> None:
    raise _beneath("torch.cuda.MemPool")


class _MemPool:
    """A stand-in for pools, where PyTorch has none of its own."""


def _older_nccl(distributed: Any) -> None:
    """The newer of PyTorch's two NCCL backends asks the allocator for a snapshot at its end, and where that is a
    pluggable one the process ends with it. So "nccl" means the other one, which PyTorch has as "nccl-legacy"."""
    older = getattr(distributed, "_register_builtin_nccl_as_legacy", None)
    if older is not None:
        distributed._register_builtin_nccl_backend = older


def take_over(memory: Any, library: Any) -> None:
    """`memory`: torch.cuda.memory, just imported. Does nothing with a PyTorch that has no CUDA."""
    binding = memory.torch._C
    if library is None or not hasattr(binding, "_cuda_customAllocator"):
        return
    if library.option("pytorch") == "beneath":
        _empty_both(binding, library)
        return
    if library.answers():
        _speak_of_both(memory, library)
        return
    if not library.raises():
        _empty_both(binding, library)
        return
    allocator = memory.CUDAPluggableAllocator(library.path, "segalloc_torch_malloc", "segalloc_torch_free")
    _hooks(library, allocator.allocator())
    try:
        memory.change_current_allocator(allocator)
    except RuntimeError as error:
        warnings.warn(f"segalloc: PyTorch's allocator could not be changed: {error}", stacklevel=2)
        return
    _hook.after_import("torch.distributed.distributed_c10d", _older_nccl)
    replaced = _Replaced(binding)
    for name, function in _Words(library, _Cuda(memory.torch)).table().items():
        replaced.put(name, _plain(function))
    pool: Any = getattr(memory, "MemPool", None) or _MemPool  # from PyTorch 2.5 on
    own_pool = pool.__init__
    pool.__init__ = _no_pool
    memory._segalloc = allocator  # lives as long as the module
    own_change = memory.change_current_allocator

    @functools.wraps(own_change)
    def change_current_allocator(other: Any) -> None:
        """A script that has an allocator of its own gets it, and PyTorch's own functions with it."""
        own_change(other)
        replaced.give_back()
        pool.__init__ = own_pool
        memory.change_current_allocator = own_change

    memory.change_current_allocator = change_current_allocator


def _speak_of_both(memory: Any, library: Any) -> None:
    """PyTorch's own allocator stays, with its pools and all that it is told: it hands tensors on to the library and says
    so in its statistics. Beside that are the library's own, and a history of what it serves."""
    binding = memory.torch._C
    replaced = _Replaced(binding)
    history = _history.History(library)

    def named(own: Any) -> Any:
        def stats(device: Any = None, *more: Any) -> Any:
            result = own(device, *more)
            result["segalloc"] = {name: value for name, (value, _) in library.stats(device or 0).items()}
            return result
        return stats

    for name in ("_cuda_memoryStats", "_accelerator_getDeviceStats"):
        own_stats = getattr(binding, name, None)
        if own_stats is not None:
            replaced.put(name, named(own_stats))
    own_snapshot, own_empty = binding._cuda_memorySnapshot, binding._cuda_emptyCache

    def snapshot(*which: Any) -> Any:
        return history.add_to(own_snapshot(*which))

    def empty_cache(*arguments: Any) -> None:
        own_empty(*arguments)
        library.empty_cache()

    replaced.put("_cuda_memorySnapshot", snapshot)
    replaced.put("_cuda_emptyCache", empty_cache)
    replaced.put("_cuda_record_memory_history", _plain(history.record))
    replaced.put("_cuda_record_memory_history_legacy", _plain(history.legacy))
    own_change = memory.change_current_allocator

    @functools.wraps(own_change)
    def change_current_allocator(other: Any) -> None:
        """A script that has an allocator of its own gets PyTorch's own functions with it."""
        own_change(other)
        replaced.give_back()
        memory.change_current_allocator = own_change

    memory.change_current_allocator = change_current_allocator


def _plain(method: Any) -> Any:
    """A function that takes attributes, which a bound method does not."""
    def call(*arguments: Any, **named: Any) -> Any:
        return method(*arguments, **named)
    return call


def _empty_both(binding: Any, library: Any) -> None:
    """In the mode beneath PyTorch's words are right as they are; only what lies below its cache has to go as well."""
    own = binding._cuda_emptyCache

    def empty_cache(*arguments: Any) -> None:
        own(*arguments)
        library.empty_cache()

    _Replaced(binding).put("_cuda_emptyCache", empty_cache)
