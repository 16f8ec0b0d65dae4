"""torch_memory_saver over segalloc: its Python module stays as it is installed, and gets our library for its own.

`segalloc run --memory-saver` puts that library into LD_PRELOAD, where its hook mode "preload" looks, and names it in
SEGALLOC_MEMORY_SAVER. For example, region("kv") there becomes the tag "kv", and pause("kv") segalloc_pause("kv")."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pathlib

from . import _hook

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator


def _is_preloaded(path: str) -> bool:
    return path in os.environ.get("LD_PRELOAD", "").split(":")


def _name_library(utils: Any, library: str) -> None:
    """Its own libraries, as they are installed, have ours in their place. One that is found elsewhere stays what it is."""
    natively, package = utils.get_binary_path_from_package, pathlib.Path(utils.__file__).parent

    def get_binary_path_from_package(stem: str) -> pathlib.Path:
        if pathlib.Path(utils.__file__).parent != package:
            found: pathlib.Path = natively(stem)
            return found
        return pathlib.Path(library)
    utils.get_binary_path_from_package = functools.wraps(natively)(get_binary_path_from_package)


class _Calls(ctypes.CDLL):
    """Its own library is linked with CUDA's runtime, whose functions are called by it too. Ours is not: they are found in
    the process."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not name.startswith("cu"):
                raise
            return getattr(_runtime(), name)


@functools.lru_cache(maxsize=None)
def _runtime() -> ctypes.CDLL:
    """The runtime that PyTorch has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line[line.find("/"):].rstrip("\n") for line in maps if "/libcudart" in line}
    for path in sorted(paths):
        return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    return ctypes.CDLL(None)


def _call_runtime(wrapper: Any) -> None:
    natively = wrapper.BinaryWrapper.__init__

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        natively(self, *arguments, **named)
        self.cdll.__class__ = _Calls
    wrapper.BinaryWrapper.__init__ = functools.wraps(natively)(__init__)


def _keep_one_entry(preload: Any) -> None:
    """A child has the library already: a second entry in LD_PRELOAD is refused there."""
    natively = preload.configure_subprocess

    @contextlib.contextmanager
    def configure_subprocess() -> Iterator[None]:
        library = str(preload.get_binary_path_from_package("torch_memory_saver_hook_mode_preload"))
        with contextlib.nullcontext() if _is_preloaded(library) else natively():
            yield
    preload.configure_subprocess = functools.wraps(natively)(configure_subprocess)


def _raise_errors(entrypoint: Any) -> None:
    """An order that could not be carried out is an error, and no end of the process. Expandable segments are fine."""
    from . import _pause
    implementation = entrypoint._TorchMemorySaverImpl

    def order(natively: Callable[..., None], pause: bool) -> Callable[..., None]:
        @functools.wraps(natively)
        def carry_out(self: Any, tag: str | None) -> None:
            name = "pause" if pause else "resume"
            call = getattr(self._binary_wrapper.cdll, f"tms_{name}")
            result = call(tag.encode() if tag else None)
            if result:
                raise _pause.PauseError(f"torch_memory_saver.{name}({tag!r})", result)
        return carry_out
    implementation.pause = order(implementation.pause, True)
    implementation.resume = order(implementation.resume, False)
    entrypoint._sanity_checks = lambda: None


def prepare(library: str) -> None:
    """To be called before torch_memory_saver is imported. `library`: what stands for its own."""
    if not _is_preloaded(library):
        return
    _hook.after_import("torch_memory_saver.utils", lambda module: _name_library(module, library))
    _hook.after_import("torch_memory_saver.hooks.mode_preload", _keep_one_entry)
    _hook.after_import("torch_memory_saver.binary_wrapper", _call_runtime)
    _hook.after_import("torch_memory_saver.entrypoint", _raise_errors)
