"""Generated programs with work on several streams, as rows of RMM's CSV with the actions about work (docs/trace-format.md).

Usage: loads.py offload|serving|pipeline [SEED] > FILE"""
import random
import sys

HEADER = "Thread,Time,Action,Pointer,Size,Stream"
MIB = 1 << 20


class Program:
    """What one host thread does. Addresses are numbers of blocks; the one freed last is used first."""

    def __init__(self, seed=0):
        self.random, self.rows, self.events = random.Random(seed), [HEADER], 0
        self.sizes, self.spare, self.recordings = {}, [], 0

    def row(self, action, pointer=0, size=0, stream=0):
        time = self.events
        self.rows.append(f"0,{time // 3600000000:02}:{time // 60000000 % 60:02}:{time // 1000000 % 60:02}:{time % 1000000:06},"
                         f"{action},0x{pointer:x},{size},{stream}")

    def allocate(self, size, stream=0):
        block = self.spare.pop() if self.spare else (len(self.sizes) + 1) << 9
        self.sizes[block] = size
        self.row("allocate", block, size, stream)
        self.events += 1
        return block

    def free(self, block, stream=0):
        self.row("free", block, self.sizes[block], stream)
        self.events += 1
        self.spare.append(block)

    def used_on(self, block, stream):
        self.row("record_stream", block, 0, stream)

    def launch(self, stream=0, count=1):
        self.row("launch", 0, count, stream)

    def record(self, stream=0):
        self.recordings += 1
        self.row("record", self.recordings, 0, stream)
        return self.recordings

    def wait(self, recording, stream=0):
        self.row("wait", recording, 0, stream)

    def query(self, recording):
        self.row("event_query", recording)

    def event_sync(self, recording):
        self.row("event_sync", recording)

    def stream_sync(self, stream=0):
        self.row("stream_sync", 0, 0, stream)

    def device_sync(self):
        self.row("device_sync")

    def text(self):
        return "\n".join(self.rows) + "\n"


def offload(seed=0, steps=6, layers=24):
    """Weights of a layer come from the host into blocks of the copying stream (1), which never waits for the computation (0):
    that a layer's work is done, the host finds out by asking events."""
    p, compute, copy = Program(seed), 0, 1
    rest = [p.allocate(p.random.randrange(20, 40) * MIB, compute) for _ in range(layers)]
    for block in rest:
        p.launch(compute)
    for _ in range(steps):
        tokens, used, kept = p.random.uniform(0.5, 1), [], []
        for layer in list(range(layers)) + list(reversed(range(layers))):
            weights = [p.allocate((24 + 16 * part + layer % 3) * MIB, copy) for part in range(3)]
            p.launch(copy, 3)
            p.wait(p.record(copy), compute)
            for part in range(8):
                scratch = p.allocate(int(tokens * (8 + 5 * part) * MIB) // 512 * 512, compute)
                p.launch(compute, 2)
                p.free(scratch, compute)
            if len(kept) <= layer:
                kept.append(p.allocate(int(tokens * 24 * MIB) // 512 * 512, compute))
                p.launch(compute)
            elif kept:
                p.free(kept.pop(), compute)
            for block in weights:
                p.used_on(block, compute)
            used.append(p.record(compute))
            for block in weights:
                p.free(block, copy)
            if len(used) > 2:
                p.query(used[-3])
        for block in kept:
            p.free(block, compute)
        p.event_sync(used[-1])
    p.device_sync()
    return p.text()


def serving(seed=0, requests=240, workers=5):
    """Requests on streams of their own, which share weights and nothing else; a worker waits for its own stream to answer."""
    p = Program(seed)
    weights = [p.allocate(64 * MIB) for _ in range(16)]
    p.launch(0, 16)
    loaded = p.record(0)
    for worker in range(1, workers + 1):
        p.wait(loaded, worker)
    caches = {}
    for request in range(requests):
        worker = 1 + request % workers
        if worker in caches:
            p.stream_sync(worker)
            for block in caches.pop(worker):
                p.free(block, worker)
        length = min(p.random.lognormvariate(0, 0.6), 4)
        caches[worker] = []
        for _ in range(8):
            cache = p.allocate(int(length * 6 * MIB) // 512 * 512, worker)
            work = p.allocate(int(length * 10 * MIB) // 512 * 512, worker)
            p.launch(worker, 4)
            p.free(work, worker)
            caches[worker].append(cache)
    for worker, blocks in caches.items():
        p.stream_sync(worker)
        for block in blocks:
            p.free(block, worker)
    for block in weights:
        p.free(block)
    return p.text()


def pipeline(seed=0, steps=8, micro=6, stages=4):
    """Stages of a pipeline on one card, each with a stream; a communication stream between neighbours carries activations
    forward and gradients back, one forward and one backward in turn."""
    p = Program(seed)
    compute, comm = list(range(stages)), list(range(stages, 2 * stages))
    for stage in compute:
        for _ in range(6):
            p.allocate(p.random.randrange(24, 48) * MIB, stage)
            p.launch(stage)

    def forward(stage, size, into, kept):
        block = p.allocate(size, stage)
        for part in range(4):
            scratch = p.allocate(size * (part + 2) // 4 // 512 * 512, stage)
            p.launch(stage, 3)
            kept.append((scratch, stage)) if part == 3 else p.free(scratch, stage)
        if into:
            p.free(into, comm[stage])
        return block

    for _ in range(steps):
        sizes = [int(p.random.uniform(0.4, 1) * 40 * MIB) // 512 * 512 for _ in range(micro)]
        kept = [[] for _ in range(micro)]
        for number, size in enumerate(sizes):
            into = None
            for stage in compute:
                out = forward(stage, size, into, kept[number])
                if stage + 1 == stages:
                    kept[number].append((out, stage))
                    break
                received = p.allocate(size, comm[stage + 1])
                p.wait(p.record(stage), comm[stage + 1])
                p.launch(comm[stage + 1])
                p.used_on(out, comm[stage + 1])
                p.free(out, stage)
                done = p.record(comm[stage + 1])
                p.wait(done, stage + 1)
                p.used_on(received, stage + 1)
                into = received
        for number in range(micro):
            for block, stage in reversed(kept[number]):
                gradient = p.allocate(sizes[number], stage)
                p.launch(stage, 5)
                p.free(block, stage)
                if stage:
                    p.wait(p.record(stage), comm[stage])
                    p.launch(comm[stage])
                    p.used_on(gradient, comm[stage])
                    p.wait(p.record(comm[stage]), stage - 1)
                p.free(gradient, stage)
        last = p.record(0)
        p.event_sync(last)
    p.device_sync()
    return p.text()


LOADS = {"offload": offload, "serving": serving, "pipeline": pipeline}

if __name__ == "__main__":
    sys.stdout.write(LOADS[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 0))
