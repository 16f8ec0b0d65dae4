"""LoRA on a small decoder of transformers, by PEFT, with checkpointing and sequences of different lengths."""
import random

import torch
from peft import LoraConfig, get_peft_model
from record import UNPACKED, Run
from transformers import Qwen2Config, Qwen2ForCausalLM

run = Run()
lengths = random.Random(0)
config = Qwen2Config(hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
                     num_key_value_heads=2, vocab_size=8192, tie_word_embeddings=False)
with torch.device("cuda"):
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", lora_dropout=0.1))
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4)
with run.shapes:
    for step in range(3):
        for _ in range(4):
            length = min(1024, max(16, int(lengths.lognormvariate(5.5, 0.7)) // 8 * 8))
            ids = torch.randint(0, 8192, (1, length)).cuda()
            model(input_ids=ids, labels=ids, attention_mask=UNPACKED).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.step()
run.finish()
