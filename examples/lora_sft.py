"""LoRA fine-tuning of a 7B model with transformers and PEFT, as it is written everywhere.

Run it on a GPU as it is, or ask without one whether it fits:

    segalloc rehearse --card 24GiB,40GiB -- python examples/lora_sft.py

The model has the shapes of Qwen2.5-7B and uninitialised weights, so nothing is downloaded; lengths are drawn from a
seeded distribution with a long tail, as those of instructions are.
"""
import argparse
import math
import random
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.initialization import no_init_weights

SHAPES = {
    "7b": dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
               num_key_value_heads=4, vocab_size=152064, tie_word_embeddings=False),
    "0.5b": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                 num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True),
    "tiny": dict(hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
                 num_key_value_heads=2, vocab_size=4096, tie_word_embeddings=False),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, default="7b")
    parser.add_argument("--rank", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1, help="sequences of a micro-batch")
    parser.add_argument("--accumulation", type=int, default=16, help="micro-batches of a step")
    parser.add_argument("--longest", type=int, default=2048, help="tokens after which a sequence is cut")
    parser.add_argument("--median", type=float, default=700, help="tokens of the sequence in the middle")
    parser.add_argument("--sigma", type=float, default=0.7, help="spread of the lengths' logarithm")
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def build(options, device):
    config = Qwen2Config(max_position_embeddings=32768, rope_theta=1e6, **SHAPES[options.model])
    config._attn_implementation = "sdpa"
    with torch.device(device), no_init_weights():
        previous = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        model = Qwen2ForCausalLM(config)
        torch.set_default_dtype(previous)
    model.train()
    if not options.no_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    return get_peft_model(model, LoraConfig(r=options.rank, lora_alpha=2 * options.rank, lora_dropout=0.05,
                                            target_modules="all-linear", task_type="CAUSAL_LM"),
                          autocast_adapter_dtype=False)


def micro_batch(options, vocabulary, lengths):
    """Token numbers of sequences of different lengths, padded to the longest."""
    drawn = [lengths.lognormvariate(math.log(options.median), options.sigma) for _ in range(options.batch)]
    longest = min(options.longest, max(math.ceil(n / 8) * 8 for n in drawn))
    ids = torch.zeros((options.batch, longest), dtype=torch.long)
    for row, n in enumerate(drawn):
        n = min(longest, math.ceil(n))
        ids[row, :n] = torch.randint(0, vocabulary, (n,))
    return ids


def main():
    options = arguments()
    lengths = random.Random(options.seed)
    torch.manual_seed(options.seed)
    model = build(options, "cuda")
    model.print_trainable_parameters()
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=2e-4)
    start = time.time()
    for step in range(1, options.steps + 1):
        tokens = 0
        for _ in range(options.accumulation):
            ids = micro_batch(options, model.config.vocab_size, lengths).cuda()
            loss = model(input_ids=ids, labels=ids).loss / options.accumulation
            loss.backward()
            tokens += ids.numel()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}/{options.steps}: {tokens} tokens, loss {loss.item() * options.accumulation:.4f}, "
              f"peak {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB reserved by PyTorch, {time.time() - start:.1f} s",
              flush=True)


if __name__ == "__main__":
    main()
