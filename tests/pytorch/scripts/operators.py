"""A walk over operators, optimizers and attention: each must run and give the right shape."""
import torch
import torch.nn.functional as F

d = {"device": "cuda"}
failed = 0


def shape(name, make, expected):
    global failed
    try:
        got = make()
        torch.cuda.synchronize()
    except Exception as e:
        failed += 1
        print(name, "raised", type(e).__name__, str(e).splitlines()[0][:160])
        return
    if tuple(got.shape) != tuple(expected):
        failed += 1
        print(name, tuple(got.shape), "instead of", expected)


x = torch.zeros(8, 16, **d)
i = torch.arange(8, **d)
shape("sort", lambda: torch.sort(torch.zeros(100, 3000, **d))[0], (100, 3000))
shape("sort large", lambda: torch.sort(torch.zeros(1 << 20, **d), stable=True)[1], (1 << 20,))
shape("argsort", lambda: torch.argsort(x, 1), (8, 16))
shape("topk", lambda: torch.topk(torch.zeros(4, 50000, **d), 50)[0], (4, 50))
shape("kthvalue", lambda: torch.kthvalue(x, 3)[0], (8,))
shape("median", lambda: x.median(1)[0], (8,))
shape("mode", lambda: torch.mode(x)[0], (8,))
shape("quantile", lambda: torch.quantile(x, 0.5, 1), (8,))
shape("scatter", lambda: x.scatter(1, torch.zeros(8, 16, dtype=torch.long, **d), x), (8, 16))
shape("scatter_add", lambda: torch.zeros(8, 16, **d).scatter_add_(0, torch.zeros(8, 16, dtype=torch.long, **d), x),
      (8, 16))
shape("scatter_reduce", lambda: x.scatter_reduce(0, torch.zeros(8, 16, dtype=torch.long, **d), x, "amax"), (8, 16))
shape("index_add", lambda: x.index_add(0, i, x), (8, 16))
shape("index_put", lambda: x.index_put((i,), x[0], accumulate=True), (8, 16))
shape("index_select", lambda: x.index_select(0, i), (8, 16))
shape("take_along_dim", lambda: torch.take_along_dim(x, torch.zeros(8, 1, dtype=torch.long, **d), 1), (8, 1))
shape("gather", lambda: x.gather(1, torch.zeros(8, 2, dtype=torch.long, **d)), (8, 2))
shape("multinomial", lambda: torch.multinomial(torch.ones(5, 100, **d), 7, replacement=True), (5, 7))
shape("bernoulli", lambda: torch.bernoulli(x), (8, 16))
shape("randperm", lambda: torch.randperm(1000, **d), (1000,))
shape("normal", lambda: torch.normal(0.0, 1.0, (10,), **d), (10,))
shape("searchsorted", lambda: torch.searchsorted(torch.arange(10.0, **d), x), (8, 16))
shape("bucketize", lambda: torch.bucketize(x, torch.arange(10.0, **d)), (8, 16))
shape("bincount", lambda: torch.bincount(torch.zeros(100, dtype=torch.long, **d), minlength=10)[:10], (10,))
shape("histc", lambda: torch.histc(x, 10, 0, 1), (10,))
shape("cumsum", lambda: torch.zeros(1 << 18, **d).cumsum(0), (1 << 18,))
shape("cumprod", lambda: x.cumprod(1), (8, 16))
shape("logcumsumexp", lambda: x.logcumsumexp(1), (8, 16))
shape("cummax", lambda: x.cummax(1)[0], (8, 16))
shape("nonzero", lambda: torch.zeros(100, **d).nonzero()[:0], (0, 1))
shape("masked_select", lambda: x.masked_select(x > 1)[:0], (0,))
shape("unique", lambda: torch.unique(torch.zeros(100, **d))[:0], (0,))
shape("where", lambda: torch.where(x > 0, x, x), (8, 16))
shape("roll", lambda: x.roll(3, 1).flip(0), (8, 16))
shape("tril", lambda: torch.ones(64, 64, **d).tril(), (64, 64))
shape("cdist", lambda: torch.cdist(x, torch.zeros(5, 16, **d)), (8, 5))
shape("cdist p1", lambda: torch.cdist(x, torch.zeros(5, 16, **d), p=1), (8, 5))
shape("pdist", lambda: F.pdist(x), (28,))
shape("einsum", lambda: torch.einsum("bi,ci->bc", x, x), (8, 8))
shape("baddbmm", lambda: torch.baddbmm(torch.zeros(2, 3, 5, **d), torch.zeros(2, 3, 4, **d), torch.zeros(2, 4, 5, **d)),
      (2, 3, 5))
