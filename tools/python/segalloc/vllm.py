"""vLLM's sleep mode over tags: `vllm serve MODEL --enable-sleep-mode --sleep-mode-backend segalloc` under `segalloc run --torch`.

vLLM finds register() by the entry point of this package in the group vllm.general_plugins. Weights and the cache of keys and
values are allocated under the tags `weights` and `kv_cache`, so `segalloc pause PID --tag kv_cache` works from outside, too.

Why a backend of our own: theirs copies block by block to pinned tensors, whose sizes PyTorch rounds to powers of two, and
switches expandable segments off. For example, sleep(1) with 14 GiB of weights takes 14 GiB of host memory here."""
from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import logging
import sys

from . import _hook, _library, _pause

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

NAME = "segalloc"
DEFERRABLE = ("weights", "kv_cache")  # a wake-up of some tags may leave these asleep, and no others
KEPT = ("runtime", "cudagraph")  # contents that both levels of sleep keep

log = logging.getLogger(__name__)
_chosen = False  # this process's vLLM was told to use the backend of ours


class Allocator:
    """The answer of get_mem_allocator_instance(): MemAllocator of vllm/device_allocator."""

    def __init__(self) -> None:
        self.tags: list[str] = []  # in the order of their first use
        self.asleep: dict[str, bool] = {}  # and whether contents were kept

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        name = tag or "default"
        if name not in self.tags:
            self.tags.append(name)
        with _pause.region(name, True):
            yield

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[Any]:
        """Memory that graphs allocate while they are captured is of the tag `cudagraph`. Yields the pool that they share."""
        torch: Any = importlib.import_module("torch")  # not at the top: the module is looked at without it too
        if not hasattr(self, "_graph_pool"):
            self._graph_pool = torch.cuda.graph_pool_handle()
        with self.use_memory_pool("cudagraph"):
            yield self._graph_pool

    def _clean(self) -> None:
        """Nothing that is only cached stays."""
        gc.collect()
        importlib.import_module("torch").cuda.empty_cache()

    def _pause(self, tags: Sequence[str], kept: Sequence[str]) -> None:
        """All of the tags or none. Those with contents go first: saving may fail, and what was given up before it would be lost."""
        done: list[str] = []
        for tag in tags:
            if tag in self.asleep and self.asleep[tag] != (tag in kept):
                log.warning("segalloc: %r sleeps already, and its contents stay %s", tag,
                            "kept" if self.asleep[tag] else "given up")
        try:
            for tag in sorted((tag for tag in tags if tag not in self.asleep), key=lambda tag: tag not in kept):
                _order(tag, True, tag in kept)
                self.asleep[tag] = tag in kept
                done.append(tag)
        except _pause.PauseError:
            for tag in done:
                _order(tag, False)
                del self.asleep[tag]
            raise

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        """All tags leave the device; contents of `offload_tags` are kept on the host."""
        kept = ("default",) if offload_tags is None else (offload_tags,) if isinstance(offload_tags, str) else offload_tags
        self._clean()
        self._pause(self.tags, kept)
        library = _library.get()
        if library is not None:
            library.trim(None)

    def discard(self, tags: tuple[str, ...] | str) -> None:
        """These tags leave the device without their contents."""
        names = (tags,) if isinstance(tags, str) else tags
        self._pause([tag for tag in self.tags if tag in names], ())

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """PauseError with `code` 2: the card is full. Tags that are awake by then stay so, and the call can be repeated."""
        self._clean()
        for tag in list(self.asleep):
            if tags is None or tag in tags or tag not in DEFERRABLE:
                _order(tag, False)
                del self.asleep[tag]

    def get_current_usage(self) -> int:
        library = _library.get()
        return sum(library.tag_bytes(tag) for tag in self.tags) if library is not None else 0

    def release_pools(self) -> None:
        """There are none to release."""

    close = release_pools


