"""The optimizer's steps as phases: PyTorch calls what is registered for all optimizers before and after each step."""
from __future__ import annotations

import os
import sys

from . import _library

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any


STEADY = 4  # steps in a row without a new peak: the first has no state of the optimizer yet, the second has


class _Steady:
    """Says when a rehearsal's peak is steady. Several ranks end at the same step, since one that goes on would wait for the others:
    each notes in a file that its peak is steady, and the last to do so notes the step at which all end. Ranks that wait for each
    other in every step are one step apart at most. For example, of two ranks one is steady at step 6, the other at step 7. That one
    notes step 9, and both end there."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.notes = os.environ.get("SEGALLOC_REHEARSE_RANKS", "")
        self.peak = self.since = self.end = 0  # bytes; the step that raised them last; the step to end at
        self.noted = False

    def _ranks(self) -> int:
        distributed = sys.modules.get("torch.distributed")
        try:
            return int(distributed.get_world_size()) if distributed is not None and distributed.is_initialized() else 1
        except (AttributeError, RuntimeError):
            return 1

    def _note(self, line: str) -> None:
        with open(self.notes, "a", encoding="ascii") as file:
            file.write(line + "\n")

    def _agree(self, step: int, ranks: int) -> None:
        if not self.noted:
            self.noted = True
            self._note("steady")
        with open(self.notes, encoding="ascii") as file:
            lines = file.read().split()
        ends = [int(line) for line in lines if line.isdigit()]
        if not ends and lines.count("steady") >= ranks:
            ends = [step + 2]
            self._note(str(ends[0]))
        self.end = ends[0] if ends else 0

    def is_over(self, step: int) -> bool:
        """To be asked after each step, by its number from 1."""
        now = sum(self.library.stats(device).get("requested_bytes", (0, 0))[1] for device in range(_library.DEVICES))
        if now > self.peak or not self.since:
            self.peak, self.since = now, step
        ranks = self._ranks()
        if ranks == 1 or not self.notes:
            return step - self.since >= STEADY
        if not self.end and (self.noted or step - self.since >= STEADY):
            self._agree(step, ranks)
        return bool(self.end) and step >= self.end


class _Steps:
    def __init__(self, library: Any) -> None:
        self.library = library
        steps = os.environ.get("SEGALLOC_REHEARSE_STEPS", "")
        self.last = int(steps) if steps.isdigit() else 0  # after which a rehearsal is to end; 0: by itself
        self.steady = _Steady(library) if steps == "steady" else None
        self.taken: dict[int, int] = {}
        self.inside = False

    def before(self, optimizer: Any, *_: Any) -> None:
        self._end()  # one that failed was not ended
        self.library.push("optimizer")
        self.inside = True

    def after(self, optimizer: Any, *_: Any) -> None:
        self._end()
        self.taken[id(optimizer)] = self.taken.get(id(optimizer), 0) + 1
        step = max(self.taken.values())
        self.library.mark("step %d" % (step + 1))
        if self.last and step == self.last:
            sys.stderr.write(f"segalloc rehearse: {self.last} steps are done, as asked for: the program ends\n")
            raise SystemExit(0)
        if self.steady and self.taken[id(optimizer)] == step and self.steady.is_over(step):
            sys.stderr.write(f"segalloc rehearse: the peak is steady since step {self.steady.since}: the program ends after step {step}\n")
            raise SystemExit(0)

    def _end(self) -> None:
        if self.inside:
            self.library.pop()
        self.inside = False


def follow(optimizers: Any, library: Any) -> None:
    """`optimizers`: torch.optim.optimizer. From PyTorch 2.0 on it has these two."""
    before = getattr(optimizers, "register_optimizer_step_pre_hook", None)
    after = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if before is None or after is None:
        return
    steps = _Steps(library)
    library.mark("step 1")
    before(steps.before)
    after(steps.after)