shape("addmv", lambda: torch.addmv(torch.zeros(8, **d), x, torch.zeros(16, **d)), (8,))
shape("dot", lambda: torch.dot(x[0], x[0]), ())
shape("double mm", lambda: x.double() @ x.double().T, (8, 8))
shape("complex mm", lambda: x.cfloat() @ x.cfloat().T, (8, 8))
shape("half mm", lambda: x.half() @ x.half().T, (8, 8))
shape("int8 mm", lambda: torch._int_mm(torch.zeros(32, 32, dtype=torch.int8, **d),
                                       torch.zeros(32, 32, dtype=torch.int8, **d)), (32, 32))
for name in ("fft", "ifft", "rfft", "hfft", "fft2", "fftn"):
    shape(name, lambda: getattr(torch.fft, name)(torch.zeros(4, 32, **d)).reshape(4, -1)[:, :1], (4, 1))
shape("irfft", lambda: torch.fft.irfft(torch.zeros(4, 17, dtype=torch.cfloat, **d)), (4, 32))
shape("stft", lambda: torch.stft(torch.zeros(2, 4000, **d), 400, window=torch.hann_window(400, **d),
                                 return_complex=True), (2, 201, 41))
a = torch.eye(16, **d)
for name, count in (("inv", 1), ("det", 0), ("slogdet", 0), ("pinv", 1), ("matrix_exp", 1), ("eigvalsh", 1),
                    ("svdvals", 1), ("cholesky", 1), ("lu_factor", 1), ("qr", 1), ("eigh", 1)):
    def make():
        got = getattr(torch.linalg, name)(a)
        return got if torch.is_tensor(got) else got[0]
    shape("linalg." + name, lambda: make().reshape(-1)[:1], (1,))
shape("linalg.lstsq", lambda: torch.linalg.lstsq(a, a)[0], (16, 16))
shape("linalg.solve_triangular", lambda: torch.linalg.solve_triangular(a, a, upper=True), (16, 16))
shape("linalg batch inv", lambda: torch.linalg.inv(a.expand(10, 16, 16).contiguous()), (10, 16, 16))
shape("linalg batch svd", lambda: torch.linalg.svd(a.expand(4, 16, 16).contiguous())[0], (4, 16, 16))
shape("linalg batch eigh", lambda: torch.linalg.eigh(a.expand(4, 16, 16).contiguous())[1], (4, 16, 16))
shape("lu_solve", lambda: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a), (16, 16))
shape("cholesky_solve", lambda: torch.cholesky_solve(a, a), (16, 16))
coo = torch.sparse_coo_tensor(torch.stack([i, i]), torch.ones(8, **d), (8, 8))
shape("coo mm", lambda: torch.sparse.mm(coo, torch.zeros(8, 4, **d)), (8, 4))
shape("coalesce", lambda: torch.sparse_coo_tensor(torch.stack([i, i]), torch.ones(8, **d), (8, 8)).coalesce(), (8, 8))
shape("coo add", lambda: (coo + coo), (8, 8))
shape("to_dense", lambda: coo.to_dense(), (8, 8))
csr = torch.sparse_csr_tensor(torch.arange(9, **d), i, torch.ones(8, **d), (8, 8))
shape("csr mv", lambda: csr @ torch.zeros(8, **d), (8,))
shape("csr mm", lambda: csr @ torch.zeros(8, 4, **d), (8, 4))
shape("sampled_addmm", lambda: torch.sparse.sampled_addmm(csr, torch.zeros(8, 4, **d), torch.zeros(4, 8, **d)), (8, 8))
shape("sparse softmax", lambda: torch.sparse.softmax(coo, 1), (8, 8))
e = torch.nn.Embedding(100, 16, sparse=True).cuda()
def sparse_step():
    o = torch.optim.SparseAdam(e.parameters())
    e(i).sum().backward()
    o.step()
    return e.weight
shape("sparse embedding", sparse_step, (100, 16))
shape("embedding_bag", lambda: F.embedding_bag(i, torch.zeros(100, 16, **d), torch.tensor([0, 4], **d)), (2, 16))
im = torch.zeros(2, 8, 20, 20, requires_grad=True, **d)
def through(make):
    def run():
        y = make()
        y.sum().backward()
        return y
    return run
w = torch.zeros(12, 8, 3, 3, requires_grad=True, **d)
shape("conv2d", through(lambda: F.conv2d(im, w, padding=1)), (2, 12, 20, 20))
shape("conv2d dilated", through(lambda: F.conv2d(im, w, dilation=2)), (2, 12, 16, 16))
shape("conv2d half", through(lambda: F.conv2d(im.half(), w.half(), stride=2)), (2, 12, 9, 9))
shape("conv2d bf16 last", through(lambda: F.conv2d(im.bfloat16().to(memory_format=torch.channels_last), w.bfloat16())),
      (2, 12, 18, 18))
