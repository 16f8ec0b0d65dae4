"""libsegalloc.so for Python programs, and PyTorch's own memory functions over it.

`segalloc run --torch -- python train.py` loads this by itself and leaves the script as it is. A program that knows of
it calls install() before it imports torch. Where the library isn't loaded, nothing here does anything: statistics are 0, and
one warning says how it is loaded.
"""
import contextlib

from . import _library
from ._hook import install

TYPE_CHECKING = False  # typing is slow to import, and every Python under `segalloc run --torch` imports this
if TYPE_CHECKING:
    import os
    from typing import Any, Iterator, Optional, Union

    from ._fields import Stats
    from ._library import Device
    from ._pause import Backup, PauseError
    from ._watch import DeviceWatch, Site, Watch

    __version__: str

__all__ = ["DeviceWatch", "PauseError", "Site", "Stats", "Watch", "backup_folder", "install", "loaded", "mark", "pause", "phase", "region",
           "reset_peaks", "resume", "set_limit", "stats", "trim", "version", "watch"]


def loaded() -> bool:
    """True if libsegalloc.so is in this process."""
    return _library.get() is not None


def version() -> "Optional[str]":
    """The library's version, None where it isn't loaded. `segalloc.__version__` is the package's."""
    library = _library.get()
    return library.version() if library else None


def stats(device: "Device" = None) -> "Stats":
    """A consistent snapshot of a device's statistics as named fields: `segalloc.stats().peak_reserved_bytes`.

    `device`: CUDA's number, "cuda:1", or a torch.device; None is the device of the calling thread. All fields are 0 where nothing
    was allocated on it."""
    from ._fields import Stats
    library = _library.get()
    if library is None:
        _library.warn_unless_loaded(stacklevel=3)
        return Stats()
    return _named(library.stats(library.number(device)))


def _named(table: "dict[str, tuple[int, int]]") -> "Stats":
    """A library newer than this package has statistics that are not named here."""
    from ._fields import Stats
    values = {name: value for name, (value, _) in table.items() if name in Stats._fields}
    values.update({"peak_" + name: peak for name, (_, peak) in table.items() if "peak_" + name in Stats._fields})
    return Stats(**values)


def watch() -> "Watch":
    """Peaks within a block of code, for each device and by the place that asked; outside of blocks it costs nothing.

        with segalloc.watch() as w:
            step()
        print(w.peak_reserved_bytes, w.failures, w.sites()[:5])

    Blocks may be nested. segalloc.reset_peaks() and PyTorch's resets of peaks change nothing in them."""
    from ._watch import Watch
    return Watch()


def trim(device: "Device" = None, keep: int = 0) -> int:
    """Gives idle memory of a device, or of all, back to the driver but for `keep` bytes; returns how many bytes."""
    library = _library.get()
    return library.trim(None if device is None else library.number(device), keep) if library else 0


def set_limit(bytes: int, device: "Device" = None) -> int:
    """At most `bytes` may be held on a device from here on, that of the calling thread unless it is named. 0: all of it.
    Returns what is in force."""
    library = _library.get()
    return library.set_limit(library.number(device), bytes) if library else 0


def reset_peaks(device: "Device" = None) -> None:
    """Peaks of a device, that of the calling thread unless it is named, begin again at the present values."""
    library = _library.get()
    if library:
        library.reset_peaks(library.number(device))


def mark(name: "Optional[str]" = None) -> None:
    """Names the part of the program that begins here, such as "step 12"; None ends it. For traces with `sites`."""
    library = _library.get()
    if library:
        library.mark(name)


@contextlib.contextmanager
def phase(name: str) -> "Iterator[None]":
    """Names this thread's work within the block: `with segalloc.phase("eval"):`, or a decorator. Traces with `sites`
    have the name, and so has the report on running out of memory."""
    library = _library.get()
    if library:
        library.push(name)
    try:
        yield
    finally:
        if library:
            library.pop()


@contextlib.contextmanager
def region(tag: str, backup: "Backup" = True) -> "Iterator[None]":
    """Gives a tag to all that this thread allocates within the block: `with segalloc.region("kv", backup=False):`. pause()
    and resume() name it. Without `backup` a pause saves no contents, and zeros come back; "file" saves them in files.

    It stands on pages of its own. Regions may be nested; the innermost counts. Outside of the library nothing happens."""
    from . import _pause
    with _pause.region(tag, backup):
        yield


def backup_folder(path: "Union[str, os.PathLike[str]]", staging: int = 0) -> None:
    """The folder for contents of regions with backup="file" that are paused from here on; TMPDIR or /tmp at first.
    `staging`: bytes of host memory by which they go there, 0 for 256 MiB."""
    from . import _pause
    _pause.folder(path, staging)


def pause(tag: "Optional[str]" = None, backup: bool = True) -> None:
    """Memory of a tag, or of all tags, leaves the device; contents are kept as its regions say, or with backup=False not.
    Its tensors keep their addresses, and must not be used before resume(). PauseError says why it can't be done, and nothing has changed then."""
    from . import _pause
    _pause.order(tag, pause=True, backup=backup)


def resume(tag: "Optional[str]" = None) -> None:
    """Brings it back. PauseError with `code` 2: the card is full; the tag stays paused, and resume() can be called again."""
    from . import _pause
    _pause.order(tag, pause=False)


def load_ipython_extension(shell: "Any") -> None:
    """`%load_ext segalloc` in IPython and Jupyter: `%%segalloc` reports the peak of a cell."""
    from . import _magic
    _magic.load(shell)


def __getattr__(name: str) -> "Any":
    """Classes whose modules take long to import."""
    if name in ("DeviceWatch", "Site", "Watch"):
        from . import _watch
        return getattr(_watch, name)
    if name == "PauseError":
        from ._pause import PauseError
        return PauseError
    if name == "Stats":
        from ._fields import Stats
        return Stats
    if name == "__version__":
        from ._fields import VERSION
        return VERSION
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
