"""Does what a program of this kind does first, and tells which call of the driver, if any, made the library give up the
order of streams. usage: untracked.py "torch"|"cuda-12 runtime"|"cuda.bindings"|"cupy"|"numba"|"jax" RUNTIME_12"""
import ctypes
import os
import sys

from memory import tell


def use_runtime(path):
    if not path:
        return "no CUDA-12 runtime: --cu12 FOLDER names one"
    runtime = ctypes.CDLL(path)
    address, count = ctypes.c_void_p(), ctypes.c_int()
    results = [runtime.cudaGetDeviceCount(ctypes.byref(count)),
               runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 20)),
               runtime.cudaMemset(address, 0, ctypes.c_size_t(1 << 20)), runtime.cudaFree(address)]
    assert not any(results), results
    return None


def use_torch():
    import torch
    torch.zeros(1, device="cuda")


def use_bindings():
    import cuda.bindings.driver as driver
    error, *_ = driver.cuInit(0)
    assert error == driver.CUresult.CUDA_SUCCESS, error


def use_cupy():
    import cupy
    cupy.zeros(1)


def use_numba():
    import numba.cuda
    numba.cuda.current_context()


def use_jax():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    assert jax.devices()[0].platform == "gpu", jax.devices()  # it would fall back to the CPU
    jax.numpy.zeros(1).block_until_ready()


def untracked_by():
    """The name; None where order is followed, or the library cannot tell."""
    try:
        ask = ctypes.CDLL(None).segalloc_untracked_by
    except AttributeError:
        return None
    ask.restype = ctypes.c_char_p
    name = ask()
    return name.decode() if name else None


name, runtime = sys.argv[1:3]
uses = {"torch": use_torch, "cuda-12 runtime": lambda: use_runtime(runtime), "cuda.bindings": use_bindings,
        "cupy": use_cupy, "numba": use_numba, "jax": use_jax}
note = uses[name]()
tell(done=note is None, untracked_by=untracked_by(), **({"note": note} if note else {}))
