#!/usr/bin/env python3
"""The part of loader_peers.py that runs llama.cpp's own converter and loader.

  llama_cpp_logits.py convert SOURCES BASE_HF_DIR BASE.gguf
  llama_cpp_logits.py compare PACKAGES BASE.gguf ADAPTER.gguf BASE_HF_DIR GOLDEN_ADAPTER_DIR

convert: SOURCES' convert_hf_to_gguf.py in float32, without a vocabulary (the golden bases have no
tokenizer). compare: loads both with llama-cpp-python, installed in PACKAGES (pip install --target), and
prints two numbers: the largest difference of three samples' logits from the golden ones, over the largest
logit, and the same without the adapter from transformers' logits of the base. Keys and values are cached in
float32. Exit code 3: the base itself is refused."""
from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path


def convert(sources, base, out):
    sys.path[:0] = [f"{sources}/gguf-py", sources]
    import convert_hf_to_gguf
    get_class = convert_hf_to_gguf.get_model_class

    def without_words(model):
        model._set_vocab_none()
        model.gguf_writer.add_vocab_size(model.hparams["vocab_size"])

    def without_vocabulary(*arguments, **options):
        model = get_class(*arguments, **options)
        model.set_vocab = without_words
        return model

    convert_hf_to_gguf.get_model_class = without_vocabulary
    sys.argv[1:] = [base, "--outfile", out, "--outtype", "f32"]
    convert_hf_to_gguf.main()


BASE_REFUSED = 3


def model_of(llama, base):
    parameters = llama.llama_model_default_params()
    parameters.use_mmap = False
    model = llama.llama_model_load_from_file(base.encode(), parameters)
    if not model:
        print("the loader refuses the base", file=sys.stderr)
        raise SystemExit(BASE_REFUSED)
    return model


def context_of(llama, model):
    parameters = llama.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 128
    parameters.flash_attn_type = 0
    parameters.type_k = parameters.type_v = 0  # float32
    return llama.llama_init_from_model(model, parameters)


def set_adapter(llama, model, context, adapter):
    lora = llama.llama_adapter_lora_init(model, adapter.encode())
    if not lora:
        raise SystemExit("the loader refuses it")
    handles = (llama.llama_adapter_lora_p_ctypes * 1)(ctypes.cast(lora, llama.llama_adapter_lora_p_ctypes))
    if llama.llama_set_adapters_lora(context, handles, 1, (ctypes.c_float * 1)(1.0)) != 0:
        raise SystemExit("the context refuses it")


def logits_of(llama, context, ids, vocabulary):
    import numpy
    llama.llama_memory_clear(llama.llama_get_memory(context), True)
    batch = llama.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for place, token in enumerate(ids):
        batch.token[place], batch.pos[place] = token, place
        batch.n_seq_id[place], batch.seq_id[place][0], batch.logits[place] = 1, 0, 1
    if llama.llama_decode(context, batch) != 0:
        raise SystemExit("it does not compute")
    rows = [numpy.ctypeslib.as_array(llama.llama_get_logits_ith(context, place), shape=(vocabulary,)).copy()
            for place in range(len(ids))]
    llama.llama_batch_free(batch)
    return numpy.stack(rows)


def logits_of_transformers(base, samples):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    with torch.no_grad():
        return [model(input_ids=torch.tensor([ids])).logits[0].numpy() for ids in samples]


def compare(packages, base, adapter, base_hf, golden):
    sys.path.insert(0, packages)
    import llama_cpp
    from safetensors.numpy import load_file
    lines = Path(golden, "data.jsonl").read_text().splitlines()[:3]
    samples = [json.loads(line)["input_ids"] for line in lines]

    def difference(wanted):
        return max(float(abs(logits_of(llama_cpp, context, ids, want.shape[1]) - want).max() / abs(want).max())
                   for ids, want in zip(samples, wanted))

    model = model_of(llama_cpp, base)
    context = context_of(llama_cpp, model)
    of_base = difference(logits_of_transformers(base_hf, samples))
    set_adapter(llama_cpp, model, context, adapter)
    golden_logits = load_file(f"{golden}/eval_logits.safetensors")
    print(f"{difference([golden_logits[f'sample{i}'] for i in range(len(samples))]):.1e} {of_base:.1e}")


if __name__ == "__main__":
    {"convert": convert, "compare": compare}[sys.argv[1]](*sys.argv[2:])
