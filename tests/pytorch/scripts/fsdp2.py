"""FSDP2 as torchtitan has it: a decoder, each layer sharded, bfloat16 with gradients summed in float32, recomputed
activations, accumulation, clipping, validation, a checkpoint and its load; then parameters kept on the host."""
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
mesh = init_device_mesh("cuda", (world,))
config = LlamaConfig(vocab_size=2000, hidden_size=256, intermediate_size=688, num_hidden_layers=4,
                     num_attention_heads=4, num_key_value_heads=2, use_cache=False)


def shard(offload):
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    options = {"mesh": mesh, "offload_policy": CPUOffloadPolicy() if offload else OffloadPolicy(),
               "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for layer in model.model.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model if offload else model.to(device)


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(steps):
        for part in range(2):
            model.set_requires_gradient_sync(part == 1)
            ids = torch.randint(0, 2000, (2, 64 + 32 * step)).to(device)
            model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


model = shard(offload=False)
train(model, 3)
with torch.no_grad():
    model.eval()
    ids = torch.zeros(1, 300, dtype=torch.int64, device=device)
    model(input_ids=ids, attention_mask=torch.ones_like(ids))
    model.train()
whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=whole)
assert rank or state["model.embed_tokens.weight"].shape == (2000, 256)
set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
train(model, 1)
del model
torch.cuda.empty_cache()
train(shard(offload=True), 2)
dist.barrier()
torch.cuda.synchronize()
sys.stdout.write(f"rank {rank} of {world} is done\n")
sys.stdout.flush()
dist.destroy_process_group()
