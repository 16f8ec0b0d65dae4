"""A graph whose pool grows by expandable segments beyond the card that PyTorch is shown."""
import torch

still = torch.zeros(64 << 20, device="cuda", dtype=torch.uint8)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    first = torch.empty(900 << 20, device="cuda", dtype=torch.uint8).fill_(1)
    del first
    second = torch.empty(1000 << 20, device="cuda", dtype=torch.uint8)
print("captured")
