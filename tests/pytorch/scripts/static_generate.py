"""Decoding by `generate()` with a cache of fixed size, which transformers compiles with CUDA graphs."""
import torch
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                                     num_attention_heads=4, num_key_value_heads=2)).cuda().half().eval()
config = CompileConfig(mode="reduce-overhead")
for length in (17, 17, 9):
    ids = torch.randint(1, 500, (2, length)).cuda()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False,
                         eos_token_id=None, cache_implementation="static", compile_config=config)
    print("generate", tuple(out.shape))
torch.cuda.synchronize()
from torch._inductor.cudagraph_trees import get_container
manager = get_container(0).tree_manager
print("graphs", manager is not None and manager.graph is not None)
