#!/usr/bin/env python3
"""Programs of many kinds, beside those that were recorded: writes traces in RMM's replay format, each the same for a
seed.

    loads.py FOLDER [--seed N] [--replay SEGALLOC [--pytorch] [--tight-most X] [--card-most X] [--roomy]] [NAME…]

One file a program, NAME.csv. They imitate the order in which frameworks allocate (a tensor for each operation, the
inputs freed when the last reference goes), with sizes drawn from the seed; nothing is copied from a recording. With
--replay each is played, and a row of a table printed: multiples of live; --pytorch adds the smallest card of PyTorch's
best configuration. Exit status 1 when one reserves more than --tight-most at reserve_slack:1.0, needs a larger card than
--card-most, or with --roomy, on a card of twice live, reserves more than 1.110 x live and than PyTorch's expandable segments."""
import argparse
import json
import pathlib
import random
import subprocess
import sys

from language_models import (Decoder, serve_dyncache, serve_dyn_gqa2, serve_dyn_mha, serve_dyn_one,
                             serve_batching, serve_static, serve_paged, train, train_lengths, rl_alternation)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Program:
    """What is allocated and freed, in order. Blocks are numbers; the one freed last is given out first."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rows, self.unused, self.size = [], [], {}
        self.next = 1

    def new(self, size):
        block = self.unused.pop() if self.unused else self.next
        self.next = max(self.next, block + 1)
        self.size[block] = size = max(1, int(size))
        self.rows.append(("allocate", block, size))
        return block

    def free(self, *blocks):
        for block in blocks:
            self.rows.append(("free", block, self.size.pop(block)))
            self.unused.append(block)

    def brief(self, *sizes):
        """Tensors that are gone at once."""
        for size in sizes:
            self.free(self.new(size))

    def replace(self, block, size):
        """A new tensor computed from an old one that nobody needs any more."""
        made = self.new(size)
        self.free(block)
        return made

    def write(self, path):
        with open(path, "w") as out:
            out.write("Thread,Time,Action,Pointer,Size,Stream\n")
            for time, (action, block, size) in enumerate(self.rows):
                second, rest = divmod(time, 1000000)
                out.write(f"0,00:00:{second:02}:{rest:06},{action},{block << 9:#x},{size},0\n")


def vision_transformer(p):
    """Images of several sizes, batches that fill a budget of patches."""
    model = Decoder(p, 16, 768, 12, 12, 3072, 1000)
    train(p, model, lambda: p.random.randint(2, 24) * (1 + (p.random.randrange(160, 448, 32) // 14) ** 2), 30)


def convnet(p):
    """Activations that shrink by halves, a workspace for each convolution."""
    stages = [(64, 4, 3), (256, 4, 3), (512, 8, 4), (1024, 16, 6), (2048, 32, 3)]
    weights = [p.new(wide * wide // 4 * 9 * 4) for wide, _, depth in stages for _ in range(depth)]
    moments = None
    for step in range(40):
        batch, side, saved = p.random.choice((8, 12, 16, 24)), p.random.randrange(160, 320, 16), []
        image = p.new(batch * 3 * side * side * 4)
        x = image
        for wide, shrink, depth in stages:
            for _ in range(depth):
                size = batch * wide * (-(-side // shrink)) ** 2 * 4
                space = p.new(p.random.choice((0.3, 0.7, 1.9)) * size)
                made = p.new(size)
                p.free(space)
                saved += [made, p.new(wide * 4), p.new(wide * 4), p.new(size)]
        gradient, gradients = p.new(batch * 1000 * 4), []
        for index, block in enumerate(reversed(saved)):
            space = p.new(p.size[block] * p.random.choice((0.5, 1.1)))
            gradient = p.replace(gradient, p.size[block])
            p.free(space, block)
            if index % 4 == 3:
                gradients.append(p.new(p.size[weights[-1 - index // 4]]))
        p.free(gradient, image)
        moments = moments or [p.new(p.size[weight]) for weight in weights]
        p.free(*gradients)


def diffusion(p):
    """A denoiser called for twice the batch each step (guidance), attention over large maps, then a decoder with one
    high peak."""
    widths = (320, 640, 1280, 1280)
    weights = [p.new(wide * wide * p.random.choice((1, 4, 9)) * 2) for wide in widths for _ in range(40)]
    for _ in range(4):
        batch, side = p.random.choice((1, 2, 3, 4)), p.random.choice((64, 80, 96, 112, 128))
        latent, text = p.new(batch * 4 * side * side * 2), p.new(2 * batch * 77 * 2048 * 2)
        for _ in range(20):
            double = p.new(2 * batch * 4 * side * side * 2)
            skips, x = [], p.new(2 * batch * widths[0] * side * side * 2)
            for level, wide in enumerate(widths):
                area = (side >> level) ** 2
                for _ in range(2):
                    size = 2 * batch * wide * area * 2
                    wide32 = p.new(2 * size)
                    x = p.replace(x, size)
                    p.free(wide32)
                    q, k, v = (p.new(size) for _ in range(3))
                    if area <= 4096:
                        p.brief(2 * batch * 8 * area * area * 2)
                    out = p.new(size)
                    p.free(q, k, v)
                    inner = p.new(8 * size)
                    gated = p.new(4 * size)
                    p.free(inner)
                    x = p.replace(x, size)
                    p.free(gated, out)
                    skips.append(p.new(size))
            for level, wide in reversed(list(enumerate(widths))):
                for _ in range(2):
                    skip = skips.pop()
                    joined = p.new(p.size[x] + p.size[skip])
                    p.free(skip)
                    x = p.replace(x, p.size[joined] // 2)
                    p.free(joined)
            noise = p.replace(x, 2 * batch * 4 * side * side * 2)
            p.free(double)
            latent = p.replace(latent, batch * 4 * side * side * 2)
            p.free(noise)
        x = p.new(batch * 512 * side * side * 2)
        for level, wide in enumerate((512, 512, 256, 128)):
            size = batch * wide * (side << level) ** 2 * 2
            for _ in range(3):
                normed = p.new(size)
                x = p.replace(x, size)
                p.free(normed)
        p.free(x, latent, text)


def graph_batches(p):
    """Neighbours sampled anew for each batch: no size comes twice."""
    table = p.new(p.random.randint(600, 1200) * MIB)
    weights = [p.new(size) for size in (602 * 256 * 4, 256 * 256 * 4, 256 * 41 * 4) for _ in range(4)]
    for _ in range(400):
        counts = [1024]
        for reach in (15, 10, 5):
            counts.append(int(counts[-1] * reach * p.random.uniform(0.25, 0.6)))
        edges = [p.new(count * 2 * 8) for count in counts[1:]]
        features = p.new(counts[-1] * 602 * 4)
        kept = []
        for count in reversed(counts[:-1]):
            message = p.new(count * 5 * 256 * 4)
            kept += [p.new(count * 256 * 4), p.new(count * 256 * 4)]
            p.free(message)
        for block in reversed(kept):
            p.brief(p.size[block], p.size[block] * 2)
            p.free(block)
        p.free(features, *edges)
    p.free(table, *weights)


def rapids(p):
    """Data frames: many columns of mixed widths with bit masks, joins and groupings that make further ones."""
    frames = []

    def frame(rows, columns):
        made = []
        for _ in range(columns):
            width = p.random.choice((1, 2, 4, 4, 8, 8, 8))
            if p.random.random() < 0.25:
                made.append(p.new((rows + 1) * 4))
                width = p.random.randint(3, 40)
            made.append(p.new(rows * width))
            if p.random.random() < 0.5:
                made.append(p.new((rows // 8 + 63) // 64 * 64))
        return made

    for _ in range(260):
        rows = int(min(6e6, 3e4 * p.random.paretovariate(0.7)))
        action = p.random.random()
        if action < 0.35 or len(frames) < 3:
            frames.append(frame(rows, p.random.randint(4, 40)))
        elif action < 0.7:
            source = p.random.choice(frames)
            index = [p.new(rows * 4), p.new(rows * 4)]
            scratch = p.new(rows * 16 + 1024)
            made = [p.new(p.size[block] * p.random.uniform(0.2, 1.1)) for block in source]
            p.free(scratch, *index)
            if p.random.random() < 0.6:
                frames.append(made)
            else:
                p.free(*made)
        else:
            p.brief(rows * 8, rows * 12)
        while sum(p.size[block] for made in frames for block in made) > 3 * GIB:
            p.free(*frames.pop(p.random.randrange(len(frames))))
    for made in frames:
        p.free(*made)


def cupy_small(p):
    """Many arrays of numbers, most of them small; some tens of MiB at the peak."""
    held = []
    for _ in range(20000):
        size = int(min(2 * MIB, 2 * KIB * p.random.paretovariate(0.8)))
        if p.random.random() < 0.5:
            p.brief(size, size)
        else:
            held.append(p.new(size))
        while len(held) > 900:
            p.free(held.pop(p.random.randrange(len(held))))
    p.free(*held)


def cupy_tiny(p):
    """The same with a peak of a few MiB."""
    held = []
    for _ in range(20000):
        held.append(p.new(p.random.choice((8, 64, 800, 8000, 8192, 40000, 80000))))
        while len(held) > 300:
            p.free(held.pop(int(len(held) * p.random.random() ** 2)))
    p.free(*held)


def cupy_large(p):
    """Arrays of a simulation with temporaries for each expression."""
    side = p.random.randint(180, 260)
    fields = [p.new(side ** 3 * 8) for _ in range(12)]
    for _ in range(300):
        cut = p.random.randint(side // 2, side)
        a = p.new(side * side * cut * 8)
        b = p.new(side * cut * cut * 8)
        a = p.replace(a, side * side * cut * 8)
        p.brief(side ** 2 * 8, side * 8, 8)
        p.free(a)
        p.brief(p.size[b] // 8)
        p.free(b)
        if p.random.random() < 0.2:
            which = p.random.randrange(len(fields))
            fields[which] = p.replace(fields[which], side ** 3 * 8)
    p.free(*fields)


def jax_arena(p):
    """Compiled programs: parameters donated and made anew, one large temporary for each program, a few shapes."""
    parameters = [p.new(p.random.choice((0.004, 4, 16, 44, 44, 64)) * MIB) for _ in range(160)]
    shapes = [p.random.uniform(0.6, 3) for _ in range(4)]
    for step in range(80):
        shape = p.random.choice(shapes)
        batch = p.new(shape * 8 * MIB)
        arena = p.new(shape * GIB)
        outputs = [p.new(shape * p.random.choice((4, 100, 4096, 300000))) for _ in range(6)]
        p.free(arena)
        if step % 2:
            made = [p.new(p.size[block]) for block in parameters[:40]]
            p.free(*parameters[:40])
            parameters = parameters[40:] + made
        p.free(batch, *outputs)
    p.free(*parameters)


def lora_lengths(p):
    """Checkpointing: one tensor a layer stays, each layer's work is done again in the backward."""
    model = Decoder(p, 28, 3072, 24, 8, 8192, 64000)
    adapters = [p.new(size) for _ in range(model.layers * 7) for size in (64 * 3072 * 4, 64 * 3072 * 4)]
    for step in range(24):
        rows = int(min(4096, p.random.lognormvariate(6.6, 0.7)) + 32)
        hidden, kept = p.new(rows * model.hidden * 2), []
        for _ in range(model.layers):
            keep = p.new(p.size[hidden])
            kept.append(keep)
            hidden = model.layer(hidden, rows, lambda k, v: p.free(k, v))
        logits = model.logits(hidden, rows)
        wide = p.new(rows * model.vocabulary * 4)
        p.free(logits)
        gradient = p.replace(p.replace(wide, rows * model.vocabulary * 2), rows * model.hidden * 2)
        gradients = []
        for keep in reversed(kept):
            again = []
            top = model.layer(p.new(p.size[keep]), rows, lambda k, v: again.extend((k, v)), again)
            for block in reversed(again):
                p.brief(p.size[block])
                p.free(block)
            p.free(top, keep)
            gradient = p.replace(gradient, rows * model.hidden * 2)
            gradients += [p.new(64 * 3072 * 4) for _ in range(14)]
        p.free(gradient)
        if step == 0:
            moments = [p.new(p.size[block]) for block in adapters for _ in range(2)]
        p.free(*gradients)


