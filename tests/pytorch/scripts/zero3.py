"""DeepSpeed's ZeRO-3 with parameters and optimizer on the host: a decoder built in shards, trained, evaluated,
gathered, and its memory told as DeepSpeed tells it. `--device`: with nothing on the host."""
import os
import sys

import deepspeed
import torch
from deepspeed.runtime.utils import see_memory_usage
from transformers import LlamaConfig, LlamaForCausalLM

deepspeed.init_distributed()
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
host = {} if "--device" in sys.argv else {"device": "cpu", "pin_memory": True}
settings = {
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
    "bf16": {"enabled": True, "check_grad_overflow": False},
    "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 3, "overlap_comm": True, "contiguous_gradients": True,
                          "reduce_bucket_size": 65536, "stage3_prefetch_bucket_size": 58982,
                          "stage3_param_persistence_threshold": 2560, "sub_group_size": 1000000,
                          "stage3_gather_16bit_weights_on_model_save": True},
}
if host:
    settings["zero_optimization"].update(offload_param=host, offload_optimizer=host)
config = LlamaConfig(vocab_size=2000, hidden_size=256, intermediate_size=688, num_hidden_layers=4,
                     num_attention_heads=4, num_key_value_heads=2, use_cache=False)
torch.manual_seed(0)
with deepspeed.zero.Init(config_dict_or_path=settings):
    model = LlamaForCausalLM(config)
model.gradient_checkpointing_enable()
engine, _, _, _ = deepspeed.initialize(model=model, config=settings,
                                       optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4))
for step in range(6):
    ids = torch.randint(0, 2000, (2, 64 + 32 * step)).to(device)
    engine.backward(engine(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss)
    engine.step()
see_memory_usage("trained", force=True)
engine.eval()
with torch.no_grad():
    ids = torch.zeros(1, 300, dtype=torch.int64, device=device)
    engine(input_ids=ids, attention_mask=torch.ones_like(ids))
with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
    assert model.model.embed_tokens.weight.shape == (2000, 256)
engine.empty_partition_cache()
deepspeed.comm.barrier()
torch.cuda.synchronize()
sys.stdout.write(f"rank {rank} of {world} is done after {engine.global_steps} steps\n")
sys.stdout.flush()
engine.destroy()
torch.distributed.destroy_process_group()
