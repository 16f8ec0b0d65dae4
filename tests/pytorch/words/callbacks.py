"""The Trainer of transformers and that of Lightning with segalloc's callbacks. Prints what each logged as JSON."""
import json
import sys
import tempfile

import torch

import segalloc

MIB = 1 << 20


class Model(torch.nn.Module):
    """One layer of 16 MiB, and 64 MiB for the time of a step."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2048, 2048, bias=False)

    def forward(self, x=None, labels=None):
        torch.empty(64 * MIB, dtype=torch.uint8, device=self.layer.weight.device)
        return {"loss": self.layer(x).sum()}


DATA = [{"x": torch.ones(2048), "labels": torch.ones(1)} for _ in range(8)]


def huggingface(folder):
    """(what was logged, what a reporter that came before the callback saw)"""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from segalloc.huggingface import SegallocCallback

    seen = []

    class Reporter(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    trainer = Trainer(Model(), TrainingArguments(folder, max_steps=4, logging_steps=2, per_device_train_batch_size=2, report_to=[],
                                                 save_strategy="no", disable_tqdm=True), train_dataset=DATA, callbacks=[Reporter()])
    SegallocCallback().add_to(trainer)
    trainer.train()
    return [row for row in trainer.state.log_history if "loss" in row], [row for row in seen if "loss" in row]


def lightning(folder):
    """What a logger was sent: (step, figures)."""
    import lightning.pytorch as pl

    from segalloc.lightning import SegallocCallback

    sent = []

    class Logger(pl.loggers.logger.DummyLogger):
        def log_metrics(self, metrics, step):
            sent.append((step, {name: value for name, value in metrics.items() if name.startswith("segalloc")}))

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, index):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(accelerator="gpu", devices=1, max_steps=4, log_every_n_steps=2, logger=Logger(), callbacks=[SegallocCallback()],
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
    trainer.fit(Module(), torch.utils.data.DataLoader(DATA, batch_size=2))
    return [row for row in sent if row[1]]


out, sys.stdout = sys.stdout, sys.stderr  # what the trainers print is not the answer
with tempfile.TemporaryDirectory() as temporary:
    said = {name: each(temporary) for name, each in (("huggingface", huggingface), ("lightning", lightning)) if name in sys.argv[1:]}
json.dump({**said, "peak": segalloc.stats().peak_requested_bytes}, out)