def serve_bursts(p):
    """A pool of cache blocks as large as a first run leaves room for, buffers of captured graphs, prompts in bursts,
    adapters that come and go."""
    model = Decoder(p, 24, 2048, 16, 4, 5632, 64000)

    def step(rows, some):
        hidden = p.new(rows * model.hidden * 2)
        slots, table = p.new(rows * 8), p.new(max(1, rows // 16) * 256)
        for _ in range(model.layers):
            hidden = model.layer(hidden, rows, lambda k, v: p.free(k, v))
        hidden = p.replace(hidden, some * model.hidden * 2)
        model.choose(model.logits(hidden, some), some)
        p.free(slots, table)

    step(4096, 256)  # to see what is left
    pool = [p.new(96 * MIB) for _ in range(model.layers)]
    graphs = [p.new(rows * model.hidden * 2 * p.random.choice((1, 2, 3))) for rows in range(8, 264, 8)
              for _ in range(3)]
    adapters = []
    for _ in range(140):
        if p.random.random() < 0.15:
            rank = p.random.choice((8, 16, 32, 64))
            adapters.append([p.new(rank * model.hidden * 2) for _ in range(model.layers * 8)])
        if len(adapters) > 4:
            p.free(*adapters.pop(p.random.randrange(len(adapters))))
        waiting = p.random.choice((0, 0, 0, p.random.randint(1, 12)))
        if waiting:
            prompt = sum(int(min(2048, 48 * p.random.paretovariate(0.8))) for _ in range(waiting))
            while prompt > 0:
                step(min(prompt, 4096), waiting)
                prompt -= 4096
        running = p.random.randint(4, 128)
        for _ in range(2):
            step(running, running)
    for adapter in adapters:
        p.free(*adapter)
    p.free(*graphs, *pool)


def video_diffusion(p):
    """A denoiser over all frames at once; then the decoder, tile by tile and few frames at a time, whose results are
    kept and joined."""
    wide = 1536
    weights = [p.new(size) for _ in range(24) for size in (wide * wide * 2,) * 4 + (wide * 4 * wide * 2,) * 2]
    decoder = [p.new(p.random.choice((1, 2, 4)) * 384 * 384 * 27 * 2) for _ in range(24)]
    for _ in range(3):
        frames, high, across = p.random.choice((9, 13, 17, 21)), p.random.randrange(30, 61, 2), p.random.randrange(52, 105, 4)
        tokens = frames * (high // 2) * (across // 2)
        latent = p.new(frames * high * across * 16 * 4)
        text = p.new(2 * 512 * wide * 2)
        for _ in range(12):
            for _ in range(2):  # with and without the text, one after the other
                x, turns = p.new(tokens * wide * 2), p.new(tokens * 64 * 8)
                for _ in range(24):
                    normed = p.replace(p.new(tokens * wide * 4), tokens * wide * 2)
                    q, k, v = (p.new(tokens * wide * 2) for _ in range(3))
                    p.free(normed)
                    p.brief(tokens * wide * 8)
                    out = p.new(tokens * wide * 2)
                    p.free(q, k, v)
                    x = p.replace(x, tokens * wide * 2)
                    p.free(out)
                    inner = p.new(tokens * wide * 8)
                    inner = p.replace(inner, tokens * wide * 8)
                    x = p.replace(x, tokens * wide * 2)
                    p.free(inner)
                noise = p.new(p.size[latent])
                p.free(x, turns)
                p.brief(p.size[latent])
                p.free(noise)
            latent = p.replace(latent, p.size[latent])
        rows = []
        for top in range(0, high, 24):
            row = []
            for left in range(0, across, 24):
                tall, broad = min(32, high - top), min(32, across - left)
                tiles, held = [], [p.new(size * tall * broad * 2) for size in (384 * 2, 384 * 2, 768 * 4, 1536 * 8)]
                for first in range(0, frames, 2):
                    x = p.new(384 * 2 * tall * broad * 2)
                    for level, channels in enumerate((384, 384, 192, 96)):
                        size = channels * min(4, 2 << level) * tall * broad * 4 ** level * 2
                        for _ in range(3):
                            normed = p.new(size)
                            space = p.new(size * p.random.choice((0.4, 1.1)))
                            x = p.replace(x, size)
                            p.free(normed, space)
                        held[level] = p.replace(held[level], p.size[held[level]])
                    tiles.append(p.replace(x, 3 * (4 if first else 1) * tall * broad * 64 * 2))
                joined = p.new(sum(p.size[tile] for tile in tiles))
                p.free(*tiles, *held)
                row.append(joined)
            rows.append(row)
        made = [p.new(sum(p.size[tile] for tile in row)) for row in rows]
        for row in rows:
            p.free(*row)
        video = p.new(sum(p.size[row] for row in made))
        p.free(*made)
        p.brief(p.size[video] * 2)
        p.free(video, latent, text)
    p.free(*weights, *decoder)


def moe_training(p):
    """Tokens go to experts in other numbers each time: what each of them keeps has a size of its own."""
    layers, hidden, inner, experts = 8, 1024, 1408, 16
    weights = [p.new(size * 2) for _ in range(layers)
               for size in [hidden * hidden] * 4 + [hidden * inner] * 3 * experts]
    states = None
    for _ in range(16):
        rows = p.random.randint(3, 8) * 1024
        x, saved = p.new(rows * hidden * 2), []
        for _ in range(layers):
            keep = [x]
            q, k, v, out = (p.new(rows * hidden * 2) for _ in range(4))
            keep += [q, k, v, out, p.new(rows * 16 * 4)]
            x = p.new(rows * hidden * 2)
            scores = p.new(rows * experts * 4)
            keep += [p.new(rows * 2 * 8), p.new(rows * 2 * 4), scores]
            share = [p.random.lognormvariate(0, 0.7) for _ in range(experts)]
            sent = p.new(2 * rows * hidden * 2)
            back = p.new(2 * rows * hidden * 2)
            for part in share:
                count = max(1, int(2 * rows * part / sum(share)))
                taken, gate, up = p.new(count * hidden * 2), p.new(count * inner * 2), p.new(count * inner * 2)
                product = p.new(count * inner * 2)
                p.brief(count * hidden * 2)
                keep += [taken, gate, up, product]
            p.free(sent)
            keep.append(back)
            x, old = p.new(rows * hidden * 2), x
            keep.append(old)
            saved.append(keep)
        gradient, gradients = p.replace(x, rows * hidden * 2), []
        for keep in reversed(saved):
            for block in reversed(keep):
                p.brief(p.size[block])
                if p.size[block] % (2 * inner) == 0:
                    gradients.append(p.new(hidden * inner * 2))
                p.free(block)
            gradients += [p.new(hidden * hidden * 2) for _ in range(4)]
            gradient = p.replace(gradient, rows * hidden * 2)
        p.free(gradient)
        states = states or [p.new(2 * p.size[weight]) for weight in weights for _ in range(2)]
        p.free(*gradients)


def speech_beams(p):
    """Recordings of all lengths are encoded; the caches of several beams grow a token a step and are put in another
    order each time."""
    wide, heads_layers, beams = 1280, 24, 5
    weights = [p.new(size) for _ in range(2 * heads_layers)
               for size in [wide * wide * 2] * 4 + [4 * wide * wide * 2] * 2]
    for _ in range(14):
        batch = p.random.randint(1, 6)
        frames = int(min(3000, 150 * p.random.paretovariate(0.8)))
        sound = p.new(batch * frames * 160 * 4)
        mel = p.replace(p.new(batch * frames * 201 * 8), batch * frames * 80 * 4)
        p.free(sound)
        x = p.replace(mel, batch * frames // 2 * wide * 2)
        for _ in range(heads_layers):
            size = batch * (frames // 2) * wide * 2
            q, k, v = (p.new(size) for _ in range(3))
            p.brief(batch * 20 * (frames // 2) * min(frames // 2, 512) * 2)
            out = p.new(size)
            p.free(q, k, v)
            x = p.replace(x, size)
            p.free(out)
            inner = p.new(4 * size)
            x = p.replace(x, size)
            p.free(inner)
        cross = [p.new(beams * batch * (frames // 2) * wide * 2) for _ in range(2 * heads_layers)]
        p.free(x)
        cache = [p.new(beams * batch * wide * 2) for _ in range(2 * heads_layers)]
        for tokens in range(2, 2 + max(4, min(180, frames // 14))):
            for index in range(2 * heads_layers):
                cache[index] = p.replace(cache[index], beams * batch * tokens * wide * 2)
            logits = p.new(beams * batch * 51866 * 4)
            p.brief(p.size[logits], beams * batch * 2 * 8)
            p.free(logits)
            cache = [p.replace(block, p.size[block]) for block in cache]  # in the order of the beams that are left
        p.free(*cache, *cross)
    p.free(*weights)


def xla_train(p):
    """A compiled step: one arena, state donated in place, the figures of a few steps kept until they are written; now
    and then an evaluation in another arena."""
    state = [p.new(p.random.choice((0.01, 0.5, 8, 32, 32, 96)) * MIB) for _ in range(150)]
    train, evaluate, figures = p.random.uniform(1, 3), p.random.uniform(0.5, 2), []
    for step in range(150):
        batch = p.new(p.random.choice((9, 9, 12)) * MIB)
        evaluates = step % 10 == 9
        arena = p.new((evaluate if evaluates else train) * GIB)
        if evaluates:
            outputs = [p.new(p.random.choice((400, 200000, 700000))) for _ in range(3)]
            p.free(arena, batch, *outputs)
            continue
        figures.append(p.new(p.random.choice((4, 4000, 150000, 600000))))
        p.free(arena)
        if len(figures) > 20:
            p.free(*figures)
            figures = []
        p.free(batch)
    p.free(*state, *figures)


def renderer(p):
    """Textures come and go under a budget, trees over meshes are built with scratch memory and then compacted, targets
    follow the window."""
    textures, held, targets, trees, budget = [], 0, [], [], 2600 * MIB
    for frame in range(900):
        if frame % 150 == 0:
            p.free(*targets)
            window = p.random.choice((1280 * 720, 1920 * 1080, 2560 * 1440, 3840 * 2160))
            targets = [p.new(window * width) for width in (4, 8, 8, 16, 16, 4, 2, 8 * p.random.choice((4, 8, 16)))]
        if frame % 12 == 0:
            size = p.random.uniform(2, 180) * MIB
            built, scratch, answer = p.new(size), p.new(size * p.random.uniform(0.3, 0.9)), p.new(64)
            trees.append(p.new(size * p.random.uniform(0.45, 0.7)))
            p.free(built, scratch, answer)
            if len(trees) > 14:
                p.free(trees.pop(p.random.randrange(14)))
        for _ in range(p.random.choice((0, 0, 1, 2, 6))):
            side = 1 << p.random.choice((8, 9, 10, 10, 11, 11, 12, 12, 13))
            size = int(side * side * p.random.choice((0.5, 1, 4, 8)) * 4 / 3)
            stage = p.new(size)
            textures.append(p.new(size))
            p.free(stage)
            held += size
            while held > budget:
                oldest = textures.pop(min(p.random.randrange(len(textures)) for _ in range(2)))
                held -= p.size[oldest]
                p.free(oldest)
        p.brief(p.random.randint(1, 40) * MIB, 300 * KIB)
    p.free(*textures, *targets, *trees)


PROGRAMS = (serve_dyncache, serve_dyn_gqa2, serve_dyn_mha, serve_dyn_one, serve_batching, serve_static, serve_paged,
            train_lengths, rl_alternation, vision_transformer, convnet, diffusion, graph_batches, rapids, cupy_small,
            cupy_tiny, cupy_large, jax_arena, lora_lengths, serve_bursts, video_diffusion, moe_training, speech_beams,
            xla_train, renderer)


RAN_OUT = 3  # the exit status of a replay in which an allocation failed


def replayed(segalloc, path, conf, *more):
    command = [segalloc, "replay", str(path), "--json", *(["--conf", conf] if conf else []), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, RAN_OUT):
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


ROOMY_MOST = 1.110  # of live, on a card of twice that, unless PyTorch's expandable segments reserve more


def replay(segalloc, path, options):
    """Prints the row of one trace; returns whether it reserves more than it may."""
    live = replayed(segalloc, path, "")["peak_requested_bytes"]
    tight = replayed(segalloc, path, "reserve_slack:1.0", "--limit", str(2 * live))
    roomy = replayed(segalloc, path, "", "--limit", str(2 * live))["peak_reserved_bytes"]
    expandable = replayed(segalloc, path, "expandable_segments:True", "--policy", "pytorch")["peak_reserved_bytes"]
    close = replayed(segalloc, path, "", "--limit", str(live * 102 // 100))
    card = replayed(segalloc, path, "", "--min-limit")["min_limit_bytes"]
    theirs = ("", "max_split_size_mb:128", "expandable_segments:True", "expandable_segments:True,max_split_size_mb:128")
    best = [replayed(segalloc, path, conf, "--min-limit", "--policy", "pytorch")["min_limit_bytes"] for conf in theirs
            if options.pytorch]
    print(f"{path.stem:18} {live / GIB:7.2f} GiB, slack 1.0 {tight['peak_reserved_bytes'] / live:.4f}, roomy {roomy / live:.4f} ({expandable / live:.4f}), "
          f"moves on 1.02 {close['driver_us']['moves'] / close['allocs']:.3f} ms/1000, card {card / live:.4f}"
          + (f", PyTorch's {min(best) / live:.4f}" if best else ""), flush=True)
    return tight["peak_reserved_bytes"] > options.tight_most * live or card > options.card_most * live or (options.roomy and roomy > max(ROOMY_MOST * live, expandable))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", metavar="SEGALLOC")
    parser.add_argument("--pytorch", action="store_true")
    parser.add_argument("--tight-most", type=float, default=float("inf"))
    parser.add_argument("--card-most", type=float, default=float("inf"))
    parser.add_argument("--roomy", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_intermixed_args()
    over = False
    for program in PROGRAMS:
        if options.names and program.__name__ not in options.names:
            continue
        made = Program(f"{program.__name__} {options.seed}")
        program(made)
        path = options.folder / f"{program.__name__}.csv"
        made.write(path)
        if options.replay:
            over |= replay(options.replay, path, options)
    sys.exit(over)


if __name__ == "__main__":
    main()
