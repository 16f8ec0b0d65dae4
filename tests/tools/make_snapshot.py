"""Makes a memory snapshot of PyTorch's, and beside it the statistics that PyTorch itself has at that moment: how the
files of tests/data/snapshots came about.

    segalloc run --sim 8GiB --conf pytorch:beneath -- python make_snapshot.py history|state OUTPUT.pickle"""
import json
import sys

import torch

KEPT = ("requested_bytes.all", "reserved_bytes.all", "segment.all", "allocation.all")

if sys.argv[1] == "history":
    torch.cuda.memory._record_memory_history(max_entries=100000, context=None)
sizes = torch.Generator().manual_seed(7)
side = torch.cuda.Stream()
live = []
for step in range(60):
    for _ in range(6):
        tensor = torch.empty(int(torch.randint(1, 3_000_000, (1,), generator=sizes)), device="cuda")
        if step % 7 == 3:
            tensor.record_stream(side)
        live.append(tensor)
    while len(live) > 12:
        live.pop(int(torch.randint(0, len(live), (1,), generator=sizes)))
    if step == 40:
        torch.cuda.empty_cache()
    if step == 45:
        try:
            torch.empty(1 << 40, device="cuda")
        except torch.cuda.OutOfMemoryError:
            pass
statistics = torch.cuda.memory_stats()
torch.cuda.memory._dump_snapshot(sys.argv[2])
with open(sys.argv[2].replace(".pickle", ".json"), "w", encoding="utf-8") as file:
    json.dump({key: value for key, value in statistics.items() if key.startswith(KEPT)}, file, indent=1)
