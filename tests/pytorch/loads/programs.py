"""Programs of the usual kinds, small enough to be recorded on the simulated GPU in a minute or so each; sizes differ
from step to step as a seed says. What is allocated when is what they are for: nothing that they compute is looked at.

Usage: programs.py NAME [SEED]"""
import copy
import random
import sys

import torch
from torch import nn
from torch.nn import functional as F
import transformers as hf


def half():
    return torch.autocast("cuda", dtype=torch.bfloat16)


def build(kind, config, dtype=torch.bfloat16):
    """A model made on the device, in a small type from the first."""
    with torch.device("cuda"):
        torch.set_default_dtype(dtype)
        model = kind(config)
        torch.set_default_dtype(torch.float32)
    return model


def tokens(rows, length):
    return torch.randint(1, 1000, (rows, length)).cuda()


def learn(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def finish(optimizer):
    """A step that keeps no gradients beyond it."""
    optimizer.step()
    optimizer.zero_grad()


def bert():
    """Sentences of any length, as many as fit."""
    model = hf.BertForMaskedLM(hf.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                                             intermediate_size=4096)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(24):
        length = random.randint(40, 512)
        ids = tokens(max(2, 8192 // length // 2), length)
        with half():
            loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        finish(optimizer)


def gpt2():
    """Gradients are accumulated, and the model is evaluated now and then."""
    model = hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=1024, n_layer=24, n_head=16)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(10):
        for _ in range(3):
            ids = tokens(4, 1024)
            with half():
                (model(input_ids=ids, labels=ids).loss / 3).backward()
        finish(optimizer)
        if step % 4 == 3:
            model.eval()
            with torch.no_grad(), half():
                model(input_ids=tokens(6, 700))
            model.train()


def t5():
    """An encoder with a decoder, both of any length, and an optimizer that keeps little."""
    model = hf.T5ForConditionalGeneration(hf.T5Config(
        d_model=1024, d_kv=64, d_ff=2816, num_layers=24, num_decoder_layers=24, num_heads=16,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0)).cuda()
    optimizer = hf.optimization.Adafactor(model.parameters())
    for _ in range(14):
        rows, length, answer = random.choice((4, 8)), random.randint(64, 512), random.randint(16, 128)
        with half():
            loss = model(input_ids=tokens(rows, length), labels=tokens(rows, answer)).loss
        loss.backward()
        finish(optimizer)


def mae():
    """A masked autoencoder of images, in batches of three sizes."""
    model = hf.ViTMAEForPreTraining(hf.ViTMAEConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                                                    intermediate_size=4096)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(15):
        rows = random.choice((64, 96, 80))
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(pixel_values=torch.randn(rows, 3, 224, 224, device="cuda")).loss
        learn(optimizer, loss)


def resnet():
    """Images of four sizes, channels last, with a scaler."""
    model = hf.ResNetForImageClassification(hf.ResNetConfig()).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for step in range(25):
        size = random.choice((160, 192, 224, 256))
        rows = random.choice((64, 96, 128)) if step % 5 == 4 else 96
        images = torch.randn(rows, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
        labels = torch.zeros(rows, dtype=torch.long).cuda()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(images).logits, labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def convnext():
    """A second model follows the first one's parameters, and is evaluated with larger batches."""
    model = hf.ConvNextForImageClassification(hf.ConvNextConfig(depths=[3, 3, 27, 3],
                                                                hidden_sizes=[96, 192, 384, 768])).cuda()
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(20):
        size = random.choice((192, 224, 256, 288))
        images = torch.randn(48, 3, size, size, device="cuda")
        labels = torch.zeros(48, dtype=torch.long, device="cuda")
        with half():
            loss = F.cross_entropy(model(images).logits, labels)
        learn(optimizer, loss)
        with torch.no_grad():
            for mean, value in zip(average.parameters(), model.parameters()):
                mean.lerp_(value, 0.01)
        if step % 7 == 6:
            with torch.no_grad():
                average(torch.randn(100, 3, 256, 256, device="cuda"))


class Residual(nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, wide), nn.Conv2d(wide, out, 3, 1, 1)
        self.norm2, self.conv2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, 1, 1)
        self.skip = nn.Conv2d(wide, out, 1) if wide != out else nn.Identity()

    def forward(self, x):
        return self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x)))))) + self.skip(x)


