"""Full pretraining of a small decoder: float32 weights under bf16 autocast, batches that grow, an evaluation."""
import torch
from record import UNPACKED, Run
from transformers import Qwen2Config, Qwen2ForCausalLM

run = Run()
config = Qwen2Config(hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
                     num_key_value_heads=8, vocab_size=8192)
with torch.device("cuda"):
    model = Qwen2ForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
with run.shapes:
    for step in range(6):
        batch, length = (1, 2, 4)[step // 2], (256, 384, 512)[step % 3]
        ids = torch.randint(0, 8192, (batch, length)).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, attention_mask=UNPACKED).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 3 == 2:
            model.eval()
            with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
                ids = torch.randint(0, 8192, (8, 320)).cuda()
                model(input_ids=ids, labels=ids, attention_mask=UNPACKED).loss.item()
            model.train()
        run.step()
run.finish()
