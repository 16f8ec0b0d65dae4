"""A preference loop in the manner of TRL: policy and reference, log-probabilities by gather, DPO's loss, offloaded
optimizer."""
import torch
import torch.nn.functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(0)
config = Qwen2Config(vocab_size=2000, hidden_size=256, intermediate_size=512, num_hidden_layers=3,
                     num_attention_heads=4, num_key_value_heads=2)
policy, reference = Qwen2ForCausalLM(config).cuda().bfloat16(), Qwen2ForCausalLM(config).cuda().bfloat16().eval()
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5, foreach=True)


def logps(model, ids, mask):
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
    each = torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None]).squeeze(-1)
    return (each * mask[:, 1:]).sum(-1)


for step in range(4):
    n = 64 + 32 * step
    ids = torch.randint(0, 2000, (4, n)).cuda()
    mask = (torch.arange(n)[None] < torch.tensor([n, n - 5, n - 9, n])[:, None]).long().cuda()
    with torch.no_grad():
        before = logps(reference, ids, mask)
    now = logps(policy, ids, mask)
    chosen, rejected = (now - before).chunk(2)
    loss = -F.logsigmoid(0.1 * (chosen - rejected)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    for state in optimizer.state.values():  # to the host and back
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = state[name].cpu().cuda()
    torch.cuda.empty_cache()
policy.cpu()
torch.cuda.empty_cache()
print("shape", tuple(now.shape))
