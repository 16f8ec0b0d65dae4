#!/usr/bin/env python3
"""What scripts do besides training plainly, each in some seconds on the simulated GPU. Prints one line, the same in every
mode of the library and without it: nothing in it is computed on the device but integers.

Usage: habits.py NAME [SCALE]     (SCALE: larger or smaller tensors, 1.0)"""
import random
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

SCALE = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
MIB = 1 << 20


def sized(count):
    return max(8, int(count * SCALE) // 8 * 8)


def layers(wide, count, device="cuda"):
    return nn.ModuleList(nn.Sequential(nn.Linear(wide, 4 * wide), nn.GELU(), nn.Linear(4 * wide, wide))
                         for _ in range(count)).to(device)


def peak(device=0):
    return torch.cuda.memory_stats(device).get("requested_bytes.all.peak", 0)


def recomputed():
    """Activations are recomputed, each part no further than needed, and an early batch ends the epoch."""
    wide = sized(1024)
    model = layers(wide, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    lengths = []
    for epoch in range(3):
        for step in range(6):
            lengths.append(random.randint(200, 1500))
            x = torch.randn(lengths[-1], wide, device="cuda", requires_grad=True)
            for layer in model:
                x = checkpoint(layer, x, use_reentrant=False)
            optimizer.zero_grad()
            x.square().mean().backward()
            optimizer.step()
            if epoch == 1 and step == 3:
                break
    return sum(lengths)


def evaluated():
    """Training is interrupted by an evaluation of twice the batch, whose outputs are kept for the end."""
    wide, kept = sized(1024), 0
    model = nn.Sequential(*layers(wide, 6), nn.Linear(wide, 20000)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(12):
        F.cross_entropy(model(torch.randn(700, wide, device="cuda")), torch.zeros(700, dtype=torch.long,
                                                                              device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 4 == 3:
            model.eval()
            with torch.inference_mode():
                outputs = [model(torch.randn(1400, wide, device="cuda")).half() for _ in range(3)]
                kept += torch.cat(outputs).shape[0]
            del outputs
            model.train()
    return kept


def scaled():
    """Losses are scaled, gradients unscaled and clipped; a branch is taken by what the scaler says."""
    wide = sized(1024)
    model = layers(wide, 8)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    steps = 0
    for step in range(12):
        x = torch.randn(random.randint(300, 1500), wide, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            for layer in model:
                x = layer(x)
            loss = x.float().square().mean()
        scaler.scale(loss).backward()
        if step % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            steps += 1
    return steps


def recurrent():
    """An LSTM over packed texts of any length."""
    wide = sized(512)
    words, model = nn.Embedding(20000, wide).cuda(), nn.LSTM(wide, wide, 2, bidirectional=True).cuda()
    output = nn.Linear(2 * wide, 20000).cuda()
    optimizer = torch.optim.Adam([*words.parameters(), *model.parameters(), *output.parameters()])
    total = 0
    for _ in range(15):
        lengths = sorted((random.randint(5, 120) for _ in range(24)), reverse=True)
        ids = torch.randint(0, 20000, (lengths[0], 24)).cuda()
        packed = nn.utils.rnn.pack_padded_sequence(words(ids), lengths)
        states, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], total_length=lengths[0])
        F.cross_entropy(output(states).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        total += sum(lengths)
    return total


def halves():
    """A batch that does not fit is halved, until it does."""
    wide = sized(1024)
    model = layers(wide, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    rows, done = 4096, 0
    while done < 24:
        loss = None
        try:
            x = torch.randn(rows, wide, device="cuda")
            for layer in model:
                x = layer(x)
            loss = x.square().mean()
            loss.backward()
            optimizer.step()
            done += 1
        except torch.cuda.OutOfMemoryError:
            rows //= 2
        x = loss = None
        optimizer.zero_grad(set_to_none=True)
        if done < 3:
            torch.cuda.empty_cache()
    return done


def emptied():
    """The cache is emptied after every step, and what is free is asked for."""
    wide = sized(1024)
    model = layers(wide, 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    frees = []
    for _ in range(20):
        x = torch.randn(random.randint(300, 3000), wide, device="cuda", requires_grad=True)
        for layer in model:
            x = layer(x)
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del x
        torch.cuda.empty_cache()
        frees.append(torch.cuda.mem_get_info()[0])
    return len(frees), max(frees) - min(frees) < 64 * MIB


def sparse():
    """Embeddings whose gradients are sparse, with bags of any size."""
    count, wide = sized(200000), 64
    table = nn.EmbeddingBag(count, wide, sparse=True, mode="sum").cuda()
    tower = nn.Sequential(nn.Linear(wide, 1024), nn.ReLU(), nn.Linear(1024, 1)).cuda()
    of_table, of_tower = torch.optim.SparseAdam(table.parameters()), torch.optim.Adagrad(tower.parameters())
    bags = 0
    for _ in range(15):
        each = random.randint(5, 60)
        ids = torch.randint(0, count, (4096, each)).cuda()
        tower(table(ids)).mean().backward()
        of_tower.step()
        of_table.step()
        of_tower.zero_grad()
        of_table.zero_grad()
        bags += each
    return bags


def offloaded():
    """Weights wait on the host, and come and go on streams of their own; they come back as they were."""
    wide = sized(2048)
    host = [torch.full((wide, wide), i, dtype=torch.int32).pin_memory() for i in range(12)]
    bring, take = torch.cuda.Stream(), torch.cuda.Stream()
    back = [torch.empty_like(one).pin_memory() for one in host]
    x = torch.randn(256, wide, device="cuda")
    coming = None
    for _ in range(3):
        for i, one in enumerate(host):
            with torch.cuda.stream(bring):
                coming = one.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(bring)
            coming.record_stream(torch.cuda.current_stream())
            x = torch.relu(x @ coming.float())
            take.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(take):
                coming.record_stream(take)
                back[i].copy_(coming, non_blocking=True)
    torch.cuda.synchronize()
    return [int(one[0, 0]) for one in back] == list(range(12)), all(torch.equal(a, b) for a, b in zip(host, back))


def two_devices():
    """One model on two devices: what the first has made goes on to the second, in the same process."""
    wide = sized(1536)
    first, second = layers(wide, 6, "cuda:0"), layers(wide, 4, "cuda:1")
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()])
    total = 0
    for _ in range(10):
        rows = random.randint(200, 1500)
        x = torch.randn(rows, wide, device="cuda:0")
        for layer in first:
            x = layer(x)
        x = x.to("cuda:1")
        for layer in second:
            x = layer(x)
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()
        total += rows
    return total, torch.cuda.device_count() >= 2


class OnDevice(torch.utils.data.Dataset):
    """Each item is made on the device by the worker that is asked for it."""
    def __len__(self):
        return 16

    def __getitem__(self, index):
        x = torch.full((sized(512), 1024), index, dtype=torch.int32, device="cuda")
        return x.cpu()[:64].clone()


def workers():
    """The loader's workers use the device too, each in a process of its own."""
    loader = torch.utils.data.DataLoader(OnDevice(), batch_size=4, num_workers=2, multiprocessing_context="spawn")
    model = layers(1024, 4)
    total = 0
    for x in loader:
        total += int(x[:, 0, 0].sum())
        y = x.cuda().float()
        for layer in model:
            y = layer(y)
        y.mean().backward()
    return total


def one_rank(rank, path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.cuda.set_device(rank)
    wide = sized(1024)
    model = nn.Sequential(*layers(wide, 4)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model(torch.randn(600, wide, device="cuda")).square().mean().backward()
        for value in model.parameters():
            mean = value.grad.cpu()
            torch.distributed.all_reduce(mean)
            value.grad.copy_(mean)
        optimizer.step()
        optimizer.zero_grad()
    own = torch.tensor([rank + 1], device="cuda").cpu()
    torch.distributed.all_reduce(own)
    assert int(own) == 3, own
    torch.distributed.destroy_process_group()


def spawned():
    """Two ranks as children of this process, which talk through the host."""
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(one_rank, (folder + "/meeting",), nprocs=2)
    return "both"


HABITS = (recomputed, evaluated, scaled, recurrent, halves, emptied, sparse, offloaded, two_devices, workers, spawned)
if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    said = {each.__name__: each for each in HABITS}[sys.argv[1]]()
    peaks = [peak(i) for i in range(torch.cuda.device_count())] if sys.argv[1] not in ("workers", "spawned") else []
    print(sys.argv[1], said, *peaks)
