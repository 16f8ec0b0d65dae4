"""A limit that a program sets for itself, before its first tensor and later."""
import torch


def refused(megabytes):
    try:
        torch.empty(megabytes << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return True
    return False


torch.cuda.set_per_process_memory_fraction(0.25)
print("a quarter", [refused(megabytes) for megabytes in (512, 900, 1200, 2000)])
torch.cuda.empty_cache()
torch.cuda.set_per_process_memory_fraction(0.5)
print("half", [refused(megabytes) for megabytes in (1200, 1900, 2100)])
torch.cuda.empty_cache()
torch.cuda.set_per_process_memory_fraction(1.0)
print("all", [refused(megabytes) for megabytes in (2100, 3000, 5000)])
