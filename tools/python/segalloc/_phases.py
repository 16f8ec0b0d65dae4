"""The optimizer's steps as phases: PyTorch calls what is registered for all optimizers before and after each step."""
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any


class _Steps:
    def __init__(self, library: Any) -> None:
        self.library = library
        steps = os.environ.get("SEGALLOC_REHEARSE_STEPS", "")
        self.last = int(steps) if steps.isdigit() else 0  # after which a rehearsal is to end; 0: by itself
        self.taken: dict[int, int] = {}
        self.inside = False

    def before(self, optimizer: Any, *_: Any) -> None:
        self._end()  # one that failed was not ended
        self.library.push("optimizer")
        self.inside = True

    def after(self, optimizer: Any, *_: Any) -> None:
        self._end()
        self.taken[id(optimizer)] = self.taken.get(id(optimizer), 0) + 1
        self.library.mark("step %d" % (max(self.taken.values()) + 1))
        if self.last and max(self.taken.values()) == self.last:
            sys.stderr.write(f"segalloc rehearse: {self.last} steps are done, as asked for: the program ends\n")
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
