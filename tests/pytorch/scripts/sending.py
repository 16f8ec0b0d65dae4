"""Tensors sent to another process, which reads them and writes to them."""
import torch
import torch.multiprocessing

MIB = 1 << 20


def answer(tensors, answers):
    for tensor in iter(tensors.get, None):
        answers.put(tensor[:2].tolist())
        tensor[:2].add_(1)
        torch.cuda.synchronize()
        del tensor
        answers.put("written")


if __name__ == "__main__":
    processes = torch.multiprocessing.get_context("spawn")
    tensors, answers = processes.Queue(), processes.Queue()
    # Of PyTorch's small and large pools, several segments each, and parts of tensors.
    mine = [torch.zeros(size, dtype=torch.uint8, device="cuda")
            for size in (100, *[MIB] * 5, *[3 * MIB] * 4, *[9 * MIB] * 3, 11 * MIB, 12 * MIB, 13 * MIB, 40 * MIB)]
    mine += [mine[0][50:], mine[7][2 * MIB:]]
    torch.multiprocessing.reductions.reduce_tensor(mine[1])  # fails where it can't be, before anybody waits for it
    other = processes.Process(target=answer, args=(tensors, answers))
    other.start()
    for number, tensor in enumerate(mine):
        tensor[:2].fill_(number)
        tensors.put(tensor)
        print(tensor.numel(), answers.get(timeout=300), answers.get(timeout=300), tensor[:2].tolist())
    tensors.put(None)
    other.join()
    raise SystemExit(other.exitcode)
