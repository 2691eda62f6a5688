#!/usr/bin/env python3
"""The part of loader_peers.py that runs llama.cpp's own converter and loader.

  llama_cpp_logits.py convert SOURCES BASE_HF_DIR BASE.gguf
  llama_cpp_logits.py compare PACKAGES BASE.gguf ADAPTER.gguf GOLDEN_ADAPTER_DIR

convert: SOURCES' convert_hf_to_gguf.py in float32, without a vocabulary (the golden bases have no
tokenizer). compare: loads both with llama-cpp-python, installed in PACKAGES (pip install --target), and
prints the largest difference of three samples' logits from the golden ones, over the largest logit. Keys
and values are cached in float32."""
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


def context_of(llama, base, adapter):
    model_parameters = llama.llama_model_default_params()
    model_parameters.use_mmap = False
    model = llama.llama_model_load_from_file(base.encode(), model_parameters)
    if not model:
        raise SystemExit("the loader refuses the base")
    lora = llama.llama_adapter_lora_init(model, adapter.encode())
    if not lora:
        raise SystemExit("the loader refuses it")
    parameters = llama.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 128
    parameters.flash_attn_type = 0
    parameters.type_k = parameters.type_v = 0  # float32
    context = llama.llama_init_from_model(model, parameters)
    handles = (llama.llama_adapter_lora_p_ctypes * 1)(ctypes.cast(lora, llama.llama_adapter_lora_p_ctypes))
    if llama.llama_set_adapters_lora(context, handles, 1, (ctypes.c_float * 1)(1.0)) != 0:
        raise SystemExit("the context refuses it")
    return context


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


def compare(packages, base, adapter, golden):
    sys.path.insert(0, packages)
    import llama_cpp
    from safetensors.numpy import load_file
    context = context_of(llama_cpp, base, adapter)
    wanted = load_file(f"{golden}/eval_logits.safetensors")
    worst = 0.0
    for i, line in zip(range(3), Path(golden, "data.jsonl").read_text().splitlines()):
        want = wanted[f"sample{i}"]
        got = logits_of(llama_cpp, context, json.loads(line)["input_ids"], want.shape[1])
        worst = max(worst, float(abs(got - want).max() / abs(want).max()))
    print(f"{worst:.1e}")


if __name__ == "__main__":
    {"convert": convert, "compare": compare}[sys.argv[1]](*sys.argv[2:])
