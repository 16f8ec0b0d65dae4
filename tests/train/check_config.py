#!/usr/bin/env python3
"""segalloc-train --config: the shape from a config.json of Hugging Face gives the same plan as the same shape otherwise.

Usage: check_config.py SEGALLOC_TRAIN"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TRAIN = sys.argv.pop(1)
# As the models' own files have them, keys that say nothing of the shape left out.
QWEN25_7B = {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
             "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
             "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 152064}
QWEN3_4B = {"model_type": "qwen3", "attention_bias": False, "head_dim": 128, "hidden_size": 2560,
            "intermediate_size": 9728, "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
            "vocab_size": 151936}
LLAMA = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
         "num_hidden_layers": 16, "num_key_value_heads": 8, "rope_parameters": {"rope_theta": 500000.0},
         "tie_word_embeddings": True, "dtype": "bfloat16", "vocab_size": 128256, "head_dim": None}


class Config(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "config.json"

    def ran(self, *arguments, status=0):
        result = subprocess.run([TRAIN, *arguments], capture_output=True, text=True, timeout=100)
        self.assertEqual(result.returncode, status, result)
        return result

    def plan(self, *arguments):
        return json.loads(self.ran(*arguments, "--budget", "--json").stdout)

    def configured(self, config, *arguments):
        self.file.write_text(json.dumps(config))
        plan = self.plan("--config", str(self.file), *arguments)
        self.assertEqual(plan["preset"], config["model_type"])
        return plan

    def same(self, config, preset):
        self.assertEqual({**config, "preset": "", "seconds": 0}, {**preset, "preset": "", "seconds": 0})

    def test_presets(self):
        self.same(self.configured(QWEN25_7B), self.plan("--preset", "qwen25-7b-lora"))
        self.same(self.configured(QWEN3_4B, "--preset", "spiral-qwen3-4b"), self.plan("--preset", "spiral-qwen3-4b"))

    def test_options_come_after(self):
        plan = self.configured(LLAMA, "--rank", "32")
        self.assertEqual(plan["parameters"] - plan["trainable_parameters"], 1235814400)  # of Llama-3.2-1B, as published
        self.assertLess(self.configured(LLAMA, "--layers", "8")["parameters"], plan["parameters"])
        self.assertGreater(self.configured({**LLAMA, "dtype": "float32"}, "--rank", "32")["peak_bytes"],
                           plan["peak_bytes"])
        # what is left out: as many heads for keys as for queries, a head's share of the width
        left_out = {key: value for key, value in LLAMA.items() if key not in ("num_key_value_heads", "head_dim")}
        self.same(self.configured(left_out), self.configured({**LLAMA, "num_key_value_heads": 32, "head_dim": 64}))

    def test_it_fits(self):
        self.file.write_text(json.dumps(LLAMA))
        self.ran("--config", str(self.file), "--card", "80GiB")
        self.ran("--config", str(self.file), "--card", "1GiB", status=1)

    def test_refused(self):
        for text, reason in (('{"model_type": "gpt2"}', "model_type is gpt2"), ("{}", "model_type is missing"),
                             ("[]", "no JSON object"), ("{", "line 1"),
                             (json.dumps({**LLAMA, "hidden_size": -1}), '"hidden_size" is no whole number'),
                             (json.dumps({**LLAMA, "num_hidden_layers": "16"}), '"num_hidden_layers"'),
                             (json.dumps({**LLAMA, "num_key_value_heads": 5}), "multiple of kv-heads")):
            self.file.write_text(text)
            self.assertIn(reason, self.ran("--config", str(self.file), "--budget", status=2).stderr)
        self.assertIn("/nowhere", self.ran("--config", "/nowhere", "--budget", status=2).stderr)
        self.assertIn("leave out --config",
                      self.ran("--config", str(self.file), "--scenario", "lora-sft", status=2).stderr)


unittest.main()
