"""libsegalloc.so for Python programs, and PyTorch's own memory functions over it.

`segalloc run --torch -- python train.py` loads this by itself and leaves the script as it is. A program that knows of
it calls install() before it imports torch. Where the library isn't loaded, nothing here does anything.
"""
import contextlib

from . import _library
from ._hook import install

__all__ = ["install", "loaded", "mark", "phase", "reset_peaks", "set_limit", "stats", "trim", "version"]


def loaded():
    """Whether libsegalloc.so is in this process."""
    return _library.get() is not None


def version():
    """The library's version, None where it isn't loaded."""
    library = _library.get()
    return library and library.version()


def stats(device=0):
    """{name: (value, peak)} of a device, names as in `segalloc report --json`; empty where nothing was allocated."""
    library = _library.get()
    return library.stats(device) if library else {}


def trim(device=None, keep=0):
    """Gives idle memory of a device, or of all, back to the driver but for `keep` bytes; returns how many bytes."""
    library = _library.get()
    return library.trim(device, keep) if library else 0


def set_limit(bytes, device=0):
    """At most `bytes` may be held on a device from here on. Returns what is in force."""
    library = _library.get()
    return library.set_limit(device, bytes) if library else 0


def reset_peaks(device=0):
    """Peaks of a device begin again at the present values."""
    library = _library.get()
    if library:
        library.reset_peaks(device)


def mark(name=None):
    """What the program is doing from here on, such as "step 12"; None ends that. For traces with `sites`."""
    library = _library.get()
    if library:
        library.mark(name)


@contextlib.contextmanager
def phase(name):
    """What this thread is doing within the block: `with segalloc.phase("eval"):`, or a decorator. For traces with
    `sites`, and for what running out prints."""
    library = _library.get()
    if library:
        library.push(name)
    try:
        yield
    finally:
        if library:
            library.pop()