class Attention(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.inputs, self.output = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)

    def forward(self, x):
        rows, wide, high, across = x.shape
        flat = x.flatten(2).transpose(1, 2)
        query, key, value = self.inputs(flat).view(rows, high * across, 3, 8, wide // 8).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(rows, high * across, wide)
        return x + self.output(seen).transpose(1, 2).view(rows, wide, high, across)


class Denoiser(nn.Module):
    WIDTHS = (192, 384, 576, 768)

    def __init__(self):
        super().__init__()
        wide = self.WIDTHS[0]
        self.first, self.down, self.up = nn.Conv2d(4, wide, 3, 1, 1), nn.ModuleList(), nn.ModuleList()
        for level, out in enumerate(self.WIDTHS):
            self.down.append(nn.ModuleList([
                Residual(wide, out), Residual(out, out), Attention(out) if level > 1 else nn.Identity(),
                nn.Conv2d(out, out, 3, 2, 1) if level < 3 else nn.Identity()]))
            wide = out
        self.middle = nn.Sequential(Residual(wide, wide), Attention(wide), Residual(wide, wide))
        for level, out in reversed(list(enumerate(self.WIDTHS))):
            self.up.append(nn.ModuleList([Residual(wide + out, out), Residual(out, out),
                                          Attention(out) if level > 1 else nn.Identity()]))
            wide = out
        self.last = nn.Conv2d(wide, 4, 3, 1, 1)

    def forward(self, x):
        hidden, kept = self.first(x), []
        for one, two, attention, half_size in self.down:
            hidden = attention(two(one(hidden)))
            kept.append(hidden)
            hidden = half_size(hidden)
        hidden = self.middle(hidden)
        for level, (one, two, attention) in enumerate(self.up):
            if level:
                hidden = F.interpolate(hidden, scale_factor=2)
            hidden = attention(two(one(torch.cat([hidden, kept.pop()], 1))))
        return self.last(hidden)


def unet():
    """A denoiser learns from images of several shapes, and makes some now and then."""
    model = Denoiser().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(20):
        high, across = random.choice(((64, 64), (48, 80), (80, 48), (56, 72), (96, 40)))
        x = torch.randn(8, 4, high, across, device="cuda")
        with half():
            loss = (model(x) - x).square().mean()
        learn(optimizer, loss)
        if step % 6 == 5:
            with torch.inference_mode(), half():
                y = torch.randn(16, 4, 64, 64, device="cuda")
                for _ in range(5):
                    y = y - 0.1 * model(y)


def gan():
    """Two models learn in turn, one of them with a penalty on gradients of gradients."""
    up = [layer for wide, out in ((512, 256), (256, 128), (128, 64), (64, 32))
          for layer in (nn.ConvTranspose2d(wide, out, 4, 2, 1), nn.BatchNorm2d(out), nn.ReLU())]
    maker = nn.Sequential(nn.ConvTranspose2d(128, 512, 4), nn.BatchNorm2d(512), nn.ReLU(), *up,
                          nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh()).cuda()
    down = [layer for wide, out in ((3, 32), (32, 64), (64, 128), (128, 256), (256, 512))
            for layer in (nn.Conv2d(wide, out, 4, 2, 1), nn.LeakyReLU(0.2))]
    judge = nn.Sequential(*down, nn.Flatten(), nn.Linear(512 * 16, 1)).cuda()
    of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    for _ in range(60):
        rows = random.choice((128, 192, 256))
        real = torch.randn(rows, 3, 128, 128, device="cuda")
        made = maker(torch.randn(rows, 128, 1, 1, device="cuda"))
        loss = judge(real).mean() - judge(made.detach()).mean()
        between = (0.5 * real + 0.5 * made.detach()).requires_grad_()
        slope, = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
        loss = loss + slope.square().mean()
        learn(of_judge, loss)
        loss = judge(made).mean()
        learn(of_maker, loss)


def gru():
    """A recurrent network, unrolled over texts of any length."""
    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(30000, 1024)
            self.cells = nn.ModuleList(nn.GRUCell(1024, 1024) for _ in range(3))
            self.output = nn.Linear(1024, 30000)

        def forward(self, ids):
            states, out = [torch.zeros(ids.shape[0], 1024, device="cuda") for _ in self.cells], []
            for at in range(ids.shape[1]):
                value = self.words(ids[:, at])
                for layer, cell in enumerate(self.cells):
                    value = states[layer] = cell(value, states[layer])
                out.append(value)
            return self.output(torch.stack(out, 1))

    model = Unrolled().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        ids = tokens(32, random.randint(20, 110))
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        learn(optimizer, loss)


def graphs():
    """Each step another graph of nodes and edges."""
    class Layer(nn.Module):
        def __init__(self, wide, out):
            super().__init__()
            self.of_others, self.own = nn.Linear(wide, out), nn.Linear(wide, out)

        def forward(self, x, edges):
            messages = x[edges[0]]
            gathered = torch.zeros(x.shape[0], x.shape[1], device="cuda").index_add_(0, edges[1], messages)
            return torch.relu(self.of_others(gathered) + self.own(x))

    model = nn.ModuleList([Layer(128, 256), Layer(256, 256), Layer(256, 256), Layer(256, 64)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(80):
        nodes = random.randint(20000, 120000)
        count = nodes * random.randint(4, 9)
        x = torch.randn(nodes, 128, device="cuda")
        edges = torch.stack([torch.arange(count, device="cuda") % nodes,
                             (torch.arange(count, device="cuda") * 7) % nodes])
        for layer in model:
            x = layer(x, edges)
        loss = x.square().mean()
        learn(optimizer, loss)


def experts():
    """A mixture of experts, all of whose parameters learn."""
    model = build(hf.MixtralForCausalLM, hf.MixtralConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4,
        vocab_size=32000, num_local_experts=8))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(12):
        ids = tokens(4, random.choice((512, 768, 1024, 900)))
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        finish(optimizer)


def lora():
    """Adapters of a model of 3 B, with checkpoints of its layers."""
    from peft import LoraConfig, get_peft_model
    model = build(hf.LlamaForCausalLM, hf.LlamaConfig(
        hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24, num_key_value_heads=8,
        vocab_size=128256, tie_word_embeddings=True))
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
                                             task_type="CAUSAL_LM", lora_dropout=0.05))
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for _ in range(12):
        for _ in range(2):
            ids = tokens(2, random.randint(200, 1500))
            model(input_ids=ids, labels=ids, attention_mask=torch.ones_like(ids)).loss.backward()
        finish(optimizer)


