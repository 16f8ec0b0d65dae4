"""Running out of memory, as PyTorch's users know it: the exception, its text, accelerate's finder, and going on."""
import torch
from memory import MODE, tell

MIB = 1 << 20
facts = {}
free = torch.cuda.mem_get_info()[0]  # a limit of the library's is in that alone
held = []
try:
    while True:
        held.append(torch.empty(free // 4, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError as error:
    facts["text"] = str(error)[:43]
except Exception as error:  # what it is instead
    facts["text"] = f"{type(error).__name__}: {error}"[:100]
facts["held"] = len(held)
del held[1:]
again = torch.ones(1000, device="cuda")
facts["goes_on"] = True
try:
    from accelerate.utils import find_executable_batch_size

    tried = []

    @find_executable_batch_size(starting_batch_size=16)
    def train(batch_size):
        tried.append(batch_size)
        block = torch.empty(batch_size * (free // 12), dtype=torch.uint8, device="cuda")
        return batch_size, block.numel()

    facts["batch"] = train()[0]
    facts["tried"] = tried
except ImportError:
    facts["batch"] = None
del held
if MODE == "torch":
    before = torch.cuda.mem_get_info()[0]
    block = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    facts["allocated"] = torch.cuda.memory_allocated() >= 512 * MIB
    del block
    torch.cuda.empty_cache()
    facts["reserved_after"] = torch.cuda.memory_reserved()
    facts["summary"] = "Allocated memory" in torch.cuda.memory_summary()
tell(**facts)
