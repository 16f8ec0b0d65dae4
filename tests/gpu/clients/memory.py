"""What the clients share: how memory is served here, and the one JSON object that each of them prints last."""
import ctypes
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tools", "python"))
from segalloc import _library  # noqa: E402

MODE = os.environ.get("GPU_TEST_MODE", "native")


def served():
    """{statistic: value} of device 0; empty natively."""
    return {name: value for name, (value, _) in table().items()}


def table():
    """{statistic: (value, peak)} of device 0 from the library itself: the module's segalloc.stats() has names that are
    made by a build, which a machine with a GPU need not have done."""
    library = _library.get()
    return library.stats(0) if library else {}


def peak_reserved():
    """Of the library, or of PyTorch's own cache where that is what holds memory."""
    reserved = table().get("reserved_bytes", (0, 0))[1]
    if reserved:
        return reserved
    import torch
    return torch.cuda.memory_stats()["reserved_bytes.all.peak"]


def piece_stream(address):
    """The stream that the library has noted for the block at an address; None where it has none there."""
    for piece in _library.get().pieces(0):
        if piece.address == address:
            return piece.stream
    return None


def current_stream_by_symbol():
    """PyTorch's current stream as the library asks for it: by its C++ functions, under the ABI that it expects."""
    class Stream(ctypes.Structure):
        _fields_ = [("words", ctypes.c_uint64 * 2)]
    library = ctypes.CDLL("libc10_cuda.so")
    current = library["_ZN3c104cuda20getCurrentCUDAStreamEa"]
    current.restype, current.argtypes = Stream, [ctypes.c_int8]
    handle = library["_ZNK3c104cuda10CUDAStream6streamEv"]
    handle.restype, handle.argtypes = ctypes.c_void_p, [ctypes.POINTER(Stream)]
    return handle(ctypes.byref(current(-1))) or 0


def computes():
    """Whether the device does arithmetic; None where PyTorch is not there to ask. A simulated device adds and compares, but
    leaves the result of a matrix product as it was: values that come of one are arbitrary there."""
    torch = sys.modules.get("torch")
    if not torch:
        return None
    product = torch.zeros((8, 8), device="cuda")
    torch.mm(torch.full((8, 8), 1.5, device="cuda"), torch.full((8, 8), 2.0, device="cuda"), out=product)
    return product.sum().item() == 8 * 8 * 8 * 3


def tell(**facts):
    print("RESULT " + json.dumps({"mode": MODE, "computes": computes(), **facts}), flush=True)


def not_tried(why):
    """Ends a client that lacks what it takes: its row is skipped, with the reason."""
    tell(not_tried=why)
    sys.exit(0)