def whisper():
    """Speech to text: a large encoder's output stays while a decoder's caches grow."""
    model = build(hf.WhisperForConditionalGeneration, hf.WhisperConfig(
        d_model=1280, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20, decoder_attention_heads=20,
        encoder_ffn_dim=5120, decoder_ffn_dim=5120, num_mel_bins=128, vocab_size=51866), torch.float16).eval()
    with torch.inference_mode():
        for _ in range(4):
            rows = random.choice((1, 4, 8))
            heard = model.model.encoder(torch.randn(rows, 128, 3000, dtype=torch.float16, device="cuda"))
            cache = hf.EncoderDecoderCache(hf.DynamicCache(), hf.DynamicCache())
            ids = torch.ones((rows, 1), dtype=torch.long).cuda()
            for _ in range(random.randint(30, 80)):
                out = model(decoder_input_ids=ids, encoder_outputs=heard, past_key_values=cache, use_cache=True)
                ids = out.logits[:, -1:].argmax(-1)


def beams():
    """transformers' own generation, with one beam or four."""
    model = build(hf.LlamaForCausalLM, hf.LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
        vocab_size=32000, eos_token_id=None, pad_token_id=0)).eval()
    with torch.inference_mode():
        for _ in range(6):
            rows, length = random.choice((1, 2, 6)), random.randint(50, 700)
            ids = tokens(rows, length)
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=random.randint(20, 60),
                           num_beams=random.choice((1, 4)), do_sample=False)


