"""The library that this process has loaded, by ctypes. It is never loaded from here."""
from __future__ import annotations

import ctypes
import operator
import os

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any, Optional, SupportsIndex, Union

    Device = Optional[Union[SupportsIndex, str, Any]]  # a number, a name such as "cuda:1", a torch.device; None: the present one

ALLOCATED, PENDING, FREE = 1, 2, 3
DEVICES = 64


class _Stat(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("unit", ctypes.c_char_p), ("value", ctypes.c_uint64),
                ("peak", ctypes.c_uint64)]


class Piece(ctypes.Structure):
    """struct segalloc_piece."""
    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("requested", ctypes.c_uint64),
                ("stream", ctypes.c_uint64), ("state", ctypes.c_uint32), ("small", ctypes.c_uint32)]


def _path() -> str | None:
    """The file that is mapped into this process, None where there is none."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                at = line.find("/")
                name = line[at:].rstrip("\n") if at >= 0 else ""
                if os.path.basename(name).startswith("libsegalloc.so"):
                    return name
    except OSError:
        pass
    return None


class Library:
    """The calls of the public interface (segalloc.h) that are used here."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        declare = self._declare
        declare("segalloc_version", ctypes.c_char_p)
        declare("segalloc_in_use", ctypes.c_int)
        declare("segalloc_trim", ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t)
        declare("segalloc_stats", ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Stat), ctypes.c_int)
        declare("segalloc_take_peaks", ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Stat), ctypes.c_int)
        declare("segalloc_reset_peaks", None, ctypes.c_int)
        declare("segalloc_set_limit", ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t)
        declare("segalloc_pieces", ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(Piece), ctypes.c_size_t)
        declare("segalloc_option", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
        declare("segalloc_record", ctypes.c_char_p, ctypes.c_char_p)
        declare("segalloc_mark", None, ctypes.c_char_p)
        declare("segalloc_phase_push", None, ctypes.c_char_p)
        declare("segalloc_phase_pop", None)
        declare("segalloc_tag_push", ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        declare("segalloc_tag_pop", ctypes.c_int)
        declare("segalloc_pause", ctypes.c_int, ctypes.c_char_p)
        declare("segalloc_resume", ctypes.c_int, ctypes.c_char_p)
        declare("segalloc_discard", ctypes.c_int, ctypes.c_char_p)
        declare("segalloc_tag_bytes", ctypes.c_size_t, ctypes.c_char_p)
        declare("segalloc_backup_folder", ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
        declare("segalloc_torch_reset", None)
        declare("segalloc_torch_raises", ctypes.c_int)
        declare("segalloc_torch_answers", ctypes.c_int)
        declare("segalloc_torch_memory_fraction", None, ctypes.c_double, ctypes.c_int)

    def _declare(self, name: str, result: Any, *arguments: Any) -> None:
        function = getattr(self.calls, name)
        function.restype = result
        function.argtypes = arguments

    def address(self, name: str) -> int | None:
        """The address of an exported function, None where this library has no such one."""
        function = getattr(self.calls, name, None)
        return ctypes.cast(function, ctypes.c_void_p).value if function is not None else None

    def version(self) -> str:
        return str(self.calls.segalloc_version().decode())

    def in_use(self) -> bool:
        return bool(self.calls.segalloc_in_use())

    def option(self, name: str) -> str:
        size = self.calls.segalloc_option(name.encode(), None, 0)
        value = ctypes.create_string_buffer(size + 1)
        self.calls.segalloc_option(name.encode(), value, size + 1)
        return value.value.decode(errors="replace")

    def _read(self, call: Any, device: int) -> dict[str, tuple[int, int]]:
        count = self.calls.segalloc_stats(device, None, 0)
        table = (_Stat * count)()
        if count == 0 or call(device, table, count) == 0:
            return {}
        return {entry.name.decode(): (entry.value, entry.peak) for entry in table}

    def stats(self, device: int) -> dict[str, tuple[int, int]]:
        """{name: (value, peak)}, empty where nothing was allocated on the device."""
        return self._read(self.calls.segalloc_stats, device)

    def take_peaks(self, device: int) -> dict[str, tuple[int, int]]:
        """The same, with the peaks since this was last called. For _watch.py alone: there is one such reader."""
        return self._read(self.calls.segalloc_take_peaks, device)

    def current_device(self) -> int:
        """The device of the calling thread's context, 0 where it has none."""
        device = ctypes.c_int(0)
        try:
            ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW).cuCtxGetDevice(ctypes.byref(device))
        except (OSError, AttributeError):
            return 0
        return max(device.value, 0)

    def number(self, device: Device) -> int:
        """CUDA's number of a device."""
        index = getattr(device, "index", None) if getattr(device, "type", None) == "cuda" else device
        if isinstance(index, str):
            kind, _, rest = index.partition(":")
            if kind != "cuda" or not (rest.isdigit() or index == "cuda"):
                raise ValueError(f"segalloc: {device!r} names no CUDA device; cuda:0 does")
            index = int(rest) if rest else None
        try:
            return self.current_device() if index is None else operator.index(index)
        except TypeError:
            raise TypeError(f"segalloc: a device is a number, a name such as cuda:0, or a torch.device, not {device!r}") from None

    def pieces(self, device: int) -> list[Piece]:
        room = 0
        while True:
            table = (Piece * room)()
            count = self.calls.segalloc_pieces(device, table, room)
            if count <= room:
                return table[:count]
            room = count + count // 8 + 64  # other threads go on

    def trim(self, device: int | None, keep: int = 0) -> int:
        devices = range(DEVICES) if device is None else [device]
        return sum(self.calls.segalloc_trim(each, keep) for each in devices)

    def set_limit(self, device: int, count: int) -> int:
        return int(self.calls.segalloc_set_limit(device, count))

    def reset_peaks(self, device: int) -> None:
        self.calls.segalloc_reset_peaks(device)

    def record(self, path: str) -> str | None:
        """Begins a trace; its path, None where it is too late for that."""
        reply = self.calls.segalloc_record(os.fsencode(path))
        return os.fsdecode(reply) if reply is not None else None

    def recorded(self) -> str | None:
        """The path of the trace that is written, with the places that ask for memory; None."""
        reply = self.calls.segalloc_record(None)
        return os.fsdecode(reply) if reply is not None else None

    def mark(self, name: str | None) -> None:
        self.calls.segalloc_mark(None if name is None else str(name).encode())

    def push(self, name: str) -> None:
        self.calls.segalloc_phase_push(str(name).encode())

    def pop(self) -> None:
        self.calls.segalloc_phase_pop()

    def tag_push(self, tag: str, flags: int) -> int:
        return int(self.calls.segalloc_tag_push(str(tag).encode(), flags))

    def tag_pop(self) -> int:
        return int(self.calls.segalloc_tag_pop())

    def pause(self, tag: str | None) -> int:
        return int(self.calls.segalloc_pause(None if tag is None else str(tag).encode()))

    def resume(self, tag: str | None) -> int:
        return int(self.calls.segalloc_resume(None if tag is None else str(tag).encode()))

    def discard(self, tag: str | None) -> int:
        return int(self.calls.segalloc_discard(None if tag is None else str(tag).encode()))

    def tag_bytes(self, tag: str | None) -> int:
        return int(self.calls.segalloc_tag_bytes(None if tag is None else str(tag).encode()))

    def backup_folder(self, folder: str | os.PathLike[str], staging: int) -> int:
        return int(self.calls.segalloc_backup_folder(os.fsencode(folder), staging))

    def empty_cache(self) -> None:
        self.calls.segalloc_torch_reset()

    def raises(self) -> bool:
        """True if running out can be PyTorch's error under a pluggable allocator."""
        return bool(self.calls.segalloc_torch_raises())

    def answers(self) -> bool:
        """True if PyTorch's own allocator serves tensors from the library, and its statistics and snapshots say so."""
        return bool(self.calls.segalloc_torch_answers())

    def memory_fraction(self, fraction: float, device: int) -> None:
        self.calls.segalloc_torch_memory_fraction(fraction, device)


_found: Library | None = None


def get() -> Library | None:
    """The Library; None where none is loaded, or one too old to have all of it."""
    global _found
    if _found is None:
        path = _path()
        if path is None:
            return None
        try:
            _found = Library(path)
        except (OSError, AttributeError):
            return None
    return _found


NOT_LOADED = ("libsegalloc.so is not in this process, so segalloc's figures are 0: start the program with "
              "`segalloc run -- python …`, or name the library in LD_PRELOAD")
_warned = False


def warn_unless_loaded(stacklevel: int) -> None:
    """Says once in a process that there is nothing to report."""
    global _warned
    if not _warned:
        import warnings
        _warned = True
        warnings.warn(NOT_LOADED, stacklevel=stacklevel)
