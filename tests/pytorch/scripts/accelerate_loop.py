"""accelerate's usual loop: prepare, accumulate, autocast, gather, the batch-size finder, saving the state."""
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size, set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    set_seed(1)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    print("processes", accelerator.num_processes, accelerator.device.type)
    total = torch.cuda.get_device_properties(0).total_memory

    @find_executable_batch_size(starting_batch_size=64)
    def inner(batch_size):
        accelerator.free_memory()
        big = torch.empty(batch_size * (total // 10), dtype=torch.uint8, device=accelerator.device)
        del big
        model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.LayerNorm(512),
                                    torch.nn.Linear(512, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        data = DataLoader(TensorDataset(torch.randn(256, 128), torch.randint(0, 4, (256,))), batch_size=batch_size)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
        model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
        for x, y in data:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        seen = accelerator.gather_for_metrics(loss.detach().reshape(1))
        if accelerator.num_processes == 1:  # ranks would have to share the folder
            with tempfile.TemporaryDirectory() as folder:
                accelerator.save_state(folder)
                accelerator.load_state(folder)
        return batch_size, tuple(seen.shape)

    print("batch", inner())
    accelerator.end_training()


if __name__ == "__main__":
    main()
