#!/usr/bin/env python3
"""A base model of random weights with many thin layers, for measurements on CPU ranks in which how
layers divide over stages shall not matter: writes a Hugging Face folder for `loratrain import-hf`.

  random_base.py FOLDER [LAYERS] [HIDDEN]     vocabulary 264 (tokenizer: bytes), hidden size 128, of 32 a head"""
import json
import random
import struct
import sys
from pathlib import Path

VOCABULARY, HEAD = 264, 32
# Of a float's highest byte: its sign is drawn, its exponent is that of 2^-7 to 2^-5 (with a bit of the next byte).
SMALL = bytes(byte & 0x80 | 0x3C for byte in range(256))


def shapes(layers: int, hidden: int):
    inner, kv = hidden * 11 // 4, hidden // 2
    yield "model.embed_tokens.weight", [VOCABULARY, hidden]
    for i in range(layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", [hidden]
        yield layer + "post_attention_layernorm.weight", [hidden]
        for name, out in (("q", hidden), ("k", kv), ("v", kv), ("o", hidden)):
            yield f"{layer}self_attn.{name}_proj.weight", [out, hidden]
        yield layer + "mlp.gate_proj.weight", [inner, hidden]
        yield layer + "mlp.up_proj.weight", [inner, hidden]
        yield layer + "mlp.down_proj.weight", [hidden, inner]
    yield "model.norm.weight", [hidden]


def tensor(name: str, shape: list[int]) -> bytes:
    """Single precision, little endian."""
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if len(shape) == 1:
        return struct.pack("<f", 1.0) * count
    values = bytearray(random.Random(name).randbytes(4 * count))
    values[3::4] = values[3::4].translate(SMALL)
    return bytes(values)


def main() -> int:
    if len(sys.argv) not in (2, 3, 4):
        print(__doc__)
        return 2
    folder = Path(sys.argv[1])
    layers = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    hidden = int(sys.argv[3]) if len(sys.argv) > 3 else 128
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": hidden * 11 // 4, "num_hidden_layers": layers,
        "num_attention_heads": hidden // HEAD, "num_key_value_heads": hidden // HEAD // 2,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "max_position_embeddings": 256, "torch_dtype": "float32"}))
    header, data = {}, bytearray()
    for name, shape in shapes(layers, hidden):
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
