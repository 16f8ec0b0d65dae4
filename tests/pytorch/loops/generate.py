"""Generation with a key-value cache that grows by a token at a time."""
import torch
from record import Run
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

run = Run()
config = LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
                     num_key_value_heads=4, vocab_size=8192, eos_token_id=None, pad_token_id=0)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
with run.shapes, torch.no_grad():
    for batch, prompt in ((1, 100), (4, 300), (2, 700)):
        # Not generate(): whether it goes on is decided by what is read from the device.
        ids, cache = torch.randint(1, 8192, (batch, prompt)).cuda(), DynamicCache()
        for _ in range(48):
            logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            ids = logits[:, -1:].argmax(-1)
        assert cache.get_seq_length() == prompt + 47, cache.get_seq_length()
        del cache
        run.step()
run.finish()