shape("conv depthwise", through(lambda: F.conv2d(im, torch.zeros(8, 1, 3, 3, requires_grad=True, **d), groups=8)),
      (2, 8, 18, 18))
shape("conv_transpose2d", through(lambda: F.conv_transpose2d(im, torch.zeros(8, 4, 3, 3, requires_grad=True, **d),
                                                             stride=2)), (2, 4, 41, 41))
shape("conv1d", through(lambda: F.conv1d(torch.zeros(2, 8, 50, **d), torch.zeros(4, 8, 5, requires_grad=True, **d))),
      (2, 4, 46))
shape("conv3d", through(lambda: F.conv3d(torch.zeros(1, 3, 8, 8, 8, **d),
                                         torch.zeros(4, 3, 3, 3, 3, requires_grad=True, **d))), (1, 4, 6, 6, 6))
shape("max_pool2d", through(lambda: F.max_pool2d(im, 2)), (2, 8, 10, 10))
shape("avg_pool2d", through(lambda: F.avg_pool2d(im, 2)), (2, 8, 10, 10))
shape("interpolate", through(lambda: F.interpolate(im, scale_factor=2, mode="bilinear")), (2, 8, 40, 40))
shape("grid_sample", through(lambda: F.grid_sample(im, torch.zeros(2, 5, 5, 2, **d), align_corners=False)),
      (2, 8, 5, 5))
shape("unfold", through(lambda: F.unfold(im, 3)), (2, 72, 324))
shape("group_norm", through(lambda: F.group_norm(im, 4)), (2, 8, 20, 20))
shape("instance_norm", through(lambda: F.instance_norm(im)), (2, 8, 20, 20))
shape("batch_norm", through(lambda: torch.nn.BatchNorm2d(8).cuda()(im)), (2, 8, 20, 20))
shape("sync bn", through(lambda: torch.nn.SyncBatchNorm(8).cuda().eval()(im)), (2, 8, 20, 20))
shape("rms_norm", lambda: F.rms_norm(x, (16,)), (8, 16))
shape("ctc_loss", lambda: F.ctc_loss(torch.zeros(50, 4, 20, **d).log_softmax(2), torch.ones(4, 10, dtype=torch.long),
                                     torch.full((4,), 50), torch.full((4,), 10)), ())
shape("ctc_loss cuda", lambda: F.ctc_loss(torch.zeros(50, 4, 20, **d).log_softmax(2),
                                          torch.ones(4, 10, dtype=torch.int32), torch.full((4,), 50, dtype=torch.int32),
                                          torch.full((4,), 10, dtype=torch.int32)), ())
shape("cross_entropy", lambda: F.cross_entropy(torch.zeros(32, 50000, **d), torch.zeros(32, dtype=torch.long, **d)), ())
shape("nll 2d", lambda: F.nll_loss(torch.zeros(2, 5, 8, 8, **d), torch.zeros(2, 8, 8, dtype=torch.long, **d)), ())
shape("multi_margin", lambda: F.multi_margin_loss(x, torch.zeros(8, dtype=torch.long, **d)), ())
shape("transformer",
      lambda: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).cuda()(torch.zeros(2, 10, 64, **d)), (2, 10, 64))
shape("transformer fast",
      lambda: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).cuda().eval()(torch.zeros(2, 10, 64, **d)), (2, 10, 64))
shape("mha", lambda: torch.nn.MultiheadAttention(64, 4, batch_first=True).cuda()(*[torch.zeros(2, 10, 64, **d)] * 3)[0],
      (2, 10, 64))
shape("lstm", lambda: torch.nn.LSTM(16, 8, 2, dropout=0.1, bidirectional=True).cuda()(torch.zeros(5, 3, 16, **d))[0],
      (5, 3, 16))
shape("lstm packed",
      lambda: torch.nn.LSTM(16, 8, batch_first=True).cuda()(torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(3, 5, 16, **d), torch.tensor([5, 3, 2]), batch_first=True))[0].data, (10, 8))
shape("lstm cell", lambda: torch.nn.LSTMCell(16, 8).cuda()(x)[0], (8, 8))
q = torch.zeros(2, 8, 128, 64, requires_grad=True, **d)
from torch.nn.attention import SDPBackend, sdpa_kernel
for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION):
    with sdpa_kernel(backend):
        shape(f"sdpa {backend.name}", through(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True, dropout_p=0.1)), (2, 8, 128, 64))
