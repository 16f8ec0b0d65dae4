"""Tags of memory: what is allocated under one can leave the device, and come back."""
from __future__ import annotations

import contextlib

from . import _library

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any, Iterator

DISCARD = 1  # SEGALLOC_TAG_DISCARD
REASONS = {2: "the device or the host has no memory for it", 500: "nobody has used that tag", 600: "its work does not end",
           800: "others remember its pages", 801: "the library serves nothing here, or is checking itself",
           900: "a stream is being captured"}

_pools: dict[tuple[str, bool], Any] = {}


class PauseError(RuntimeError):
    """A tag that could not be paused, resumed or begun. `code`: the driver's number, 2 for a full card."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"segalloc: {what}: {REASONS.get(code, 'the driver has refused a call')} (CUDA error {code})")
        self.code = code


def _pool(library: _library.Library, tag: str, backup: bool) -> Any:
    """A pool for each tag, where PyTorch's own cache is on: it would mix tags otherwise."""
    import sys
    torch = sys.modules.get("torch")
    if torch is None or library.option("pytorch") != "beneath" or not hasattr(torch.cuda, "use_mem_pool"):
        return contextlib.nullcontext()
    if (tag, backup) not in _pools:
        _pools[tag, backup] = torch.cuda.MemPool()
    return torch.cuda.use_mem_pool(_pools[tag, backup])


@contextlib.contextmanager
def region(tag: str, backup: bool) -> Iterator[None]:
    library = _library.get()
    if library is None or not library.in_use():
        _library.warn_unless_loaded(stacklevel=5)
        yield
        return
    result = library.tag_push(tag, 0 if backup else DISCARD)
    if result:
        raise PauseError(f"region({tag!r})", result)
    try:
        with _pool(library, tag, backup):
            yield
    finally:
        library.tag_pop()


def order(tag: str | None, pause: bool) -> None:
    library = _library.get()
    if library is None:
        _library.warn_unless_loaded(stacklevel=4)
        return
    result = library.pause(tag) if pause else library.resume(tag)
    if result:
        what = "all tags" if tag is None else f"tag {tag!r}"
        raise PauseError(f"{what} can't be {'paused' if pause else 'resumed'}", result)