def caches():
    """Each request's cache is made anew, a token longer, at every step."""
    model = build(hf.LlamaForCausalLM, hf.LlamaConfig(
        hidden_size=2560, intermediate_size=6912, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=32, vocab_size=50304)).eval()
    with torch.inference_mode():
        for _ in range(10):
            rows, length = random.choice((1, 2, 4, 8)), random.randint(50, 900)
            cache, ids = hf.DynamicCache(), tokens(rows, length)
            for _ in range(random.randint(30, 90)):
                out = model(input_ids=ids, past_key_values=cache, use_cache=True)
                ids = out.logits[:, -1:].argmax(-1)
            del cache, out


def merged():
    """Requests that come and go are decoded together: their caches are put together, and taken apart."""
    layers = 16
    model = build(hf.LlamaForCausalLM, hf.LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256)).eval()

    def entries(cache):
        return [(cache.layers[i].keys, cache.layers[i].values) for i in range(layers)]

    batch, left, length = None, [], 0
    with torch.inference_mode():
        for _ in range(250):
            if len(left) < 12 and (random.random() < 0.15 or not left):
                prompt, cache = random.randint(50, 800), hf.DynamicCache()
                model(input_ids=tokens(1, prompt), past_key_values=cache, use_cache=True, logits_to_keep=1)
                added = entries(cache)
                del cache
                if batch is None:
                    batch, length, left = added, prompt, [random.randint(20, 120)]
                else:
                    new = max(prompt, length)
                    batch = [tuple(torch.cat([F.pad(t, (0, 0, new - t.shape[2], 0)) for t in pair])
                                   for pair in zip(*both)) for both in zip(batch, added)]
                    length = new
                    left.append(random.randint(20, 120))
                del added
            cache = hf.DynamicCache()
            for i in range(layers):
                cache.update(*batch[i], i)
            batch = None
            model(input_ids=torch.ones((len(left), 1), dtype=torch.long).cuda(), past_key_values=cache, use_cache=True,
                  logits_to_keep=1)
            batch = entries(cache)
            del cache
            length += 1
            left = [steps - 1 for steps in left]
            stay = [i for i, steps in enumerate(left) if steps > 0]
            if len(stay) < len(left):
                left, chosen = [left[i] for i in stay], torch.tensor(stay, device="cuda")
                batch = [tuple(t[chosen] for t in pair) for pair in batch] if stay else None


def answers():
    """A model answers, and then learns from its answers."""
    model = build(hf.Qwen2ForCausalLM, hf.Qwen2Config(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
        vocab_size=151936, tie_word_embeddings=True))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        cache, prompt = hf.DynamicCache(), random.randint(100, 300)
        ids = tokens(16, prompt)
        with torch.no_grad():
            model.eval()
            answer = random.randint(40, 120)
            for _ in range(answer):
                ids = model(input_ids=ids, past_key_values=cache, use_cache=True,
                            logits_to_keep=1).logits[:, -1:].argmax(-1)
            del cache
        model.train()
        model.gradient_checkpointing_enable()
        for _ in range(4):
            x = tokens(4, prompt + answer)
            loss = model(input_ids=x, labels=x, use_cache=False).loss
            loss.backward()
        finish(optimizer)


PROGRAMS = (bert, gpt2, t5, mae, resnet, convnext, unet, gan, gru, graphs, experts, lora, whisper, beams, caches,
            merged, answers)
torch.manual_seed(0)
random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
{each.__name__: each for each in PROGRAMS}[sys.argv[1]]()
