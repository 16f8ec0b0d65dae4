"""TRL's trainers of instructions, preferences and rewards (SFT, DPO, GRPO) as its documentation has them, on a model
and a tokenizer that are made here. Prints the steps of each that was named."""
import sys
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

WORDS = ["<pad>", "<unk>", "<eos>", *(f"w{n}" for n in range(497))]


def make_tokenizer():
    inner = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>",
                                   padding_side="left")


def make_model(folder):
    """Saved, because a reference is loaded from where its model came from."""
    torch.manual_seed(0)
    made = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(WORDS), hidden_size=128, intermediate_size=256,
                                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                        pad_token_id=0, eos_token_id=2, bos_token_id=None))
    made.save_pretrained(folder)
    return folder


def sentence(n, seed):
    return " ".join(f"w{(seed * 31 + i * 17) % 497}" for i in range(n))


def common(folder, **more):
    return {"output_dir": folder, "max_steps": 3, "per_device_train_batch_size": 4, "logging_steps": 1, "bf16": True,
            "report_to": [], "disable_tqdm": True, "save_strategy": "no", "gradient_checkpointing": True, **more}


def sft(folder):
    rows = Dataset.from_list([{"text": sentence(8 + 5 * n, n)} for n in range(24)])
    arguments = SFTConfig(**common(folder, max_length=64, gradient_accumulation_steps=2))
    return SFTTrainer(model=make_model(folder), args=arguments, train_dataset=rows, processing_class=make_tokenizer(),
                      peft_config=LoraConfig(task_type="CAUSAL_LM", r=8))


def dpo(folder):
    rows = Dataset.from_list([{"prompt": sentence(6 + n, n), "chosen": sentence(9 + n, n + 1),
                               "rejected": sentence(5 + n, n + 2)} for n in range(24)])
    return DPOTrainer(model=make_model(folder), args=DPOConfig(**common(folder, max_length=96)), train_dataset=rows,
                      processing_class=make_tokenizer())


def lengths(completions, **_):
    return [float(len(completion)) for completion in completions]


def grpo(folder):
    rows = Dataset.from_list([{"prompt": sentence(6 + n, n)} for n in range(24)])
    arguments = GRPOConfig(**common(folder, num_generations=4, max_completion_length=12, beta=0.04))
    return GRPOTrainer(model=make_model(folder), reward_funcs=lengths, args=arguments, train_dataset=rows,
                       processing_class=make_tokenizer())


def main():
    for name in sys.argv[1:] or ("sft", "dpo", "grpo"):
        with tempfile.TemporaryDirectory() as folder:
            trainer = {"sft": sft, "dpo": dpo, "grpo": grpo}[name](folder)
            trainer.train()
            print("steps", name, trainer.state.global_step)


if __name__ == "__main__":
    main()
