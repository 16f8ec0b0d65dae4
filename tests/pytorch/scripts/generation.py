"""Decoding token by token with the caches that transformers has, for a decoder and for an encoder with a decoder."""
import torch
from transformers import (DynamicCache, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, StaticCache, T5Config, T5ForConditionalGeneration)

torch.manual_seed(0)
ids = torch.randint(1, 500, (2, 17)).cuda()
small = dict(vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)


def decode(model, cache, steps=24):
    given = ids
    for _ in range(steps):
        out = model(input_ids=given, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        given = out.logits[:, -1].argmax(-1, keepdim=True)
    return tuple(given.shape)


with torch.inference_mode():
    llama = LlamaForCausalLM(LlamaConfig(**small)).cuda().half()
    print("llama", decode(llama, DynamicCache(config=llama.config)))
    print("llama, static", decode(llama, StaticCache(config=llama.config, max_cache_len=64)))
    mistral = MistralForCausalLM(MistralConfig(**small, sliding_window=16)).cuda().bfloat16()
    print("mistral, sliding", decode(mistral, DynamicCache(config=mistral.config)))
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_embd=128, n_layer=2, n_head=4)).cuda()
    print("gpt2", decode(gpt, None))
    t5 = T5ForConditionalGeneration(T5Config(vocab_size=500, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4,
                                             decoder_start_token_id=0)).cuda()
    print("t5", tuple(t5(input_ids=ids, decoder_input_ids=ids[:, :4]).logits.shape))
    for name, options in (("greedy", {}), ("sampled", {"do_sample": True, "top_k": 20, "top_p": 0.9,
                                                       "temperature": 0.7}),
                          ("no end", {"eos_token_id": None}),
                          ("static", {"cache_implementation": "static", "disable_compile": True}),
                          ("penalties", {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}),
                          ("beams", {"num_beams": 3})):
        out = llama.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20,
                             **{"do_sample": False, **options})
        print("generate", name, 17 < out.shape[1] <= 37)
    ended = llama.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False,
                           eos_token_id=None)
    print("generate to the last token", tuple(ended.shape))
torch.cuda.synchronize()
