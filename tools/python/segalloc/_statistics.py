"""The library's statistics under PyTorch's names.

All that the library serves on a device is counted, also what other libraries of the process allocate. Figures
without a counterpart are 0: the number of inactive splits, oversize blocks. `segment` counts pages, the physical
memory that is created and released. Totals of requested bytes are after rounding.
"""
from __future__ import annotations

from . import _library

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any

KINDS = ("current", "peak", "allocated", "freed")
NOTHING = {kind: 0 for kind in KINDS}
TEXT = {_library.ALLOCATED: "active_allocated", _library.PENDING: "active_pending_free", _library.FREE: "inactive"}


class Counters:
    """A device's totals since they were last reset; peaks are the library's own business."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.before: dict[int, Any] = {}

    def reset(self, device: Any) -> None:
        self.before[device] = self.library.stats(device)

    def read(self, device: Any) -> Any:
        stats = self.library.stats(device)
        before = self.before.get(device, {})

        def now(name: Any) -> Any:
            return stats.get(name, (0, 0))[0]

        def peak(name: Any) -> Any:
            return stats.get(name, (0, 0))[1]

        def total(name: Any) -> Any:
            return max(now(name) - before.get(name, (0, 0))[0], 0)

        return stats, now, peak, total


def _pools(whole: Any, small: Any) -> Any:
    """The table of a family. Bytes that are not counted by pool belong to the large one."""
    large = {kind: max(whole[kind] - small[kind], 0) for kind in KINDS}
    return {"all": whole, "small_pool": small, "large_pool": large}


def nested(counters: Any, device: Any) -> Any:
    """The result of torch._C._cuda_memoryStats(), with our own statistics beside it under "segalloc"."""
    stats, now, peak, total = counters.read(device)
    page = now("reserved_bytes") // now("pages") if now("pages") else 0

    def family(name: Any, allocated: Any, freed: Any, small: Any = NOTHING) -> Any:
        whole = {"current": now(name), "peak": peak(name), "allocated": allocated, "freed": freed}
        return _pools(whole, small)

    def small(name: Any) -> Any:
        return {"current": now(name), "peak": peak(name), "allocated": 0, "freed": 0}

    released = max(total("pages_created") - now("pages"), 0)
    in_bytes = total("allocated_total_bytes"), total("freed_total_bytes")
    in_blocks = total("allocs"), total("frees")
    result = {
        "allocation": family("allocations", *in_blocks),
        "segment": family("pages", total("pages_created"), released),
        "active": family("allocations", *in_blocks),
        "inactive_split": _pools(NOTHING, NOTHING),
        "allocated_bytes": family("allocated_bytes", *in_bytes, small("small_allocated_bytes")),
        "reserved_bytes": family("reserved_bytes", now("reserved_bytes") + released * page, released * page,
                                 small("small_reserved_bytes")),
        "active_bytes": family("active_bytes", *in_bytes),
        "inactive_split_bytes": family("inactive_split_bytes", 0, 0),
        "requested_bytes": family("requested_bytes", *in_bytes),
        "oversize_allocations": dict(NOTHING),
        "oversize_segments": dict(NOTHING),
        "num_alloc_retries": total("retries") + total("ooms"),  # PyTorch's cache tries again before it gives up
        "num_ooms": total("ooms"),
        "num_oom_rejections": 0,
        "num_sync_all_streams": total("host_waits"),
        "num_device_alloc": total("calls_create") + total("calls_alloc"),
        "num_device_free": total("calls_release") + total("calls_free"),
        "max_split_size": _max_split_size(counters.library),
        "segalloc": {name: value for name, (value, _) in stats.items()},
    }
    return result


def _max_split_size(library: Any) -> Any:
    """In bytes, -1 for no limit, as PyTorch has it."""
    try:
        mebibytes = int(library.option("max_split_size_mb") or 0)
    except ValueError:
        mebibytes = 0
    return mebibytes << 20 if mebibytes else -1


def _segment(device: Any, piece: Any) -> Any:
    return {"device": device, "address": piece.address, "total_size": 0, "allocated_size": 0, "active_size": 0,
            "requested_size": 0, "stream": 0, "segment_type": "small" if piece.small else "large",
            "segment_pool_id": (0, 0), "is_expandable": True, "frames": [], "blocks": []}


def segments(library: Any, device: Any) -> Any:
    """The entries of memory_snapshot() for one device: one for each stretch of addresses with memory."""
    result, end, small = [], None, None
    for piece in library.pieces(device):
        if piece.address != end or piece.small != small:
            result.append(_segment(device, piece))
        end, small = piece.address + piece.bytes, piece.small
        segment = result[-1]
        segment["total_size"] += piece.bytes
        if piece.state == _library.ALLOCATED:
            segment["allocated_size"] += piece.bytes
            segment["requested_size"] += piece.requested
            segment["stream"] = segment["stream"] or piece.stream
        if piece.state != _library.FREE:
            segment["active_size"] += piece.bytes
        segment["blocks"].append({"address": piece.address, "size": piece.bytes, "requested_size": piece.requested,
                                  "state": TEXT[piece.state], "frames": []})
    return sorted(result, key=lambda segment: segment["address"])


def snapshot(library: Any, devices: Any) -> Any:
    """The result of torch._C._cuda_memorySnapshot(), without a history of events."""
    return {
        "segments": [segment for device in range(devices) for segment in segments(library, device)],
        "device_traces": [[] for _ in range(devices)],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": _max_split_size(library),
            "garbage_collection_threshold": float(library.option("garbage_collection_threshold") or 0),
            "expandable_segments": library.option("expandable_segments") == "True",
        },
        "external_annotations": [],
    }