h = q.detach().bfloat16().requires_grad_()
for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
    with sdpa_kernel(backend):
        shape(f"sdpa bf16 {backend.name}", through(lambda: F.scaled_dot_product_attention(h, h, h, is_causal=True)),
              (2, 8, 128, 64))
shape("sdpa mask", through(lambda: F.scaled_dot_product_attention(h, h, h,
                                                                  attn_mask=torch.ones(128, 128, dtype=torch.bool, **d))), (2, 8, 128, 64))
shape("sdpa gqa", through(lambda: F.scaled_dot_product_attention(h, h[:, :2], h[:, :2], enable_gqa=True)),
      (2, 8, 128, 64))
shape("sdpa 192", lambda: F.scaled_dot_product_attention(*[torch.zeros(1, 2, 64, 192, dtype=torch.half, **d)] * 3),
      (1, 2, 64, 192))
n = torch.nested.nested_tensor([torch.zeros(3, 64), torch.zeros(7, 64)], layout=torch.jagged, **d)
shape("nested", lambda: (torch.nn.Linear(64, 8).cuda()(n)).values(), (10, 8))
shape("quantize", lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), (8, 16))
shape("fp8", lambda: torch.zeros(16, 16, **d).to(torch.float8_e4m3fn).float(), (16, 16))
shape("special",
      lambda: torch.special.bessel_j0(x) + torch.lgamma(x) + torch.erfinv(x) + torch.polygamma(1, x) + torch.igamma(x, x), (8, 16))
shape("complex", lambda: torch.view_as_real(torch.polar(x, x).exp()), (8, 16, 2))
shape("angle", lambda: torch.polar(x, x).angle(), (8, 16))
shape("bitwise", lambda: (i << 2) ^ (i & 3) | ~i, (8,))
shape("foreach", lambda: torch._foreach_add([x, x], 1.0)[0], (8, 16))
shape("foreach norm", lambda: torch.stack(torch._foreach_norm([x, x])), (2,))
shape("cat many", lambda: torch.cat([x] * 300), (2400, 16))
shape("stack", lambda: torch.stack([x] * 10, -1), (8, 16, 10))
shape("split", lambda: torch.cat(torch.split(x, 3)), (8, 16))
shape("repeat_interleave", lambda: x.repeat_interleave(2, 0), (16, 16))
shape("tensordot", lambda: torch.tensordot(x, x, dims=([1], [1])), (8, 8))
shape("renorm", lambda: x.renorm(2, 0, 1.0), (8, 16))
shape("var_mean", lambda: torch.var_mean(x)[0], ())
shape("reduce big", lambda: torch.zeros(1 << 22, **d).sum(), ())
shape("trapz", lambda: torch.trapezoid(x), (8,))
shape("weight_norm", lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 4)).cuda()(x), (8, 4))
shape("spectral_norm", lambda: torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(16, 4)).cuda()(x), (8, 4))
shape("transfer", lambda: torch.zeros(1000, 1000).pin_memory().to("cuda", non_blocking=True).to("cpu", non_blocking=True), (1000, 1000))
shape("strided copy", lambda: torch.zeros(100, 100, **d).t()[::2].contiguous().cpu(), (50, 100))
shape("numpy", lambda: torch.from_numpy(torch.zeros(10, **d).cpu().numpy()), (10,))
shape("dlpack", lambda: torch.from_dlpack(x), (8, 16))
shape("storage", lambda: torch.empty(0, **d).set_(x.untyped_storage().clone(), 0, (8, 16)) if False else x.clone(),
      (8, 16))
shape("resize", lambda: torch.empty(0, **d).resize_(5, 5), (5, 5))
for name in ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Rprop", "NAdam", "RAdam", "Adamax", "ASGD",
             "LBFGS", "Adafactor", "Muon"):
    if not hasattr(torch.optim, name):
        continue
    for options in ({}, {"foreach": True}, {"fused": True}, {"capturable": True}):
        def optimize():
            m = torch.nn.Linear(16, 16, bias=False).cuda()
            o = getattr(torch.optim, name)(m.parameters(), lr=0.1, **options)
            for _ in range(2):
                def closure():
                    o.zero_grad()
                    loss = m(x).sum()
                    loss.backward()
                    return loss
                o.step(closure)
            return m.weight
        try:
            optimize()
        except TypeError:
            continue
        except RuntimeError as e:
            if "fused" in str(e) or "capturable" in str(e):
                continue
        shape(f"{name} {options}", optimize, (16, 16))
print("failed", failed)
raise SystemExit(failed != 0)
