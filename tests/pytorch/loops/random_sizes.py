"""Allocates and frees tensors of random sizes, on one stream or several, with record_stream and empty_cache between,
and writes what it did as RMM's CSV.

Usage: random_sizes.py CSV SEED STEPS STREAMS MIB-ALIVE. Prints one line: RULES and what PyTorch's allocator says of
itself."""
import json
import random
import sys

import torch

MIB = 1 << 20
# About the bounds of PyTorch's rules: unit, small pool, large pool, segments of their own, oversize.
EDGES = [512, 513, MIB - 1, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1, 19 * MIB, 20 * MIB, 21 * MIB,
         32 * MIB, 128 * MIB - 1, 128 * MIB, 128 * MIB + 1]


def size(numbers):
    kind = numbers.random()
    if kind < 0.25:
        return numbers.randint(1, 4096)
    if kind < 0.45:
        return numbers.randint(1, MIB + 1)
    if kind < 0.55:
        return numbers.choice(EDGES)
    if kind < 0.80:
        return numbers.randint(MIB, 12 * MIB)
    return numbers.randint(10 * MIB, 64 * MIB) if kind < 0.95 else numbers.randint(64 * MIB, 400 * MIB)


def main(path, seed, steps, stream_count, mib_alive):
    numbers = random.Random(seed)
    streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(stream_count - 1))]
    repeated = [size(numbers) for _ in range(40)]
    rows, alive, total, last = [], {}, 0, 0
    for _ in range(steps):
        action = numbers.random()
        if alive and (action < 0.47 or total > mib_alive * MIB):
            pointer = numbers.choice(list(alive))
            tensor, length, stream = alive.pop(pointer)
            total -= length
            rows.append(("free", pointer, length, stream))
            del tensor
        elif alive and stream_count > 1 and action < 0.50:
            pointer, other = numbers.choice(list(alive)), numbers.randrange(stream_count)
            alive[pointer][0].record_stream(streams[other])
            rows.append(("record_stream", pointer, 0, other))
        elif action < 0.502:
            torch.cuda.empty_cache()
            rows.append(("empty_cache", 0, 0, 0))
        else:
            length = numbers.choice(repeated) if numbers.random() < 0.6 else size(numbers)
            stream, last = numbers.randrange(stream_count), last + 512
            try:
                with torch.cuda.stream(streams[stream]):
                    alive[last] = (torch.empty(length, dtype=torch.uint8, device="cuda"), length, stream)
                total += length
                rows.append(("allocate", last, length, stream))
            except torch.OutOfMemoryError:
                rows.append(("allocate failure", 0, length, stream))
    told = torch.cuda.memory_stats()
    with open(path, "w") as out:
        print("Thread,Time,Action,Pointer,Size,Stream", file=out)
        given_up = 0
        for i, (action, pointer, length, stream) in enumerate(rows):
            # Each failure was raised and given up. A thread of its own says so: what its thread is served next would make it good.
            given_up += action == "allocate failure"
            thread = given_up if action == "allocate failure" else 0
            print(f"{thread},00:00:{i // 1000000:02}:{i % 1000000:06},{action},{pointer:#x},{length},{stream}", file=out)
    print("RULES", json.dumps({"card": torch.cuda.get_device_properties(0).total_memory,
                               "peak_reserved_bytes": told["reserved_bytes.all.peak"],
                               "end_reserved_bytes": told["reserved_bytes.all.current"],
                               "peak_requested_bytes": told["requested_bytes.all.peak"], "ooms": told["num_ooms"]}))


main(sys.argv[1], *map(int, sys.argv[2:]))
