"""Fine-tunes a small decoder by LoRA, with checkpointing and lengths that vary, deterministically: the losses are the
same bit for bit however memory is served. usage: tune.py STEPS HIDDEN LAYERS LONGEST [LIMIT_BYTES]"""
import os
import random
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from memory import MODE, peak_reserved, served, tell  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

steps, hidden, layers, longest = map(int, sys.argv[1:5])
limit = int(sys.argv[5]) if len(sys.argv) > 5 else 0
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cuda.matmul.allow_tf32 = False
torch.manual_seed(1)
if limit and MODE == "native":
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
config = Qwen2Config(hidden_size=hidden, intermediate_size=hidden * 11 // 4, num_hidden_layers=layers,
                     num_attention_heads=hidden // 64, num_key_value_heads=max(hidden // 256, 1), vocab_size=16384,
                     tie_word_embeddings=False, attn_implementation="eager")
model = Qwen2ForCausalLM(config).to(torch.bfloat16)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", lora_dropout=0.0)).cuda()
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=2e-4)
lengths = random.Random(7)
losses, times, ended = [], [], "completed"
try:
    for step in range(steps):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        total = None
        for _ in range(4):
            length = min(longest, max(64, int(lengths.lognormvariate(5.8, 0.7)) // 8 * 8))
            ids = torch.randint(0, 16384, (1, length)).cuda()
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            total = loss.detach() if total is None else total + loss.detach()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total.item().hex())
        times.append(time.perf_counter() - begun)
except torch.cuda.OutOfMemoryError as error:
    ended = str(error)[:60]
times.sort()
statistics = served()
tell(ended=ended, losses=losses, step_seconds=times[len(times) // 2] if times else None, peak_reserved=peak_reserved(),
     allocations=statistics.get("allocs", 0), passed_on=statistics.get("passed_on", 0),
     driver_calls=sum(value for name, value in statistics.items() if name.startswith("calls_")),
     torch=torch.__version__)
