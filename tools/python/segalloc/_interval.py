"""Peaks from one report to the next, for trainers that log now and then."""
from typing import Dict, Optional

from . import _library
from ._watch import Watch

NAMES = ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "failures")


class Interval:
    """Figures of this process since the last ones were taken. Peaks are of the device where they are largest."""

    def __init__(self) -> None:
        self._watch: Optional[Watch] = None

    def begin(self) -> None:
        """Does nothing where it has begun. Without the library there is one warning, and no figure is ever given."""
        if self._watch is not None:
            return
        if _library.get() is None:
            _library.warn_unless_loaded(stacklevel=4)
            return
        self._watch = Watch()
        self._watch.__enter__()

    def take(self) -> Dict[str, int]:
        """The figures up to now; those that follow begin here. Empty where it has not begun."""
        ended, self._watch = self._watch, None
        if ended is None:
            return {}
        self.begin()  # first: between the two nothing is missed
        ended.__exit__(None, None, None)
        return {f"segalloc_{name}": getattr(ended, name) for name in NAMES}

    def end(self) -> Dict[str, int]:
        """The last figures."""
        figures = self.take()
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
            self._watch = None
        return figures
