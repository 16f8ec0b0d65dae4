"""vLLM's sleep mode over segalloc, through the entry point of its plug-ins. Prints done.

Usage: vllm_sleep.py [FOLDER]    FOLDER: a vllm package's device_allocator of its own; without it small stand-ins of the same names

Of vLLM only what a worker calls is there: the factory of backends, the allocator's instance, and the configuration."""
import abc
import importlib
import importlib.metadata
import pathlib
import sys
import types

import torch

MIB = 1 << 20


def module(name, **names):
    made = types.ModuleType(name)
    made.__dict__.update(names)
    made.__path__ = []
    sys.modules[name] = made
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, made)
    return made


class Config:
    enable_sleep_mode = enable_cumem_allocator = True
    sleep_mode_backend = "segalloc"

    @property
    def model_config(self):
        return self


class Quiet:
    def __getattr__(self, name):
        return lambda *arguments: None


def natively():
    raise SystemExit("vLLM's own allocator was asked for")


def stand_ins():
    class SleepModeBackend(abc.ABC):
        def __init__(self):
            self._state = "RUNNING"

        def state(self):
            return self._state

    class SleepModeBackendFactory:
        _registry = {}

        @classmethod
        def register_backend(cls, name, module_path, class_name):
            if name in cls._registry:
                raise ValueError(name)
            cls._registry[name] = lambda: getattr(importlib.import_module(module_path), class_name)

        @classmethod
        def create_backend(cls, model_config):
            chosen = cls._registry[model_config.sleep_mode_backend]()
            assert chosen.is_supported()
            return chosen()

    module("vllm.device_allocator", get_mem_allocator_instance=natively)
    module("vllm.device_allocator.sleep_mode_backend", SleepModeBackend=SleepModeBackend,
           SleepModeBackendFactory=SleepModeBackendFactory)


module("vllm")
module("vllm.logger", init_logger=lambda name: Quiet())
module("vllm.platforms", current_platform=Quiet())
module("vllm.config", get_current_vllm_config_or_none=lambda: None)
if len(sys.argv) > 1:
    sys.modules["vllm"].__path__ = [str(pathlib.Path(sys.argv[1]).parent)]
    import vllm.device_allocator
    import vllm.device_allocator.sleep_mode_backend  # noqa: F401
else:
    stand_ins()
module("vllm.v1")
module("vllm.v1.worker")
before = [sys.modules["vllm.device_allocator"].get_mem_allocator_instance]


class Worker:
    def __init__(self, vllm_config, rank=0):
        self.vllm_config = vllm_config


worker_module = module("vllm.v1.worker.gpu_worker", Worker=Worker, get_mem_allocator_instance=before[0])

for _ in range(2):  # vLLM may call plug-ins more than once
    found = [entry for entry in importlib.metadata.entry_points(group="vllm.general_plugins") if entry.name == "segalloc"]
    assert found, "the entry point is not there"
    found[0].load()()
assert worker_module.get_mem_allocator_instance is not before[0]
Worker(Config(), rank=0)
allocator = worker_module.get_mem_allocator_instance()
assert allocator is sys.modules["vllm.device_allocator"].get_mem_allocator_instance()
backend = sys.modules["vllm.device_allocator.sleep_mode_backend"].SleepModeBackendFactory.create_backend(Config())


def used():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


torch.zeros(1, device="cuda")
torch.cuda.synchronize()
bare = used()
assert allocator.get_current_usage() == 0
with allocator.use_memory_pool("weights"):
    weights = [torch.full((size * MIB + 77,), value, dtype=torch.uint8, device="cuda") for value, size in enumerate((30, 9, 1), 1)]
with allocator.use_memory_pool("kv_cache"):
    cache = torch.full((32 * MIB,), 9, dtype=torch.uint8, device="cuda")
with allocator.use_memory_pool("runtime"):
    runtime = torch.full((MIB,), 4, dtype=torch.uint8, device="cuda")
usage = allocator.get_current_usage()
assert 73 * MIB <= usage < 75 * MIB, usage
addresses = [tensor.data_ptr() for tensor in (*weights, cache, runtime)]
awake = used()
assert awake - bare >= 73 * MIB


def right():
    return all(bool((tensor == value).all()) for value, tensor in enumerate(weights, 1))


def no_room(tag, pause, backup=True):
    """The host has no room for contents: what comes with a backup fails."""
    if pause and backup:
        raise pause_module.PauseError(f"pause({tag!r})", 2)
    return natively_order(tag, pause, backup)


pause_module = importlib.import_module("segalloc._pause")
natively_order, pause_module.order = pause_module.order, no_room
try:
    backend.suspend(1)
    raise SystemExit("nothing has failed")
except pause_module.PauseError:
    pause_module.order = natively_order
assert used() == awake and right() and bool((cache == 9).all()), "a sleep that failed has lost the cache"
backend.suspend(0)
assert used() == awake and backend.state() == "RUNNING"
for level in (1, 2, 1):
    backend.suspend(level)
    assert used() <= bare, (used(), bare)
    assert backend.state() == "SUSPENDED" and allocator.get_current_usage() == usage
    backend.suspend(level)  # is no error
    other = torch.full((30 * MIB,), 5, dtype=torch.uint8, device="cuda")
    assert bool((other == 5).all())
    del other
    torch.cuda.empty_cache()
    backend.resume(["weights"])
    assert bool((runtime == 4).all())  # what may not be deferred comes with any
    assert right() == (level == 1), level
    assert awake - used() >= 32 * MIB and backend.state() == "SUSPENDED"
    for value, tensor in enumerate(weights, 1):
        tensor.fill_(value)
    backend.resume(["kv_cache"])
    assert backend.state() == "RUNNING" and not bool((cache == 9).any())
    cache.fill_(9)
    assert addresses == [tensor.data_ptr() for tensor in (*weights, cache, runtime)]
backend.discard(("kv_cache",))
assert backend.state() == "SUSPENDED" and right() and awake - used() >= 32 * MIB
backend.resume()
assert backend.state() == "RUNNING" and right() and bool((runtime == 4).all())
assert backend.preserves_communicators() and backend.preserves_graphs_with_communicators()
print("done")
