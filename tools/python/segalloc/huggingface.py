"""A callback for the Trainer of Hugging Face's transformers that logs what the library measured.

    from segalloc.huggingface import SegallocCallback
    SegallocCallback().add_to(trainer)

Importing this module imports transformers.
"""
# mypy: allow-subclassing-any, disable-error-code="import-not-found,import-untyped"
from typing import Any, Dict, Optional

from transformers import TrainerCallback

from ._interval import Interval

__all__ = ["SegallocCallback"]


class SegallocCallback(TrainerCallback):
    """Adds peaks in bytes and failed allocations since the last log, of this process, to what the Trainer logs:
    `segalloc_peak_requested_bytes`, `segalloc_peak_allocated_bytes`, `segalloc_peak_reserved_bytes`, `segalloc_failures`.

    `Trainer(callbacks=[SegallocCallback()])` has them in the console and in `trainer.state.log_history`; by `add_to()` what
    reports elsewhere, such as TensorBoard, has them too. Without the library in the process nothing is logged."""

    def __init__(self) -> None:
        self._interval = Interval()

    def add_to(self, trainer: Any) -> None:
        """Adds it to a Trainer, before the callbacks that report what is logged."""
        trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._interval.begin()

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **kwargs: Any) -> None:
        figures = self._interval.take()
        if logs is not None:
            logs.update(figures)
            if state.log_history:  # a copy of the logs, made before
                state.log_history[-1].update(figures)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._interval.end()
