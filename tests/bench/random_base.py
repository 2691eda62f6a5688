#!/usr/bin/env python3
"""A base model of random weights with many thin layers, for measurements on CPU ranks in which how
layers divide over stages shall not matter: writes a Hugging Face folder for `loratrain import-hf`.

  random_base.py FOLDER [LAYERS]     vocabulary 264 (tokenizer: bytes), hidden size 128"""
import json
import random
import struct
import sys
from pathlib import Path

HIDDEN, INNER, VOCABULARY, HEADS, KV_HEADS = 128, 352, 264, 4, 2


def shapes(layers: int):
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    for i in range(layers):
        layer = f"model.layers.{i}."
        kv = HIDDEN * KV_HEADS // HEADS
        yield layer + "input_layernorm.weight", [HIDDEN]
        yield layer + "post_attention_layernorm.weight", [HIDDEN]
        for name, out in (("q", HIDDEN), ("k", kv), ("v", kv), ("o", HIDDEN)):
            yield f"{layer}self_attn.{name}_proj.weight", [out, HIDDEN]
        yield layer + "mlp.gate_proj.weight", [INNER, HIDDEN]
        yield layer + "mlp.up_proj.weight", [INNER, HIDDEN]
        yield layer + "mlp.down_proj.weight", [HIDDEN, INNER]
    yield "model.norm.weight", [HIDDEN]


def tensor(name: str, shape: list[int]) -> bytes:
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if len(shape) == 1:
        return struct.pack("<f", 1.0) * count
    draw = random.Random(name)
    return struct.pack(f"<{count}f", *(draw.gauss(0.0, 0.05) for _ in range(count)))


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__)
        return 2
    folder = Path(sys.argv[1])
    layers = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "max_position_embeddings": 256, "torch_dtype": "float32"}))
    header, data = {}, b""
    for name, shape in shapes(layers):
        values = tensor(name, shape)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