def _order(tag: str, pause: bool, backup: bool = True) -> None:
    """A tag under which nothing was allocated yet is none."""
    try:
        _pause.order(tag, pause, backup)
    except _pause.PauseError as error:
        if error.code != _pause.NOBODY:
            raise


@functools.lru_cache(maxsize=None)
def allocator() -> Allocator:
    """The one of this process."""
    library = _library.get()
    if library is None or not library.in_use():
        raise RuntimeError("the sleep-mode backend \"segalloc\" needs the library in the process: `segalloc run --torch -- vllm serve …`")
    return Allocator()


def _is_chosen() -> bool:
    """The worker that was made here says so, or the configuration that vLLM works under now."""
    config = sys.modules.get("vllm.config")
    current = getattr(config, "get_current_vllm_config_or_none", lambda: None)()
    return _chosen or getattr(getattr(current, "model_config", None), "sleep_mode_backend", None) == NAME


def _answer(device_allocator: Any) -> None:
    """Has get_mem_allocator_instance() answer with ours where the backend of ours was chosen. Modules that have it by name
    already get the same."""
    natively = device_allocator.get_mem_allocator_instance
    if getattr(natively, "segalloc", False):
        return

    @functools.wraps(natively)
    def get_mem_allocator_instance() -> Any:
        return allocator() if _is_chosen() else natively()
    get_mem_allocator_instance.segalloc = True  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("get_mem_allocator_instance") is natively:
            module.__dict__["get_mem_allocator_instance"] = get_mem_allocator_instance


def _note_choice(gpu_worker: Any) -> None:
    """A worker knows its configuration, and allocates weights before a backend is made."""
    natively: Callable[..., None] = gpu_worker.Worker.__init__

    @functools.wraps(natively)
    def __init__(self: Any, vllm_config: Any, *arguments: Any, **named: Any) -> None:
        global _chosen
        _chosen = getattr(vllm_config.model_config, "sleep_mode_backend", None) == NAME
        natively(self, vllm_config, *arguments, **named)
    gpu_worker.Worker.__init__ = __init__


@functools.lru_cache(maxsize=None)
def _backend() -> type:
    """The class, made once vLLM's own is there to derive from."""
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackend  # type: ignore[import-not-found]

    class SegallocBackend(SleepModeBackend):  # type: ignore[misc]
        """Level 1 keeps weights on the host, level 2 gives them up, level 0 pauses nothing."""

        def __init__(self) -> None:
            global _chosen
            super().__init__()
            _chosen = True

        def suspend(self, level: int = 1) -> None:
            if level == 0:
                return
            allocator().sleep(("weights", *KEPT) if level == 1 else KEPT)
            self._state = "SUSPENDED"

        def resume(self, tags: list[str] | None = None) -> None:
            self._state = "RESUMING"
            try:
                allocator().wake_up(tags)
            finally:
                self._state = "SUSPENDED" if allocator().asleep else "RUNNING"

        def discard(self, tags: tuple[str, ...]) -> None:
            allocator().discard(tags)
            self._state = "SUSPENDED"

        @classmethod
        def is_supported(cls) -> bool:
            library = _library.get()
            return library is not None and library.in_use()

        @classmethod
        def preserves_communicators(cls) -> bool:
            return True  # their memory has no tag

        @classmethod
        def preserves_compiled_artifacts(cls) -> bool:
            return True

        @classmethod
        def preserves_graphs_with_communicators(cls) -> bool:
            return True  # addresses stay
    return SegallocBackend


def __getattr__(name: str) -> Any:
    if name == "SegallocBackend":
        return _backend()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """The entry point. vLLM calls it in each of its processes, some more than once. A vLLM without backends stays as it is."""
    try:
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
    except ImportError:
        return
    if NAME not in SleepModeBackendFactory._registry:
        SleepModeBackendFactory.register_backend(NAME, __name__, "SegallocBackend")
        _hook.after_import("vllm.device_allocator", _answer)
        _hook.after_import("vllm.v1.worker.gpu_worker", _note_choice)
