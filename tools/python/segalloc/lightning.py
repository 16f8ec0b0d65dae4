"""A callback for Lightning's Trainer that logs what the library measured.

    from segalloc.lightning import SegallocCallback
    Trainer(callbacks=[SegallocCallback()])

Importing this module imports lightning, or pytorch_lightning where the program uses that.
"""
# mypy: allow-subclassing-any, disable-error-code="import-not-found,import-untyped,no-redef"
import importlib.util
import sys
from typing import Any

from ._interval import Interval

if "pytorch_lightning" in sys.modules or importlib.util.find_spec("lightning") is None:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback

__all__ = ["SegallocCallback"]


class SegallocCallback(Callback):
    """Sends peaks in bytes and failed allocations since the last log, of this process, to the Trainer's loggers every
    `log_every_n_steps` steps and at the end: `segalloc_peak_requested_bytes`, `segalloc_peak_allocated_bytes`,
    `segalloc_peak_reserved_bytes`, `segalloc_failures`. Without the library in the process nothing is logged."""

    def __init__(self) -> None:
        self._interval = Interval()
        self._logged = 0

    def _log(self, trainer: Any, figures: Any) -> None:
        self._logged = trainer.global_step
        for logger in trainer.loggers if figures else ():
            logger.log_metrics(figures, step=trainer.global_step)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._interval.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step >= self._logged + max(trainer.log_every_n_steps, 1):
            self._log(trainer, self._interval.take())

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        figures = self._interval.end()
        if trainer.global_step > self._logged:
            self._log(trainer, figures)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._log(trainer, self._interval.end())
