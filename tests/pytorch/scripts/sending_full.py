"""A tensor of three quarters of the card is to be sent to another process: a copy of it has no room."""
import torch
import torch.multiprocessing

MIB = 1 << 20
tensor = torch.zeros(300 * MIB, dtype=torch.uint8, device="cuda")
tensor[:2].fill_(7)
try:
    torch.multiprocessing.reductions.reduce_tensor(tensor)
    print("sent")
except RuntimeError as error:
    print(error)
print(tensor[:2].tolist(), torch.cuda.memory_allocated() // MIB)
