"""usage: test_roles.py SEGALLOC. What the memory of a PyTorch program was for, by the stacks and lives in its trace. The traces are made
here, with stacks as PyTorch's are; real programs: tests/pytorch/test_roles.py."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from own_trace import GIB, KIB, MIB, define_site, define_text, record, trace

SEGALLOC = sys.argv.pop(1)
TORCH, NATIVE, BACKWARD = 8, 32, 16
MAIN, ENGINE, OTHER = 1, 2, 3
PACKAGES = "/usr/lib/python3/dist-packages/"

MODULE = "torch/nn/modules/module.py"
TOP = ("/home/me/train.py", "<module>", 9)
CALL = (PACKAGES + MODULE, "Module._call_impl", 1790)
LINEAR = [(PACKAGES + "torch/nn/modules/linear.py", "Linear.forward", 134), CALL, TOP]
RELU = [(PACKAGES + "torch/nn/functional.py", "relu", 1723), CALL, TOP]
STEP = [(PACKAGES + "torch/optim/adam.py", "Adam._init_group", 178), (PACKAGES + "torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 533), TOP]
FOREACH = [(PACKAGES + "torch/optim/adam.py", "_multi_tensor_adam", 791), *STEP[1:]]
STARTS = [(PACKAGES + "torch/autograd/__init__.py", "_make_grads", 231), (PACKAGES + "torch/autograd/__init__.py", "backward", 374),
          (PACKAGES + "torch/_tensor.py", "Tensor.backward", 631), TOP]
CHECKPOINT = (PACKAGES + "torch/utils/checkpoint.py", "_checkpoint_hook.__init__.<locals>.unpack_hook", 1100)
TRACKER = (PACKAGES + "torch/distributed/_tools/mem_tracker.py", "MemTracker.__torch_dispatch__", 900)


def apply(line):
    return [(PACKAGES + MODULE, "Module.to.<locals>.convert", 1370), (PACKAGES + MODULE, "Module._apply", line),
            (PACKAGES + MODULE, "Module._apply", 934), (PACKAGES + MODULE, "Module.to", 1384), TOP]


PARAMETER, GRADIENT, BUFFER = apply(965), apply(1009), apply(1035)


class Story:
    """A trace that is told event by event. Frames are a file, a function and a line, the innermost first."""

    def __init__(self, torch=TORCH):
        self.torch, self.records, self.texts, self.sites, self.blocks, self.live = torch, [], {}, {}, 0, {}

    def text(self, text):
        if text not in self.texts:
            self.texts[text] = len(self.texts) + 1
            self.records += define_text(self.texts[text], text)
        return self.texts[text]

    def at(self, thread, stack, flags):
        key = (tuple(stack), flags)
        if key not in self.sites:
            frames = [(self.text(file), self.text(function), line) for file, function, line in stack]
            self.sites[key] = len(self.sites) + 1
            self.records += define_site(self.sites[key], *frames, flags=flags)
        self.records.append(record(71, 0, thread, 0, self.sites[key], 0))

    def get(self, stack, size, thread=MAIN, flags=0, torch=None):
        self.at(thread, stack, flags)
        self.blocks += 1
        self.records.append(record(1, self.torch if torch is None else torch, thread, 1, 4096 * self.blocks, size))
        self.live[self.blocks] = size
        return self.blocks

    def backward(self, stack, size):
        return self.get(stack, size, ENGINE, BACKWARD)

    def free(self, *blocks, thread=MAIN):
        for block in blocks:
            self.records.append(record(2, 0, thread, 1, 4096 * block, self.live.pop(block)))

    def fail(self, stack, size, thread=MAIN, flags=0):
        self.at(thread, stack, flags)
        self.records += [record(3, self.torch, thread, 1, 0, size), record(60, 0, thread, 0, 0, 0)]

    def step(self, kept=(), peak=0, activation=3 * MIB):
        """A step of the usual loop: activations of a linear layer, a gradient of 2 MiB, and then the optimizer. Returns the gradient."""
        output, mask = self.get(LINEAR, activation), self.get(RELU, MIB)
        self.free(self.get(RELU, 64 * KIB))
        self.free(*kept)
        loss = self.get(STARTS, 4)
        first, gradient = self.backward(RELU, MIB), self.backward(LINEAR, 2 * MIB)
        if peak:
            self.free(self.backward(LINEAR, peak), thread=ENGINE)
        self.free(first, output, mask, thread=ENGINE)
        self.free(loss)
        return gradient


def roles(rows):
    return {row["role"]: row["bytes"] for row in rows}


class Roles(unittest.TestCase):
    def report(self, story, *options, conf=b""):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace")
            with open(path, "wb") as file:
                file.write(trace(story.records, conf=conf))
            done = subprocess.run([SEGALLOC, "report", *options, path], check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout) if "--json" in options else done.stdout

    def at_peak(self, story, **options):
        device = self.report(story, "--json", **options)["devices"][0]
        if device["roles"]:
            self.assertEqual(sum(row["bytes"] for row in device["roles"]), device["peak_requested_bytes"])
        self.assertEqual([row["bytes"] for row in device["roles"]], sorted((row["bytes"] for row in device["roles"]), reverse=True))
        return roles(device["roles"])

    def test_training(self):
        """The peak is in the last backward pass: each role is there, of what makers and lives say."""
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        story.get(BUFFER, 512 * KIB)
        for number in range(3):
            batch = story.get([TOP], 300 * KIB)
            gradient = story.step(peak=20 * MIB if number == 2 else 0)
            if not number:
                story.get(STEP, 4 * MIB)
            story.free(story.get(FOREACH, 5 * MIB))
            story.free(gradient)
            if number:
                story.free(before)
            before = batch
        self.assertEqual(self.at_peak(story), {"parameter": 2 * MIB, "buffer": 512 * KIB, "optimizer": 4 * MIB, "gradient": 2 * MIB,
                                               "activation": 4 * MIB + 2 * 300 * KIB, "temporary": 21 * MIB + 4})

    def test_optimizers_temporaries(self):
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        gradient = story.step()
        story.get(STEP, 4 * MIB)
        story.free(story.get(FOREACH, 50 * MIB))
        story.free(gradient)
        self.assertEqual(self.at_peak(story), {"parameter": 2 * MIB, "gradient": 2 * MIB, "optimizer": 4 * MIB, "temporary": 50 * MIB})

    def test_one_step(self):
        """Of a program that ends without its last frees, too."""
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        story.step(peak=9 * MIB)
        story.get(STEP, 4 * MIB)
        self.assertEqual(self.at_peak(story), {"parameter": 2 * MIB, "gradient": 2 * MIB, "activation": 4 * MIB, "temporary": 10 * MIB + 4})

    def test_conversions(self):
        """_apply() does parameters first, then their gradients, then buffers."""
        story = Story()
        for stack, size in ((PARAMETER, 4 * MIB), (GRADIENT, 2 * MIB), (BUFFER, MIB)):
            story.get(stack, size)
        self.assertEqual(self.at_peak(story), {"parameter": 4 * MIB, "gradient": 2 * MIB, "buffer": MIB})
        story = Story()
        story.get(apply(1010), 4 * MIB)  # another release, whose models have no buffers
        self.assertEqual(self.at_peak(story), {"parameter": 4 * MIB})

    def test_made_on_the_device(self):
        story = Story()
        story.get([(PACKAGES + "torch/nn/modules/linear.py", "Linear.__init__", 100), ("/home/me/model.py", "Model.__init__", 5), TOP], 2 * MIB)
        story.get([("/home/me/model.py", "Model.__init__", 6), TOP], 3 * MIB)
        story.get([("/home/me/model.py", "Model.__init__", 7), TOP], 5 * MIB)
        story.free(story.get([("/home/me/model.py", "Model.__init__", 8), TOP], MIB))
        gradient = story.step()
        other = story.backward(LINEAR, 3 * MIB)
        story.free(gradient, other)
        story.get(LINEAR, 40 * MIB)
        self.assertEqual(self.at_peak(story), {"parameter": 5 * MIB, "buffer": 5 * MIB, "activation": 40 * MIB})

    def test_failure_in_a_forward_pass(self):
        """What is alive then has not shown what it is for: its line has, in earlier steps, or it is an activation."""
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        story.free(story.step())
        story.get(LINEAR, 4 * MIB)
        scratch = [(PACKAGES + "torch/nn/functional.py", "softmax", 2000), CALL, TOP]
        for _ in range(3):
            story.free(story.get(scratch, MIB))
        story.get(scratch, MIB)
        story.get([(PACKAGES + "torch/nn/functional.py", "gelu", 1900), CALL, TOP], 8 * MIB)
        story.fail(LINEAR, 100 * GIB)
        story.free(*[block for block, size in story.live.items() if size in (4 * MIB, 8 * MIB)])
        failures = self.report(story, "--json")["devices"][0]["failures"]
        self.assertEqual([roles(failure["roles"]) for failure in failures], [{"parameter": 2 * MIB, "activation": 12 * MIB, "temporary": MIB}])
        self.assertIn("Alive when 100.00 GiB failed (event", self.report(story).split("by role")[0].splitlines()[-1])

    def test_failure_in_the_first_forward_pass(self):
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        story.free(story.get(LINEAR, 4 * MIB), story.get(RELU, MIB))
        kept = story.get(LINEAR, 4 * MIB), story.get(RELU, 3 * MIB)
        story.fail(LINEAR, 100 * GIB)
        story.free(*kept)
        failures = self.report(story, "--json")["devices"][0]["failures"]
        self.assertEqual(roles(failures[0]["roles"]), {"parameter": 2 * MIB, "temporary": 7 * MIB})
        story = Story()
        story.get(LINEAR, 4 * MIB)
        story.fail(LINEAR, 100 * GIB)
        self.assertEqual(roles(self.report(story, "--json")["devices"][0]["failures"][0]["roles"]), {"activation": 4 * MIB})

    def test_failure_in_a_backward_pass(self):
        """Gradients have the sizes of parameters. What else the pass held goes when its error is raised."""
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        output = story.get(LINEAR, 3 * MIB)
        story.get(STARTS, 4)
        made = [story.backward(LINEAR, 2 * MIB), story.backward(LINEAR, 5 * MIB)]
        story.fail(RELU, 100 * GIB, ENGINE, BACKWARD)
        story.free(*made, output)
        self.assertEqual(roles(self.report(story, "--json")["devices"][0]["failures"][0]["roles"]),
                         {"parameter": 2 * MIB, "gradient": 2 * MIB, "activation": 3 * MIB, "temporary": 5 * MIB + 4})

    def test_recomputation(self):
        """A forward pass in the thread of a backward one, whose stacks begin in no file of the program's."""
        story = Story()
        story.get(STARTS, 4)
        story.backward(RELU, MIB)
        again = [*LINEAR[:-1], CHECKPOINT]
        inner = story.get(again, 6 * MIB, ENGINE)
        story.get(again, 8519680, ENGINE)
        custom = story.get([("/home/me/train.py", "Own.backward", 3)], 2 * MIB, ENGINE)
        story.free(inner, custom, thread=ENGINE)
        story.get([TOP], 64)
        self.assertEqual(self.at_peak(story), {"activation": 6 * MIB, "gradient": MIB, "temporary": 2 * MIB + 4, "workspace": 8519680})

    def test_modes_between(self):
        """MemTracker and the like have frames of their own in each stack, in the backward thread too."""
        story = Story()
        story.get([TRACKER, *PARAMETER], 2 * MIB)
        output = story.get([TRACKER, *LINEAR], 4 * MIB)
        story.get(STARTS, 4)
        gradient, passing = story.get([TRACKER], 2 * MIB, ENGINE), story.get([TRACKER], 7 * MIB, ENGINE)
        story.free(output, passing, thread=ENGINE)
        story.free(gradient)
        self.assertEqual(self.at_peak(story), {"parameter": 2 * MIB, "activation": 4 * MIB, "gradient": 2 * MIB, "temporary": 7 * MIB + 4})

    def test_backward_pass_in_the_thread_that_starts_it(self):
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        output = story.get(LINEAR, 3 * MIB)
        inside = [("/home/me/train.py", "Own.backward", 3), (PACKAGES + "torch/autograd/graph.py", "_engine_run_backward", 800), *STARTS[1:]]
        story.get(STARTS, 4)
        passing, gradient = story.get(inside, 5 * MIB), story.get(inside, 2 * MIB)
        story.free(output, passing)
        story.get(STEP, 256)
        story.free(gradient)
        self.assertEqual(self.at_peak(story), {"parameter": 2 * MIB, "activation": 3 * MIB, "gradient": 2 * MIB, "temporary": 5 * MIB + 4})

    def test_another_thread_does_not_end_a_pass(self):
        """A thread that copies the next batch meanwhile."""
        story = Story()
        story.get(STARTS, 4)
        passing = story.backward(RELU, 9 * MIB)
        loader = [("/home/me/data.py", "load", 3), ("/usr/lib/python3.11/threading.py", "Thread._bootstrap", 1002)]
        batch = story.get(loader, MIB, OTHER)
        story.free(story.get(loader, 64, OTHER), thread=OTHER)
        story.free(passing, thread=ENGINE)
        story.get([TOP], 64)
        story.step()
        story.free(batch)
        self.assertEqual(self.at_peak(story)["temporary"], 9 * MIB + 4 + 64)

    def test_workspaces(self):
        """cuBLAS's, by their sizes, and what libraries ask for themselves. Tensors of such a size come and go."""
        story = Story()
        story.get(LINEAR, 8519680)
        story.get(LINEAR, MIB)
        story.get([("/opt/nvidia/lib/libcublas.so.12", "", 77), ("/opt/torch/lib/libtorch_cuda.so", "", 5)], 3 * MIB, OTHER, NATIVE, torch=0)
        for number in range(5):
            output = story.get(LINEAR, MIB)
            story.get(STARTS, 4)
            if not number:
                story.backward(LINEAR, 8519680)
            gradient = story.backward(LINEAR, 2 * MIB)
            story.free(output, thread=ENGINE)
            story.free(gradient)
        story.get(STARTS, 30 * MIB)
        self.assertEqual(self.at_peak(story), {"workspace": 2 * 8519680 + 4 * MIB, "temporary": 30 * MIB + 5 * 4})

    def test_cache_and_communication(self):
        story = Story()
        story.get([(PACKAGES + "transformers/cache_utils.py", "DynamicLayer.update", 120), CALL, TOP], 6 * MIB)
        story.get([("/home/me/model.py", "KVCache.update", 12), CALL, TOP], 2 * MIB)
        story.get([("/home/me/model.py", "allocate_kv_cache", 12), TOP], MIB)
        story.get([(PACKAGES + "torch/nn/parallel/distributed.py", "DistributedDataParallel._ddp_init_helper", 1000), TOP], 3 * MIB)
        story.get([("/opt/nvidia/nccl/lib/libnccl.so.2", "", 9)], 4 * MIB, OTHER, NATIVE, torch=0)
        self.assertEqual(self.at_peak(story), {"kv_cache": 9 * MIB, "communication": 7 * MIB})

    def test_reduced_gradients(self):
        """FSDP2 adds up gradients into a buffer that stays as the gradient."""
        def reduce(line):
            return [(PACKAGES + "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "DefaultAllocMixin.allocate", 59),
                    (PACKAGES + "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_reduce", line),
                    (PACKAGES + "torch/autograd/function.py", "BackwardCFunction.apply", 317)]
        story = Story()
        story.get(STARTS, 4)
        story.free(story.backward(LINEAR, MIB), thread=ENGINE)
        total = story.get(reduce(537), 3 * MIB, ENGINE)
        story.free(story.get(reduce(522), 6 * MIB, ENGINE), thread=ENGINE)
        story.get([TOP], 64)
        story.free(total)
        self.assertEqual(self.at_peak(story), {"communication": 6 * MIB, "gradient": 3 * MIB, "temporary": 4})

    def test_closures(self):
        """An optimizer that runs forward passes itself."""
        story = Story()
        inner = [*LINEAR[:-1], ("/home/me/train.py", "closure", 4), (PACKAGES + "torch/optim/lbfgs.py", "LBFGS.step", 300), *STEP[1:]]
        story.get(PARAMETER, MIB)
        output = story.get(inner, 4 * MIB)
        story.get(STARTS, 4)
        gradient = story.backward(LINEAR, MIB)
        story.free(output, thread=ENGINE)
        story.get(STEP, 2 * MIB)
        story.free(gradient)
        self.assertEqual(self.at_peak(story), {"parameter": MIB, "activation": 4 * MIB, "gradient": MIB, "temporary": 4})

    def test_cache_in_training(self):
        """Autograd keeps what a cache was given, and would without it."""
        story = Story()
        cached = story.get([(PACKAGES + "transformers/cache_utils.py", "DynamicLayer.update", 120), CALL, TOP], 6 * MIB)
        story.get(STARTS, 4)
        gradient = story.backward(LINEAR, 2 * MIB)
        story.free(cached, thread=ENGINE)
        story.free(gradient)
        self.assertEqual(self.at_peak(story), {"activation": 6 * MIB, "gradient": 2 * MIB, "temporary": 4})

    def test_what_nothing_says(self):
        """Tensors that stay for many steps, and memory of code that is not PyTorch's."""
        story = Story()
        story.get([TOP], 7 * MIB)
        story.get([("/home/me/libown.so", "", 9)], 2 * MIB, OTHER, NATIVE, torch=0)
        story.get([("/home/me/cupy_part.py", "<module>", 9)], MIB, torch=0)
        for _ in range(5):
            story.free(story.step())
        self.assertEqual(self.at_peak(story)["unknown"], 10 * MIB)

    def test_programs_without_roles(self):
        """No PyTorch, no sites, or PyTorch's cache in between."""
        story = Story(torch=0)
        story.get(LINEAR, MIB)
        self.assertEqual(self.at_peak(story), {})
        self.assertNotIn("by role", self.report(story))
        story = Story()
        story.records.append(record(1, TORCH, MAIN, 1, 4096, MIB))
        self.assertEqual(self.at_peak(story), {})
        story = Story()
        story.get(LINEAR, MIB)
        self.assertEqual(self.at_peak(story, conf=b"pytorch:beneath"), {})

    def test_text(self):
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        story.get([(PACKAGES + "transformers/cache_utils.py", "DynamicLayer.update", 120), CALL, TOP], 6 * MIB)
        for options in ([], ["--all"]):
            self.assertIn("\nAlive at the peak of requested, by role\n      6.00 MiB key-value cache\n      2.00 MiB parameters\n", self.report(story, *options))

    def test_page(self):
        """At the first failure, or at the peak, as the first screen of the page is."""
        story = Story()
        story.get(PARAMETER, 2 * MIB)
        output = story.get(LINEAR, 4 * MIB)
        for last in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                path, page = os.path.join(folder, "trace"), os.path.join(folder, "page.html")
                with open(path, "wb") as file:
                    file.write(trace(story.records))
                subprocess.run([SEGALLOC, "report", "--html", page, path], check=True, stderr=subprocess.DEVNULL)
                with open(page, encoding="utf-8") as file:
                    data = json.loads(re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", file.read(), re.DOTALL)[1])
            self.assertEqual(data["runs"][0]["devices"][0]["roles"], [[4 * MIB, "activations"], [2 * MIB, "parameters"]])
            if not last:
                story.fail(LINEAR, 100 * GIB)
                story.free(output)
                story.get(RELU, 8 * MIB)


unittest.main()
