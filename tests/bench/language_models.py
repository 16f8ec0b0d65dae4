"""Language models as programs of loads.py: serving with several kinds of caches, and training with lengths that differ."""
MIB = 1 << 20


class Decoder:
    """A transformer of 16-bit weights."""

    def __init__(self, program, layers, hidden, heads, kv_heads, inner, vocabulary, width=2):
        self.p, self.layers, self.hidden, self.heads, self.kv_heads, self.inner, self.vocabulary = program, layers, hidden, heads, kv_heads, inner, vocabulary
        self.head, self.width = hidden // heads, width
        self.weights = [program.new(vocabulary * hidden * width)]
        for _ in range(layers):
            for size in self.matrices():
                self.weights.append(program.new(size * width))
            self.weights += [program.new(hidden * width), program.new(hidden * width)]
        self.weights += [program.new(hidden * width), program.new(vocabulary * hidden * width)]

    def matrices(self):
        hidden, kv = self.hidden, self.kv_heads * self.head
        return hidden * hidden, kv * hidden, kv * hidden, hidden * hidden, self.inner * hidden, self.inner * hidden, self.inner * hidden

    def norm(self, rows):
        p, size = self.p, rows * self.hidden
        wide = p.new(size * 4)
        square = p.new(size * 4)
        mean = p.new(rows * 4)
        p.free(square)
        mean = p.replace(p.replace(mean, rows * 4), rows * 4)
        scaled = p.new(size * 4)
        p.free(wide, mean)
        return p.replace(p.replace(scaled, size * 2), size * 2)

    def rotate(self, block, size):
        p = self.p
        cosine = p.new(size)
        half = p.replace(p.new(size / 2), size)
        sine = p.replace(half, size)
        turned = p.new(size)
        p.free(cosine, sine, block)
        return turned

    def layer(self, hidden, rows, attend, keep=None):
        """One layer of the forward; attend(keys, values) takes this step's keys and values. keep: a list of what the
        backward needs."""
        p, h, kv = self.p, rows * self.hidden * 2, rows * self.kv_heads * self.head * 2
        gone = (lambda *blocks: keep.extend(blocks)) if keep is not None else p.free
        normed = self.norm(rows)
        q, k, v = p.new(h), p.new(kv), p.new(kv)
        gone(normed)
        q, k = self.rotate(q, h), self.rotate(k, kv)
        attend(k, v)
        out = p.new(h)
        p.brief(self.heads * rows * 4)
        gone(q)
        projected = p.new(h)
        gone(out)
        residual = p.new(h)
        p.free(projected)
        gone(hidden)
        normed = self.norm(rows)
        inner = rows * self.inner * 2
        gate = p.new(inner)
        active = p.new(inner)
        gone(gate)
        up = p.new(inner)
        gone(normed)
        product = p.new(inner)
        gone(active, up)
        down = p.new(h)
        gone(product)
        hidden = p.new(h)
        p.free(down)
        gone(residual)
        return hidden

    def logits(self, hidden, rows, wide=True):
        p, size = self.p, rows * self.vocabulary
        normed = self.norm(rows)
        p.free(hidden)
        logits = p.new(size * 2)
        p.free(normed)
        if wide:
            logits = p.replace(logits, size * 4)
        return logits

    def choose(self, logits, rows):
        p = self.p
        p.brief(rows * self.vocabulary * 4, rows * self.vocabulary * 8)
        probability = p.new(rows * self.vocabulary * 4)
        p.brief(rows * 8)
        p.free(probability, logits)


