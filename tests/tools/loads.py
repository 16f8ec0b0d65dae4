"""Generated programs with work on several streams, as rows of RMM's CSV with the actions about work
(docs/trace-format.md).

Usage: loads.py offload|serving|pipeline|experts|activations|speculative|loader|chain [SEED] > FILE"""
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
    """Weights of a layer come from the host into blocks of the copying stream (1), which never waits for the
    computation (0): that a layer's work is done, the host finds out by asking events."""
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
    """Requests on streams of their own, which share weights and nothing else; a worker waits for its own stream to
    answer."""
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
    """Stages of a pipeline on one card, each with a stream; a communication stream between neighbours carries
    activations forward and gradients back, one forward and one backward in turn."""
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


def units(size):
    """A size that a tensor may have."""
    return max(int(size) // 512, 1) * 512


def experts(seed=0, steps=5, layers=10, local=6):
    """Experts on several ranks: tokens are sent to and fetched from them on a stream of their own (1), in uneven shares
    that the host has to wait for before it can allocate; what was received is kept for the backward."""
    p, compute, comm = Program(seed), 0, 1
    for _ in range(layers * 3):
        p.allocate(units(p.random.uniform(20, 40) * MIB), compute)
    p.launch(compute, layers)

    def exchange(source, size):
        """All-to-all of a tensor of the computation, which takes the result."""
        result = p.allocate(units(size), comm)
        p.wait(p.record(compute), comm)
        p.launch(comm, 2)
        p.used_on(source, comm)
        p.wait(p.record(comm), compute)
        p.used_on(result, compute)
        p.free(source, compute)
        return result

    for _ in range(steps):
        tokens, kept = p.random.uniform(0.4, 1) * 24 * MIB, []
        for _ in range(layers):
            scores = p.allocate(units(tokens / 16), compute)
            p.launch(compute, 4)
            p.event_sync(p.record(compute))  # the host reads how much goes where
            shares = [p.random.lognormvariate(0, 0.5) for _ in range(local)]
            send = p.allocate(units(tokens * 2), compute)
            p.launch(compute, 2)
            received = exchange(send, tokens * sum(shares) / local * 2)
            outputs = []
            for share in shares:
                inner = p.allocate(units(tokens * share / local * 5), compute)
                p.launch(compute, 3)
                outputs.append(p.allocate(units(tokens * share / local * 2), compute))
                kept.append((inner, compute))
            joined = p.allocate(units(tokens * sum(shares) / local * 2), compute)
            p.launch(compute)
            for block in outputs:
                p.free(block, compute)
            back = exchange(joined, tokens * 2)
            p.launch(compute)
            p.free(back, comm)
            kept += [(received, comm), (scores, compute)]
        for block, stream in reversed(kept):
            gradient = p.allocate(p.sizes[block], compute)
            p.launch(compute, 3)
            p.free(block, stream)
            if stream == comm:
                p.free(exchange(gradient, p.sizes[block]), comm)
            else:
                p.free(gradient, compute)
    p.device_sync()
    return p.text()


def activations(seed=0, steps=5, layers=20, ahead=2):
    """What the forward keeps goes to the host on one stream (1) and comes back on another (2), `ahead` layers before
    the backward needs it. Nothing is waited for by the host but the end of a step."""
    p, compute, out, back = Program(seed), 0, 1, 2
    for _ in range(layers):
        p.allocate(units(p.random.uniform(20, 40) * MIB), compute)
    p.launch(compute, layers)
    for _ in range(steps):
        tokens, shapes = p.random.uniform(0.3, 1) * 30 * MIB, []
        for _ in range(layers):
            scratch = p.allocate(units(tokens * 3), compute)
            made = [p.allocate(units(tokens * part), compute) for part in (1, 0.5, 1.5)]
            p.launch(compute, 6)
            p.free(scratch, compute)
            p.wait(p.record(compute), out)
            for block in made:
                p.launch(out)
                p.used_on(block, out)
                p.free(block, compute)
            shapes.append([p.sizes[block] for block in made])
        fetched = []
        for layer in range(layers + ahead):
            if layer < layers:
                blocks = [p.allocate(size, back) for size in reversed(shapes[-1 - layer])]
                p.launch(back, 3)
                fetched.append((blocks, p.record(back)))
            if layer >= ahead:
                blocks, ready = fetched.pop(0)
                p.wait(ready, compute)
                for block in blocks:
                    gradient = p.allocate(p.sizes[block], compute)
                    p.launch(compute, 2)
                    p.used_on(block, compute)
                    p.free(block, back)
                    p.free(gradient, compute)
                p.wait(p.record(compute), back)  # no sooner than this is there room for more
        p.stream_sync(compute)
    p.device_sync()
    return p.text()


def speculative(seed=0, requests=60, layers=8):
    """A small model guesses tokens on its stream (1), a large one checks them on its own (0). Caches grow by being
    copied; the host waits for the large model's answer each time."""
    p, target, draft = Program(seed), 0, 1
    for stream, size in ((target, 144), (draft, 24)):
        for _ in range(layers * 2):
            p.allocate(units(p.random.uniform(0.7, 1) * size * MIB), stream)
        p.launch(stream, layers)
    for _ in range(requests):
        length = int(p.random.lognormvariate(6, 0.6))
        end = length + p.random.randrange(40, 160)
        caches = {stream: [p.allocate(units(length * width), stream) for _ in range(layers * 2)]
                  for stream, width in ((target, 4096), (draft, 1024))}
        while length < end:
            guesses = p.random.randrange(2, 7)
            for _ in range(guesses):
                logits = p.allocate(units(32000 * 4), draft)
                p.launch(draft, layers)
                p.free(logits, draft)
            tokens = p.allocate(units(guesses * 32000 * 4), draft)
            p.launch(draft)
            p.wait(p.record(draft), target)
            p.used_on(tokens, target)
            logits = p.allocate(units(guesses * 32000 * 8), target)
            p.launch(target, layers)
            length += p.random.randrange(1, guesses + 1)
            for stream, width in ((target, 4096), (draft, 1024)):
                for layer, cache in enumerate(caches[stream]):
                    grown = p.allocate(units(length * width), stream)
                    p.launch(stream)
                    p.free(cache, stream)
                    caches[stream][layer] = grown
            p.event_sync(p.record(target))
            p.wait(p.record(target), draft)
            p.free(logits, target)
            p.free(tokens, draft)
        for stream, blocks in caches.items():
            for block in blocks:
                p.free(block, stream)
    p.device_sync()
    return p.text()


def loader(seed=0, steps=40, layers=12, buffers=2):
    """Batches of uneven size are copied and prepared on a stream of their own (1), `buffers` of them before they are
    needed. The stream is told when the computation is done with a batch, and waits for no more than that."""
    p, compute, copy = Program(seed), 0, 1
    for _ in range(layers * 2):
        p.allocate(units(p.random.uniform(15, 30) * MIB), compute)
    p.launch(compute, layers)
    ready, done = [], []
    for step in range(steps + buffers):
        if step < steps:
            if len(done) >= buffers:
                p.wait(done[-buffers], copy)
            size = units(p.random.uniform(0.3, 1) * 48 * MIB)
            raw = p.allocate(units(size / 2), copy)
            batch = p.allocate(size, copy)
            crop = p.allocate(units(size * p.random.uniform(0.5, 0.9)), copy)
            p.launch(copy, 5)
            p.free(raw, copy)
            p.free(batch, copy)
            ready.append((crop, p.record(copy)))
        if step >= buffers:
            batch, event = ready.pop(0)
            p.wait(event, compute)
            kept = []
            for _ in range(layers):
                scratch = p.allocate(units(p.sizes[batch] * p.random.uniform(0.5, 1)), compute)
                kept.append(p.allocate(p.sizes[batch], compute))
                p.launch(compute, 4)
                p.free(scratch, compute)
            p.used_on(batch, compute)
            p.free(batch, copy)
            for block in reversed(kept):
                p.launch(compute, 4)
                p.free(block, compute)
            done.append(p.record(compute))
            if step % 10 == 0:
                p.event_sync(done[-1])
    p.device_sync()
    return p.text()


def chain(seed=0, rounds=100, length=12):
    """Streams in a chain: each waits for the one before, uses what that has made and frees it. All could share all
    memory."""
    p = Program(seed)
    for stream in range(length):
        p.allocate(units(p.random.uniform(30, 60) * MIB), stream)
        p.launch(stream)
    for turn in range(rounds):
        size, before = p.random.uniform(0.2, 1) * 24 * MIB, None
        for stream in range(length):
            if before:
                p.wait(p.record(stream - 1), stream)
            made = p.allocate(units(size if stream % 3 else 2 * size), stream)
            scratch = p.allocate(units(1.5 * size), stream)
            p.launch(stream, 3)
            p.free(scratch, stream)
            if before:
                p.used_on(before, stream)
                p.free(before, stream - 1)
            before = made
        p.wait(p.record(length - 1), 0)
        p.used_on(before, 0)
        p.free(before, length - 1)
        if turn % 20 == 19:
            p.stream_sync(length - 1)
    p.device_sync()
    return p.text()


LOADS = {load.__name__: load for load in (offload, serving, pipeline, experts, activations, speculative, loader, chain)}

if __name__ == "__main__":
    sys.stdout.write(LOADS[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 0))
