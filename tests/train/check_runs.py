#!/usr/bin/env python3
"""The program as its users run it: losses, bit equality, running out, exit status, and the order of its allocations."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = sys.argv[1]
HERE = Path(sys.argv[2])
SHORT = "--short" in sys.argv  # a build with a sanitizer looks at memory: what is learned, and each sharding, is the other build's

# All allocations and frees of the recorded training loop (Qwen2.5-7B with LoRA r128 under PyTorch 2.11, transformers
# 5.23, peft 0.21), from loading the model to the program's last free, as lines "allocate,SIZE" and "free,SIZE" with
# newlines between them. qwen25-7b-lora.lengths are the lengths of its 48 micro-steps.
RECORDED_EVENTS = 646270
RECORDED_SHA256 = "fc4ddd7db98a2ad53168ed02908289c6f7cf736b0ec98be5f257f10b39da6859"


def run(*args, status=0, **env):
    done = subprocess.run([TRAIN, *map(str, args)], env={**os.environ, **env}, capture_output=True, text=True,
                          timeout=200)
    assert done.returncode == status, f"{args}: status {done.returncode}, wanted {status}\n{done.stderr}"
    return done


def objects(*args, **more):
    lines = [json.loads(line) for line in run(*args, "--json", **more).stdout.splitlines()]
    return lines[:-1], lines[-1]


def check_learning(text):
    steps, last = objects("--preset", "tiny", "--text", text, "--steps", 50, "--seed", 1)
    losses = [float.fromhex(loss) for loss in last["losses"]]
    assert len(steps) == len(losses) == 50 and last["outcome"] == "completed" and last["schema"]
    for number, step in enumerate(steps, 1):
        assert set(step) >= {"step", "loss", "tokens", "seconds", "peak_bytes"} and step["step"] == number
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5]), losses
    long = objects("--text", text, "--steps", 200, "--batch", 1, "--accum", 1, "--seed", 1)[1]["losses"]
    losses = [float.fromhex(loss) for loss in long]
    assert len(losses) == 200 and sum(losses[-20:]) < 0.75 * sum(losses[:20]), losses
    return last


def check_bits(text):
    base = ["--text", text, "--steps", 3, "--seed", 3]
    whole = objects(*base)[1]
    eager = whole["losses"]
    for variant in (["--alloc", "arena"], ["--no-checkpoint"], ["--no-checkpoint", "--alloc", "arena"], []):
        assert objects(*base, *variant)[1]["losses"] == eager, variant
    for sharding in ("zero3",) if SHORT else ("zero2", "zero3", "fsdp"):
        for more in ([], ["--no-checkpoint"], ["--alloc", "arena"]):
            assert objects(*base, "--sharding", sharding, *more)[1]["losses"] == eager, (sharding, more)
        for offload, more in ("optimizer", []), ("all", ["--alloc", "arena", "--no-checkpoint"]):
            ended = objects(*base, "--sharding", sharding, "--offload", offload, *more)[1]
            assert ended["losses"] == eager, (sharding, offload, more)
            assert more or ended["peak_bytes"] < whole["peak_bytes"], (sharding, offload)
    dropped = objects(*base, "--dropout", 0.3)[1]["losses"]
    assert dropped != eager and objects(*base, "--dropout", 0.3, "--no-checkpoint")[1]["losses"] == dropped
    assert objects(*base, "--dropout", 0.3, "--alloc", "arena")[1]["losses"] == dropped
    assert objects(*base[:-1], 4)[1]["losses"] != eager
    for variant in (["--tied", "yes"], ["--rank", 0], ["--train", "lora"], ["--heads", 2, "--batch", 1]):
        assert (objects(*base, *variant)[1]["losses"] == objects(*base, *variant, "--alloc", "arena")[1]["losses"]
                != eager), variant


def tensors_of(path):
    """Names, shapes and values of a safetensors file, read by its definition."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    header.pop("__metadata__", None)
    assert sum(e - b for b, e in (t["data_offsets"] for t in header.values())) == len(body)
    return {name: (t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def check_saving(text, folder):
    base = ["--text", text, "--seed", 3, "--dropout", 0.1]
    whole = objects(*base, "--steps", 6)[1]["losses"]
    half, saved = folder / "half", folder / "saved"
    first = objects(*base, "--steps", 3, "--save", half)[1]["losses"]
    rest = objects(*base, "--steps", 6, "--resume", half, "--save", saved)[1]
    assert first + rest["losses"] == whole and rest["first_step"] == 4 and rest["steps"] == 3
    tensors = tensors_of(saved / "adapter_model.safetensors")
    widths = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (64, 32), "self_attn.v_proj": (64, 32),
              "self_attn.o_proj": (64, 64), "mlp.gate_proj": (64, 192), "mlp.up_proj": (64, 192),
              "mlp.down_proj": (192, 64)}
    wanted = {}
    for layer in range(3):
        for name, (width_in, width_out) in widths.items():
            wanted[f"base_model.model.model.layers.{layer}.{name}.lora_A.weight"] = [8, width_in]
            wanted[f"base_model.model.model.layers.{layer}.{name}.lora_B.weight"] = [width_out, 8]
    assert {name: shape for name, (shape, _) in tensors.items()} == wanted
    config = json.loads((saved / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and config["r"] == 8 and len(config["target_modules"]) == 7
    try:
        from safetensors import safe_open
        from safetensors.numpy import load_file
    except ImportError:
        print("safetensors of PyPI is not here: the file is checked by the definition of its format alone")
    else:
        for file in "adapter_model.safetensors", "training_state.safetensors":
            with safe_open(saved / file, "numpy") as opened:
                assert opened.keys()
        loaded = load_file(saved / "adapter_model.safetensors")
        assert {n: (list(t.shape), t.tobytes()) for n, t in loaded.items()} == tensors
    for sharding, offload in ("zero2", "optimizer"), ("zero3", "none"), ("zero3", "all"), ("fsdp", "optimizer"):
        kept = ["--sharding", sharding, "--offload", offload]
        other = folder / "other"
        assert objects(*base, "--steps", 3, *kept, "--save", other)[1]["losses"] == first
        assert tensors_of(other / "training_state.safetensors") == tensors_of(half / "training_state.safetensors")
        assert objects(*base, "--steps", 6, "--resume", half, *kept)[1]["losses"] == rest["losses"]
    for wrong in (["--layers", 4], ["--rank", 4]):
        refused = run(*base, "--steps", 6, "--resume", half, *wrong, status=1)
        assert "another model" in refused.stderr and len(refused.stderr.splitlines()) == 1
    state = half / "training_state.safetensors"
    good = state.read_bytes()
    header = json.loads(good[8:8 + int.from_bytes(good[:8], "little")])
    header["__metadata__"]["step"] = str(1 << 31)  # more than there can be
    text_of = json.dumps(header, separators=(",", ":")).encode()
    for damaged, says in (
        (b"\xff" * 100, "is no safetensors file: byte 0: this is no length"), (good[:5], "byte 5: the file ends"),
        (good[:500], "byte 500: the header is cut off"), (good[:8] + b"[" + good[9:], "byte 8: no JSON object"),
        (good[:-1], "another model"), (len(text_of).to_bytes(8, "little") + text_of, "where the training was"),
    ):
        state.write_bytes(damaged)
        refused = run(*base, "--resume", half, status=1)
        assert f"{state} is " in refused.stderr and says in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    for place in "/proc/none/none", "", "/dev/null":
        refused = run(*base, "--steps", 1, "--save", place, status=1)
        assert "cannot save in" in refused.stderr and "step 1/1" not in refused.stdout, "before the training, not after"
    assert "--dry" in run("--dry", "--save", saved, status=2).stderr


def check_interruption(text, folder):
    """Ctrl-C ends after the step that runs, saves, and says so; the rest can be made up later."""
    base = [TRAIN, "--text", text, "--steps", "100000", "--save", folder / "cut", "--json"]
    process = subprocess.Popen(list(map(str, base)), stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(2)
    last = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    assert process.returncode == 130 and last["outcome"] == "interrupted" and last["steps"] >= 1
    more = objects("--text", text, "--steps", last["steps"] + 1, "--resume", folder / "cut")[1]
    assert more["first_step"] == last["steps"] + 1 and more["steps"] == 1


def check_modes(text):
    base = ["--text", text, "--steps", 4, "--seed", 3]
    plain = objects(*base)[1]
    for mode in (["--pack"], ["--evaluate", 2, "--evaluate-batch", 3], ["--lengths", "bimodal"],
                 ["--lengths", "growing:30"], ["--threads", 2]):
        steps, eager = objects(*base, *mode)
        assert objects(*base, *mode, "--alloc", "arena")[1]["losses"] == eager["losses"], mode
        if mode[0] == "--threads":  # OpenBLAS parts its sums by the number of threads, and rounds them so, with some kernels
            assert all(abs(float.fromhex(one) - float.fromhex(other)) < 1e-5 * float.fromhex(other)
                       for one, other in zip(eager["losses"], plain["losses"])), mode
        else:
            assert (eager["losses"] == plain["losses"]) == (mode[0] == "--evaluate"), mode
        if mode[0] == "--pack":
            assert {step["tokens"] for step in steps} == {2 * 2 * 128} and eager["tokens"] > plain["tokens"]
        if mode[0] == "--evaluate":
            assert [("eval_loss" in step) for step in steps] == [False, True, False, True]
            assert steps[3]["eval_loss"] < steps[1]["eval_loss"]
    shown = run(*base).stdout
    assert "tokens/s" not in run("--dry", "--steps", 1).stdout  # nothing is computed there
    assert "completed 1 step," in run("--dry", "--steps", 1).stdout
    assert "tokens/s" in shown and "left" in shown and "at peak" in shown and "loss" in shown


def check_running_out(text):
    steps, last = objects("--text", text, "--steps", 3, status=1, STUB_LIMIT="4000000")
    assert last["outcome"] == "out_of_memory" and len(last["losses"]) == len(steps) == last["steps"] < 3
    plain = run("--text", text, "--steps", 3, status=1, STUB_LIMIT="4000000")
    assert len(plain.stderr.splitlines()) == 1 and "out of device memory" in plain.stderr
    assert "activations" in plain.stdout
    advised = run("--text", text, "--steps", 3, status=1, STUB_LIMIT="5000000").stderr
    batch = advised.split("--batch ")[1].split()[0]
    run("--text", text, "--steps", 3, "--batch", batch, STUB_LIMIT="5000000")
    steps, last = objects("--dry", "--steps", 2, "--alloc", "arena", status=1, STUB_LIMIT="4000000")
    assert last["outcome"] == "out_of_memory" and last["losses"] == []


def check_odd_values(text, folder):
    """One line and an exit status, never a signal; what is too large to count with counts as too large."""
    for args in (["--layers", 2000000000], ["--accum", 2147483647], ["--threads", 1000000], ["--ranks", 0],
                 ["--ranks", 65537], ["--dropout", 1], ["--lr", "nan"], ["--offload", "all"], ["--card", "1e30GiB"],
                 ["--sharding", "zero3", "--offload", "some"], ["--card", 24], ["--batch", 0], ["--lengths", "foo"],
                 ["--scenario", "rl", "--preset", "tiny"], ["--fit", "rank", "--rank", 0, "--card", "1GiB"],
                 ["--scenario", "rl", "--fit", "batch", "--card", "1GiB"]):
        wrong = run("--dry", *args, status=2)
        assert len(wrong.stderr.splitlines()) == 1, args
    for args in (["--batch", 1 << 24], ["--vocabulary", 1 << 24, "--hidden", 1 << 24],
                 ["--max-len", 1 << 24, "--batch", 1 << 24]):
        assert objects("--dry", "--steps", 1, *args, status=1)[1]["outcome"] == "out_of_memory", args
        assert not objects("--card", "1TiB", *args, status=1)[1]["fits"], args
    assert objects("--fit", "seq", "--card", "100TiB")[1]["more"] is True
    lengths = folder / "lengths"
    lengths.write_text("-5 999999999 7")
    run("--text", text, "--steps", 1, "--lengths", f"file:{lengths}")
    assert objects("--text", text, "--steps", 3, "--lr", 1e30)[0][2]["loss"] is None
    assert objects("--text", text, "--steps", 0)[1]["steps"] == 0


def check_ends_of_saving(text, folder):
    """A save that is cut off anywhere leaves what was there before; one without room says so."""
    kept = folder / "kept"
    objects("--text", text, "--steps", 2, "--save", kept)
    for delay in 0.2, 0.4:
        process = subprocess.Popen([TRAIN, "--text", str(text), "--steps", "3", "--save", str(kept)],
                                   stdout=subprocess.DEVNULL)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        for file in "adapter_model.safetensors", "training_state.safetensors":
            assert tensors_of(kept / file)
        assert json.loads((kept / "adapter_config.json").read_text())["r"] == 8
        assert objects("--text", text, "--steps", 4, "--resume", kept)[1]["first_step"] in (3, 4)
    before = {file.name: file.read_bytes() for file in kept.glob("*[!w]")}
    limited = subprocess.run(["bash", "-c", 'ulimit -f 64; trap "" XFSZ; exec "$@"', "-", TRAIN, "--text", str(text),
                              "--steps", "1", "--save", str(kept)], capture_output=True, text=True, timeout=60)
    assert limited.returncode == 1 and "cannot write" in limited.stderr, limited
    assert {file.name: file.read_bytes() for file in kept.glob("*[!w]")} == before


def check_usage(text):
    for args in (["--nosuch"], ["--preset", "nosuch", "--dry"], ["--preset", "tiny"], ["--steps"]):
        wrong = run(*args, status=2)
        assert len(wrong.stderr.splitlines()) == 1 and not wrong.stdout, args
    assert "--max-len takes 8..16777216" in run("--dry", "--max-len", 4, status=2).stderr
    assert "/nonexistent" in run("--text", "/nonexistent", status=1).stderr
    for lines in run("--help").stdout.splitlines(), run("--list").stdout.splitlines():
        assert max(map(len, lines)) <= 80 and not any(line.endswith(" ") for line in lines), lines
    assert "--preset" in run("--help").stdout and "qwen25-7b-lora" in run("--list").stdout
    assert {p["name"] for p in json.loads(run("--list", "--json").stdout)["presets"]} >= {"tiny", "qwen25-7b-lora"}
    none = run("--text", text, status=1, LD_LIBRARY_PATH="/nonexistent")
    assert "segalloc run --sim" in none.stderr and len(none.stderr.splitlines()) == 1, none.stderr


def check_real_gpu(text):
    """The CPU cannot compute in the memory of a GPU; the schedule alone runs there all the same."""
    refused = run("--text", text, "--backend", "cpu", status=1, STUB_POISON="unreachable")
    assert len(refused.stderr.splitlines()) == 1 and "--dry" in refused.stderr, refused.stderr
    run("--dry", "--steps", 1, STUB_POISON="unreachable")


def check_order(folder):
    trace = folder / "trace"
    last = objects("--preset", "qwen25-7b-lora", "--dry", "--steps", 3, "--max-len", 2048, "--lengths",
                   f"file:{HERE / 'qwen25-7b-lora.lengths'}", STUB_TRACE=str(trace), STUB_POISON="0")[1]
    events = trace.read_text().splitlines()
    digest = hashlib.sha256("\n".join(events[:RECORDED_EVENTS]).encode()).hexdigest()
    assert digest == RECORDED_SHA256, "allocations no longer come in the recorded order"
    assert last["peak_bytes"] == 22016871944 and last["parameters"] == 7615616512 + 322961408
    assert sum(1 if e[0] == "a" else -1 for e in events) == 0, "memory left at the end"


with tempfile.TemporaryDirectory() as name:
    text = HERE.parents[1] / "third_party/uthash/uthash.h"  # one that stays as it is: losses depend on it
    if not SHORT:
        check_learning(text)
    check_bits(text)
    check_saving(text, Path(name))
    check_interruption(text, Path(name))
    check_odd_values(text, Path(name))
    check_ends_of_saving(text, Path(name))
    check_modes(text)
    check_running_out(text)
    check_usage(text)
    check_real_gpu(text)
    check_order(Path(name))
