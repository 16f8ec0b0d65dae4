"""generate() of a tiny random model with a static cache, which Hugging Face compiles by itself on a GPU.
usage: static_cache.py sim|gpu"""
import importlib.util
import sys

import torch
from memory import tell
from transformers import LlamaConfig, LlamaForCausalLM

hidden = 64 if sys.argv[1] == "sim" else 512
torch.manual_seed(3)
config = LlamaConfig(hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=512, max_position_embeddings=256)
model = LlamaForCausalLM(config).cuda().eval()
prompt = torch.arange(1, 17, device="cuda").unsqueeze(0)
compiles = importlib.util.find_spec("triton") is not None
options = {} if compiles else {"disable_compile": True}
with torch.no_grad():
    for _ in range(2):
        result = model.generate(prompt, max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0,
                                cache_implementation="static", **options)
torch.cuda.synchronize()
tell(tokens=result[0].tolist() if sys.argv[1] != "sim" else result.shape[1], compiled=compiles)
