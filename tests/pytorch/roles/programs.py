"""Small programs of the usual kinds, whose roles test_roles.py compares. Usage: programs.py NAME [TRUTH]

With TRUTH the program runs under PyTorch's MemTracker, which sees each tensor, and its figures at the peak are written there."""
import contextlib
import copy
import json
import sys
import types

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"


class Block(nn.Module):
    """A layer of a transformer, as an encoder or, with a mask, a decoder has it."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.second, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache=None):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        if cache is not None:
            k, v = cache.update(self, k, v)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal and cache is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class KVCache:
    """Keys and values so far, by layer."""

    def __init__(self):
        self.kept = {}

    def update(self, layer, *pair):
        before = self.kept.get(layer)
        self.kept[layer] = tuple(torch.cat((old, new), 2) for old, new in zip(before, pair)) if before else tuple(x.contiguous() for x in pair)
        return self.kept[layer]


class Decoder(nn.Module):
    def __init__(self, width=192, layers=4, words=2048, tied=False, recompute=False, causal=True):
        super().__init__()
        self.words, self.recompute = nn.Embedding(words, width), recompute
        self.layers = nn.ModuleList(Block(width, 4, causal) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("places", torch.randn(4096, width))
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens, caches=None):
        x = self.words(tokens) + self.places[:tokens.shape[1]]
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x, caches)
        return self.head(self.norm(x))


class LoRA(nn.Module):
    """A frozen layer with a trained one of low rank beside it."""

    def __init__(self, base, rank=8):
        super().__init__()
        self.base, self.a, self.b = base.requires_grad_(False), nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


def convnet():
    layers, before = [], 3
    for width in (48, 48, 96, 96):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(before * 16, 10))


def mlp():
    return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2048, 10))


def images(size=32, batch=32):
    return torch.randn(batch, 3, size, size, device=DEVICE), torch.randint(0, 10, (batch,), device=DEVICE)


def rows():
    return torch.randn(512, 784).to(DEVICE), torch.randint(0, 10, (512,)).to(DEVICE)


def text(batch=8, length=256):
    tokens = torch.randint(0, 2048, (batch, length + 1), device=DEVICE)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model, x, y):
    said = model(x)
    return F.cross_entropy(said.flatten(0, -2), y.flatten())


def train(model, optimizer, batch, watched, steps=4, accumulate=1, autocast=False, clip=False):
    """The usual loop. `watched(model, optimizer)` gives a context and what is called after each step."""
    scaler = torch.amp.GradScaler() if autocast else None
    with watched(model, optimizer) as after:
        for _ in range(steps):
            for _ in range(accumulate):
                x, y = batch()
                with torch.autocast("cuda", torch.float16) if autocast else contextlib.nullcontext():
                    loss = loss_of(model, x, y)
                (scaler.scale(loss) if scaler else loss).backward()
                after()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer) if scaler else optimizer.step()
            if scaler:
                scaler.update()
            optimizer.zero_grad()


def cnn(watched):
    model = convnet().to(DEVICE)
    train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), images, watched)


def mlp_adam(watched):
    model = mlp().to(DEVICE)
    train(model, torch.optim.Adam(model.parameters(), foreach=False), rows, watched)


def mlp_foreach(watched):
    """The peak is in the optimizer's step, with temporaries of all parameters."""
    model = mlp().to(DEVICE)
    train(model, torch.optim.Adam(model.parameters(), foreach=True), rows, watched)


def mlp_fused(watched):
    model = mlp().to(DEVICE)
    train(model, torch.optim.AdamW(model.parameters(), fused=True), rows, watched)


def mlp_sgd(watched):
    """Made on the device, without a state of the optimizer's."""
    with torch.device(DEVICE):
        model = mlp()
    train(model, torch.optim.SGD(model.parameters(), 0.1), rows, watched)


def encoder(watched):
    model = Decoder(causal=False).to(DEVICE)
    train(model, torch.optim.AdamW(model.parameters()), text, watched, clip=True)


