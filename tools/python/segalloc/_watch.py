"""Peaks of a block of code: `with segalloc.watch() as w:`.

The library keeps one peak for this module, which begins again where a block begins or ends. Every block that is open takes
the larger of its own and that one, so blocks may be nested and may overlap on several threads.
"""
import json
import threading
import warnings
from types import TracebackType
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Type

from . import _library, _tool

PEAKS = ("requested_bytes", "allocated_bytes", "reserved_bytes")
NO_SITES = ("segalloc: where memory was asked for is not known: that needs a trace with places, "
            "as of `segalloc run --sites -o TRACE -- python …`")
NO_TOOL = "segalloc: where memory was asked for is in the trace, and the command-line tool that reads it is not installed"

_lock = threading.RLock()
_open: List["Watch"] = []


class DeviceWatch(NamedTuple):
    """Figures of one device within a block."""

    device: int
    """CUDA's number of the device"""
    peak_requested_bytes: int
    """the most that the program had asked for at once, what it held before the block included"""
    peak_allocated_bytes: int
    """requested, after rounding up"""
    peak_reserved_bytes: int
    """the most physical memory held at once"""
    begin_requested_bytes: int
    """asked for and not freed when the block began"""
    end_requested_bytes: int
    """the same at its end, or now while it runs"""
    allocations: int
    """allocations that the library served"""
    failures: int
    """allocations that failed for want of memory"""


class Site(NamedTuple):
    """Memory that one place in the program held at the peak of a block."""

    device: int
    """CUDA's number of the device"""
    site: Optional[str]
    """the line of Python or the code that asked, such as "train.py:57 in forward"; None: unknown"""
    phase: Optional[str]
    """what the program was doing then, by segalloc.mark() and segalloc.phase(); None: unknown"""
    blocks: int
    """blocks alive"""
    bytes: int
    """asked for, of all of them"""


class _Seen:
    """A device since a block began: the statistics then, the latest ones, and the peaks."""

    def __init__(self, begin: Dict[str, Tuple[int, int]]) -> None:
        self.begin = {name: value for name, (value, _) in begin.items()}
        self.now = self.begin
        self.peak = {name: self.begin.get(name, 0) for name in PEAKS}

    def note(self, taken: Dict[str, Tuple[int, int]]) -> None:
        self.now = {name: value for name, (value, _) in taken.items()}
        self.peak = {name: max(peak, taken.get(name, (0, 0))[1]) for name, peak in self.peak.items()}

    def grown(self, name: str) -> int:
        return self.now.get(name, 0) - self.begin.get(name, 0)


def _fold(library: Any) -> Dict[int, Dict[str, Tuple[int, int]]]:
    """Ends the library's peaks of all devices into every open block; the statistics of the devices in use."""
    taken = {device: library.take_peaks(device) for device in range(_library.DEVICES)}
    taken = {device: stats for device, stats in taken.items() if stats}
    for watch in _open:
        for device, stats in taken.items():
            watch._seen.setdefault(device, _Seen({})).note(stats)
    return taken


class Watch:
    """The `w` of `with segalloc.watch() as w:`, with the peaks within the block, while it runs and after it."""

    def __init__(self) -> None:
        self._library = _library.get()
        self._seen: Dict[int, _Seen] = {}

    def __enter__(self) -> "Watch":
        if self._library is None:
            _library.warn_unless_loaded(stacklevel=3)
            return self
        with _lock:
            self._seen = {device: _Seen(stats) for device, stats in _fold(self._library).items()}
            _open.append(self)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        with _lock:
            if self in _open:
                _fold(self._library)
                _open.remove(self)

    @property
    def devices(self) -> Dict[int, DeviceWatch]:
        """Figures of each device that the library serves, by its number."""
        with _lock:
            if self in _open:
                _fold(self._library)
            return {device: DeviceWatch(device, seen.peak["requested_bytes"], seen.peak["allocated_bytes"],
                                        seen.peak["reserved_bytes"], seen.begin.get("requested_bytes", 0),
                                        seen.now.get("requested_bytes", 0), seen.grown("allocs"), seen.grown("ooms"))
                    for device, seen in sorted(self._seen.items())}

    def _most(self, name: str) -> int:
        return max((getattr(device, name) for device in self.devices.values()), default=0)

    @property
    def peak_requested_bytes(self) -> int:
        """The most that the program had asked for at once, of the device where that was most."""
        return self._most("peak_requested_bytes")

    @property
    def peak_allocated_bytes(self) -> int:
        """The same after rounding."""
        return self._most("peak_allocated_bytes")

    @property
    def peak_reserved_bytes(self) -> int:
        """The most physical memory held at once, of the device where that was most."""
        return self._most("peak_reserved_bytes")

    @property
    def failures(self) -> int:
        """Allocations that failed for want of memory, on all devices."""
        return sum(device.failures for device in self.devices.values())

    def sites(self, device: Optional[int] = None) -> List[Site]:
        """The holders of the memory at the peak of requested bytes, by place and phase, largest first. They are those
        of one device, or of each at its own peak. Empty, with a warning, where no trace with places is recorded. Reads
        the trace, which takes seconds if it is long."""
        if self._library is None:
            return []
        devices = self.devices
        trace = self._library.recorded()
        if trace is None:
            warnings.warn(NO_SITES, stacklevel=2)
            return []
        found: List[Site] = []
        for number in devices if device is None else {device} & set(devices):
            reply = self._read(trace, number)
            if reply is None:
                warnings.warn(NO_TOOL, stacklevel=2)
                return []
            found += _sites(number, reply)
        return sorted(found, key=lambda site: (-site.bytes, site.device, site.site or "", site.phase or ""))

    def _read(self, trace: str, device: int) -> Optional[Dict[str, Any]]:
        """The groups at the peak; None where they cannot be read."""
        seen = self._seen[device]
        window = [device, seen.begin.get("allocs", 0), seen.begin.get("frees", 0), seen.now.get("allocs", 0)]
        span = ":".join(map(str, window))
        reply = _tool.run("trace", "export", trace, "--format", "json", "--window", span, "-o", "-")
        return json.loads(reply) if reply is not None else None

    def __repr__(self) -> str:
        return "<segalloc.Watch: %s>" % (", ".join(
            f"device {each.device}: peak {each.peak_requested_bytes:,} B requested, {each.peak_reserved_bytes:,} B reserved"
            for each in self.devices.values()) or "no device in use")


def _sites(device: int, reply: Dict[str, Any]) -> List[Site]:
    """Groups of all sizes as one for each place and phase."""
    sums: Dict[Tuple[Optional[str], Optional[str]], List[int]] = {}
    for group in reply["groups"]:
        both = sums.setdefault((group["site"], group["phase"]), [0, 0])
        both[0] += group["blocks"]
        both[1] += group["bytes"]
    return [Site(device, site, phase, blocks, size) for (site, phase), (blocks, size) in sums.items()]
