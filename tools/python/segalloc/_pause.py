"""Tags of memory: what is allocated under one can leave the device, and come back."""
from __future__ import annotations

import contextlib
import os

from . import _library

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any, Iterator, Literal, Union

    Backup = Union[bool, Literal["file"]]

NOBODY = 500  # no such tag
FLAGS = {True: 0, False: 1, "file": 2}  # SEGALLOC_TAG_DISCARD, SEGALLOC_TAG_FILE
REASONS = {1: "that is no name", 2: "the device, the host or the disk has no room for it",
           304: "the folder for its contents can't be used", NOBODY: "nobody has used that tag", 600: "its work does not end",
           800: "others remember its pages", 801: "the library serves nothing here, or is checking itself",
           900: "a stream is being captured"}

_pools: dict[tuple[str, Backup], Any] = {}


class PauseError(RuntimeError):
    """A tag that could not be paused, resumed or begun. `code`: the driver's number, 2 for a full card."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"segalloc: {what}: {REASONS.get(code, 'the driver has refused a call')} (CUDA error {code})")
        self.code = code


def _pool(library: _library.Library, tag: str, backup: Backup) -> Any:
    """A pool for each tag, where PyTorch's own cache is on: it would mix tags otherwise."""
    import sys
    torch = sys.modules.get("torch")
    if torch is None or library.option("pytorch") != "beneath" or not hasattr(torch.cuda, "use_mem_pool"):
        return contextlib.nullcontext()
    if (tag, backup) not in _pools:
        _pools[tag, backup] = torch.cuda.MemPool()
    return torch.cuda.use_mem_pool(_pools[tag, backup])


@contextlib.contextmanager
def region(tag: str, backup: Backup) -> Iterator[None]:
    if backup not in FLAGS:
        raise ValueError(f"segalloc: backup is True, False or 'file', not {backup!r}")
    library = _library.get()
    if library is None or not library.in_use():
        _library.warn_unless_loaded(stacklevel=5)
        yield
        return
    result = library.tag_push(tag, FLAGS[backup])
    if result:
        raise PauseError(f"region({tag!r})", result)
    try:
        with _pool(library, tag, backup):
            yield
    finally:
        library.tag_pop()


def folder(path: str | os.PathLike[str], staging: int) -> None:
    library = _library.get()
    result = library.backup_folder(path, staging) if library else 0
    if result and library and library.in_use():
        raise PauseError(f"backup_folder({path!r})", result)


def order(tag: str | None, pause: bool, backup: bool = True) -> None:
    library = _library.get()
    if library is None:
        _library.warn_unless_loaded(stacklevel=4)
        return
    result = library.resume(tag) if not pause else library.pause(tag) if backup else library.discard(tag)
    if result:
        what = "all tags" if tag is None else f"tag {tag!r}"
        raise PauseError(f"{what} can't be {'paused' if pause else 'resumed'}", result)