class DynamicCache:
    """transformers' cache: each step makes each layer's keys and values anew, one token longer."""

    def __init__(self, model, batch):
        self.p, self.model, self.batch, self.tokens = model.p, model, batch, [0] * model.layers
        self.keys, self.values = [None] * model.layers, [None] * model.layers

    def size(self, tokens):
        return self.batch * self.model.kv_heads * tokens * self.model.head * 2

    def update(self, layer, k, v, tokens):
        self.tokens[layer] += tokens
        for table, new in ((self.keys, k), (self.values, v)):
            old = table[layer]
            if old is None:
                table[layer] = new
            else:
                table[layer] = self.p.new(self.size(self.tokens[layer]))
                self.p.free(old)
        if self.keys[layer] != k:
            self.p.free(k, v)

    def repeat(self, layer):
        """Keys and values once for each head, as attention without grouped queries has them."""
        wide = self.size(self.tokens[layer]) // self.model.kv_heads * self.model.heads
        self.p.brief(wide, wide)

    def drop(self, order=None):
        for layer in order or range(self.model.layers):
            self.p.free(self.keys[layer], self.values[layer])


def generate(model, cache, batch, prompt, steps, repeat):
    p = model.p
    for step in range(steps + 1):
        rows = batch * (prompt if step == 0 else 1)
        ids, mask = p.new(rows * 8), p.new(batch * (prompt + step) * 8)
        hidden = p.new(rows * model.hidden * 2)
        for layer in range(model.layers):
            def attend(k, v):
                cache.update(layer, k, v, rows // batch)
                if repeat:
                    cache.repeat(layer)
            hidden = model.layer(hidden, rows, attend)
        if rows > batch:
            hidden = p.replace(hidden, batch * model.hidden * 2)
        model.choose(model.logits(hidden, batch), batch)
        p.free(ids, mask)


def serving(program, model, requests, batches, prompts, steps, repeat):
    for _ in range(requests):
        batch, prompt = program.random.choice(batches), program.random.randint(*prompts)
        cache = DynamicCache(model, batch)
        generate(model, cache, batch, prompt, program.random.randint(*steps), repeat)
        cache.drop()


def serve_dyncache(p):
    """8 key and value heads of 32, batches of a few requests."""
    serving(p, Decoder(p, 24, 2048, 32, 8, 5632, 32000), 4, (4, 6, 8, 12), (100, 900), (60, 160), True)


def serve_dyn_gqa2(p):
    """Two key and value heads, so the caches are small pieces."""
    serving(p, Decoder(p, 28, 1536, 12, 2, 8960, 50000), 4, (8, 16, 24, 32), (200, 900), (60, 140), False)


def serve_dyn_mha(p):
    """A head of keys for each head: the caches outweigh the model."""
    serving(p, Decoder(p, 24, 1024, 16, 16, 2816, 32000), 4, (4, 8, 12, 16), (100, 700), (60, 160), False)


def serve_dyn_one(p):
    """One request at a time, a long answer."""
    serving(p, Decoder(p, 30, 2560, 20, 20, 6912, 40000), 2, (1,), (20, 600), (120, 240), False)


def serve_batching(p):
    """Requests come and go, each with a cache of its own that grows a token a step."""
    model = Decoder(p, 16, 2048, 16, 4, 5632, 32000)
    running = []
    for step in range(500):
        while len(running) < 12 and p.random.random() < 0.2:
            cache, prompt = DynamicCache(model, 1), int(min(3000, 64 * p.random.paretovariate(0.9)))
            generate(model, cache, 1, prompt, 0, False)
            running.append([cache, int(20 * p.random.paretovariate(1.1))])
        rows = len(running)
        if not rows:
            continue
        hidden = p.new(rows * model.hidden * 2)
        for layer in range(model.layers):
            def attend(k, v):
                p.free(k, v)
                for cache, _ in running:
                    one = model.kv_heads * model.head * 2
                    cache.update(layer, p.new(one), p.new(one), 1)
            hidden = model.layer(hidden, rows, attend)
        model.choose(model.logits(hidden, rows), rows)
        for request in [r for r in running if r[1] <= 0]:
            request[0].drop()
            running.remove(request)
        for request in running:
            request[1] -= 1
    for cache, _ in running:
        cache.drop()


def serve_static(p):
    """Caches of a fixed length for a batch; prompts of many lengths."""
    model = Decoder(p, 24, 2048, 16, 8, 5632, 32000)
    for _ in range(6):
        batch, longest = p.random.choice((2, 4, 8)), p.random.randrange(512, 3072, 64)
        caches = [p.new(batch * model.kv_heads * longest * model.head * 2) for _ in range(2 * model.layers)]
        for step in range(40):
            rows = batch * (p.random.randint(64, 400) if step == 0 else 1)
            hidden = p.new(rows * model.hidden * 2)
            for layer in range(model.layers):
                hidden = model.layer(hidden, rows, lambda k, v: p.free(k, v))
            model.choose(model.logits(hidden, rows), rows)
        p.free(*caches)


def serve_paged(p):
    """Blocks of a cache taken once; prompts in pieces of varying length."""
    model = Decoder(p, 20, 2560, 20, 4, 6912, 50000)
    pool = [p.new(160 * MIB) for _ in range(model.layers)]
    for _ in range(120):
        rows = p.random.choice((p.random.randint(1, 64), p.random.randint(200, 2048)))
        table = p.new(rows * 128)
        hidden = p.new(rows * model.hidden * 2)
        for _ in range(model.layers):
            hidden = model.layer(hidden, rows, lambda k, v: p.free(k, v))
        some = min(rows, 64)
        hidden = p.replace(hidden, some * model.hidden * 2)
        model.choose(model.logits(hidden, some), some)
        p.free(table)
    p.free(*pool)


def train(p, model, rows_of, steps, optimizer=True):
    """Full training: all activations kept, gradients beside, AdamW made at the first step."""
    states = None
    for _ in range(steps):
        rows = rows_of()
        hidden, saved = p.new(rows * model.hidden * 2), []
        for _ in range(model.layers):
            keep = []
            hidden = model.layer(hidden, rows, lambda k, v: keep.extend((k, v)), keep)
            saved.append(keep)
        logits = model.logits(hidden, rows)
        loss = p.new(rows * 4)
        wide = p.new(rows * model.vocabulary * 4)
        p.free(logits, loss)
        gradient = p.replace(p.replace(wide, rows * model.vocabulary * 2), rows * model.hidden * 2)
        gradients = [p.new(p.size[model.weights[-1]])]
        for layer in reversed(range(model.layers)):
            wide = p.new(rows * model.inner * 2)
            for block in reversed(saved[layer]):
                p.brief(p.size[block])
                p.free(block)
            p.free(wide)
            gradient = p.replace(gradient, rows * model.hidden * 2)
            for weight in model.weights[1 + 9 * layer:10 + 9 * layer]:
                gradients.append(p.new(p.size[weight]))
        p.free(gradient)
        gradients.append(p.new(p.size[model.weights[0]]))
        if optimizer and states is None:
            states = [p.new(2 * p.size[weight]) for weight in model.weights for _ in range(2)]
        for weight in model.weights:
            p.brief(2 * p.size[weight])
        p.free(*gradients)
    return states


def train_lengths(p):
    """Language model, another number of tokens each step."""
    train(p, Decoder(p, 12, 1024, 16, 16, 2816, 32000), lambda: p.random.randint(1, 4) * int(min(2048, p.random.lognormvariate(6, 0.8)) + 16), 30)


def rl_alternation(p):
    """Answers are generated with a growing cache, then trained on."""
    model = Decoder(p, 14, 1536, 12, 4, 4096, 50000)
    for _ in range(3):
        batch, prompt, steps = p.random.choice((8, 12, 16)), p.random.randint(64, 300), p.random.randint(60, 160)
        cache = DynamicCache(model, batch)
        generate(model, cache, batch, prompt, steps, True)
        cache.drop()
        train(p, model, lambda: p.random.randint(1, 3) * (prompt + p.random.randint(steps // 2, steps)), 5,
              optimizer=False)
