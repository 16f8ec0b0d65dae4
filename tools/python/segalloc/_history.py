"""PyTorch's history of memory: each allocation and free with its stack, from a trace of this process."""
from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import tempfile
import warnings

from . import _tool

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any

LATE = ("segalloc: PyTorch's history of memory is not kept, for memory was allocated before it was asked for; "
        "`segalloc run --torch --sites -o TRACE` records every event")


class History:
    """The history that _record_memory_history() begins and a snapshot shows."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.kept = False
        self.most: int | None = None
        self.before: list[int] = []  # events of each device that came before it was begun

    def record(self, enabled: Any = 'all', _context: Any = None, _stacks: Any = None, most: Any = None, *_: Any,
               **named: Any) -> None:
        """In place of torch._C._cuda_record_memory_history."""
        if enabled in (None, False):
            self.kept = False
            return
        was_recorded = self.library.recorded() is not None
        if not was_recorded and not self._begin():
            warnings.warn(LATE, stacklevel=4)
            return
        self.most = most if isinstance(most, int) else named.get("max_entries")
        if not self.kept:
            self.before = [len(events) for events in self._read()["device_traces"]] if was_recorded else []
        self.kept = True

    def legacy(self, enabled: Any, *_: Any, **__: Any) -> None:
        self.record(enabled)

    def _begin(self) -> bool:
        """The trace is a file of this process alone, and goes with it. Python has no say in a death by a signal."""
        file, path = tempfile.mkstemp(prefix=f"segalloc-history-{os.getpid()}-", suffix=".trace")
        os.close(file)
        os.unlink(path)
        if not self.library.record(path):
            return False
        owner = os.getpid()

        def remove() -> None:
            if os.getpid() == owner:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

        atexit.register(remove)
        return True

    def _read(self) -> Any:
        nothing: dict[str, Any] = {"device_traces": [], "segments": []}
        trace = self.library.recorded()
        reply = _tool.run("trace", "export", trace, "--to", "end", "-o", "-") if trace else None
        return pickle.loads(reply) if reply else nothing

    def add_to(self, snapshot: Any) -> Any:
        """Puts events and stacks into a snapshot."""
        if not self.kept:
            return snapshot
        reply = self._read()
        for device, events in enumerate(reply["device_traces"][:len(snapshot["device_traces"])]):
            events = events[self.before[device] if device < len(self.before) else 0:]
            snapshot["device_traces"][device] = events[-self.most:] if self.most else events
        frames = {block["address"]: block["frames"] for segment in reply["segments"] for block in segment["blocks"]
                  if block["state"] == "active_allocated"}
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    block["frames"] = frames.get(block["address"], [])
        return snapshot
