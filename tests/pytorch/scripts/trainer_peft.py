"""Trainer with PEFT as the documentation has it: a small model from a config, LoRA, checkpointing, evaluation,
saving."""
import tempfile

import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.rows = [torch.randint(0, 1000, (int(torch.randint(16, 128, (1,), generator=g)),), generator=g)
                     for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def collate(rows):
    longest = max(len(r["input_ids"]) for r in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full((len(rows), longest), -100)
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n], mask[i, :n], labels[i, :n] = r["input_ids"], 1, r["labels"]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def main():
    config = LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=688, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2)
    model = LlamaForCausalLM(config)
    model = get_peft_model(model, LoraConfig(task_type=TaskType.CAUSAL_LM, r=8, lora_alpha=32, lora_dropout=0.1))
    model.print_trainable_parameters()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, gradient_accumulation_steps=2,
                                      max_steps=6, bf16=True, gradient_checkpointing=True, logging_steps=2,
                                      eval_strategy="steps", eval_steps=3, save_steps=3, report_to=[],
                                      dataloader_num_workers=2, optim="adamw_torch_fused", auto_find_batch_size=True)
        trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(64), eval_dataset=Tokens(8),
                          data_collator=collate)
        trainer.train()
        trainer.save_model(folder)
        if arguments.world_size == 1:  # ranks would have to share the folder
            trainer.train(resume_from_checkpoint=folder + "/checkpoint-3")
    print("steps", trainer.state.global_step)


if __name__ == "__main__":
    main()