def decoder(watched):
    model = Decoder().cuda()
    train(model, torch.optim.AdamW(model.parameters()), text, watched)


def tied(watched):
    model = Decoder(tied=True).to(DEVICE)
    train(model, torch.optim.Adam(model.parameters()), text, watched)


def half(watched):
    """Parameters of 16 bits."""
    model = Decoder().to(DEVICE, torch.bfloat16)
    train(model, torch.optim.Adam(model.parameters()), text, watched)


def amp(watched):
    model = Decoder().to(DEVICE)
    train(model, torch.optim.AdamW(model.parameters()), text, watched, autocast=True)


def recomputed(watched):
    model = Decoder(recompute=True, layers=6).to(DEVICE)
    train(model, torch.optim.AdamW(model.parameters()), text, watched)


def accumulated(watched):
    model = Decoder().to(DEVICE)
    train(model, torch.optim.AdamW(model.parameters()), lambda: text(batch=4), watched, accumulate=3)


def lora(watched):
    model = Decoder().requires_grad_(False)
    for layer in model.layers:
        layer.qkv, layer.up = LoRA(layer.qkv), LoRA(layer.up)
    model.to(DEVICE)
    train(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]), text, watched)


def averaged(watched):
    """A second copy of the model follows the first."""
    model = convnet().to(DEVICE)
    follower = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.RMSprop(model.parameters())
    def watched_both(model, optimizer):
        return watched(nn.ModuleList([model, follower]), optimizer)
    train(model, optimizer, lambda: images(batch=16), watched_both)


def generate(watched):
    model = Decoder().to(DEVICE).eval()
    with watched(model, None) as after, torch.no_grad():
        cache, tokens = KVCache(), torch.randint(0, 2048, (16, 512), device=DEVICE)
        for _ in range(12):
            tokens = model(tokens, cache)[:, -1:].argmax(-1)
            after()


@contextlib.contextmanager
def unwatched(model, optimizer):
    yield lambda: None


def bytes_of(tensors):
    """Of different storages on the device."""
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors if tensor.is_cuda}.values())


def tracked(path):
    """A watcher that writes what MemTracker says of the peak, and the bytes of the optimizer's state. MemTracker calls a gradient temporary
    until a hook has seen it, which may be after the peak. So each tensor there is counted by what MemTracker calls it in the end."""
    from torch.distributed._tools.mem_tracker import MemTracker

    class Tracker(MemTracker):
        peak, at_peak = 0, ()

        def _update_peak_stats(self, peak_state):
            super()._update_peak_stats(peak_state)
            most = max((bytes for device, bytes in self._peak_mem.items() if device.type == "cuda"), default=0)
            if most > self.peak:
                self.peak, self.at_peak = most, [known for known, _ in self._WINFO.values() if known.device.type == "cuda"]

        def _track_module_params_and_buffers(self, module, install_grad_hooks=True):
            for parameter in module.parameters():
                if not parameter.requires_grad:  # the original has a hook for each
                    self._param_to_grad_hook_handles[parameter] = (types.SimpleNamespace(remove=bool), types.SimpleNamespace(remove=bool))
            return super()._track_module_params_and_buffers(module, install_grad_hooks)

    @contextlib.contextmanager
    def watched(model, optimizer):
        tracker = Tracker()
        tracker.track_external(*[each for each in (model, optimizer) if each is not None])
        state = types.SimpleNamespace(bytes=0)

        def after():
            tracker.reset_mod_stats()
            tensors = [value for values in optimizer.state.values() for value in values.values() if torch.is_tensor(value)] if optimizer else []
            state.bytes = bytes_of(tensors)
        with tracker:
            yield after
        told = {}
        for known in tracker.at_peak:
            told[known.reftype.value] = told.get(known.reftype.value, 0) + known.mem_consumed
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"state": state.bytes, "peak": tracker.peak, "told": told}, file)
    return watched


if __name__ == "__main__":
    torch.manual_seed(1)
    globals()[sys.argv[1]](tracked(sys.argv[2]) if len(sys.argv) > 2 else unwatched)
