"""The optimizer's steps as phases: PyTorch calls what is registered for all optimizers before and after each step."""
from __future__ import annotations

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any


class _Steps:
    def __init__(self, library: Any) -> None:
        self.library = library
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
