"""Quantised Hugging Face folders of a small model, and the weights that their codes stand for.

nf4 and int8 are written by transformers and bitsandbytes themselves (its CPU build will do), fp8 in
the layouts of `quant_method: fp8` and of compressed-tensors by this script. The effective weights
are computed here by their formula in numpy, in fp32 and rounded once to bf16, and must be those of
bitsandbytes to the bit.
"""
import json
import pathlib
import re
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file

FORMATS = ("nf4", "int8", "e4m3", "e4m3_block")
TILE = 128


def float32(tensor):
    return tensor.to(torch.float32).numpy()


def rounded(values):
    """To bf16, once."""
    return torch.from_numpy(values).to(torch.bfloat16)


def nf4_weights(tensors, name, shape):
    table = float32(tensors[name + ".quant_map"])
    state = json.loads(bytes(tensors[name + ".quant_state.bitsandbytes__nf4"].tolist()))
    absmax = float32(tensors[name + ".nested_quant_map"])[tensors[name + ".absmax"].numpy()]
    nested = numpy.repeat(float32(tensors[name + ".nested_absmax"]), 256)[:absmax.size]
    scales = absmax * nested + numpy.float32(state["nested_offset"])
    packed = tensors[name].numpy().reshape(-1)
    codes = numpy.stack([packed >> 4, packed & 15], axis=1).reshape(-1, 64)
    return rounded((table[codes] * scales[:, None]).reshape(shape))


def int8_weights(tensors, name):
    scales = float32(tensors[name.removesuffix("weight") + "SCB"])
    step = numpy.float32(7.874015718698502e-3)
    return rounded(tensors[name].numpy().astype(numpy.float32) * scales[:, None] * step)


def fp8_weights(tensors, name, block):
    codes = float32(tensors[name])
    if not block:
        return rounded(codes * float32(tensors[name + "_scale"]).reshape(-1, 1))
    scales = float32(tensors[name + "_scale_inv"])
    wide = scales.repeat(TILE, axis=0).repeat(TILE, axis=1)
    return rounded(codes * wide[:codes.shape[0], :codes.shape[1]])


def check_with_bitsandbytes(tensors, name, weights):
    from bitsandbytes import functional
    if name + ".absmax" in tensors:
        parts = {key.removeprefix(name + "."): value for key, value in tensors.items()
                 if key.startswith(name + ".")}
        state = functional.QuantState.from_dict(parts, device="cpu")
        state.dtype = torch.float32  # its CPU code rounds factors where it computes in bf16
        theirs = functional.dequantize_4bit(tensors[name], state)
    else:
        theirs = functional.int8_vectorwise_dequant(
            tensors[name], tensors[name.removesuffix("weight") + "SCB"])
    assert torch.equal(theirs.to(torch.bfloat16), weights), name


def save_with_bitsandbytes(dense, form, folder):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    config = BitsAndBytesConfig(load_in_8bit=True) if form == "int8" else BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(
        dense, quantization_config=config, dtype=torch.bfloat16, device_map="cpu")
    model.save_pretrained(folder, safe_serialization=True)


def quantize_fp8(weight, block):
    """Codes and scales of one matrix, largest magnitude 448."""
    rows, columns = weight.shape
    if not block:
        scales = weight.abs().amax(dim=1, keepdim=True).float() / 448
        return (weight.float() / scales).to(torch.float8_e4m3fn), scales
    scales = torch.zeros((rows + TILE - 1) // TILE, (columns + TILE - 1) // TILE)
    codes = torch.zeros(rows, columns, dtype=torch.float8_e4m3fn)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = (slice(i * TILE, (i + 1) * TILE), slice(j * TILE, (j + 1) * TILE))
            scales[i, j] = weight[part].abs().max().float() / 448
            codes[part] = (weight[part].float() / scales[i, j]).to(torch.float8_e4m3fn)
    return codes, scales


def save_fp8(dense, form, folder):
    block = form == "e4m3_block"
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((dense / "config.json").read_text())
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True,
               "dynamic": False}
    config["quantization_config"] = (
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
         "weight_block_size": [TILE, TILE]} if block else
        {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
         "quantization_status": "compressed",
         "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = load_file(dense / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        tensors[name], scales = quantize_fp8(tensors[name], block)
        if block:
            tensors[name + "_scale_inv"] = scales
        else:
            tensors[name + "_scale"] = scales.to(torch.bfloat16)  # as llm-compressor has them
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def quantize_mxfp4(weight):
    """Blocks and scales of [experts, in, out]: of 32 weights of one output, 16 bytes and an exponent."""
    groups = weight.transpose(1, 2).float().unflatten(2, (-1, 32))
    exponents = groups.abs().amax(dim=-1).clamp(min=2.0 ** -100).log2().floor() - 2
    scaled = groups / torch.exp2(exponents)[..., None]
    codes = (scaled.abs()[..., None] - torch.tensor(FP4)).abs().argmin(dim=-1) + 8 * (scaled < 0)
    blocks = (codes[..., 0::2] + 16 * codes[..., 1::2]).to(torch.uint8)
    return blocks.contiguous(), (exponents + 127).to(torch.uint8)


def save_mxfp4(model, folder):
    """Gives `model` the weights of the folder that it writes. Returns bits_of() them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    dtype = next(model.parameters()).dtype
    model.to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = load_file(folder / "model.safetensors")
    state, bits = model.state_dict(), {}
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        blocks, scales = quantize_mxfp4(tensors.pop(name))
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        state[name] = convert_moe_packed_tensors(blocks, scales)
        experts, linears = name.rsplit(".", 1)[0], name.rsplit(".", 1)[1].removesuffix("_proj").split("_")
        for expert, weight in enumerate(state[name]):
            for place, linear in enumerate(linears):
                bits[f"{experts}.{expert}.{linear}_proj.weight"] = bits_of(weight[:, place::len(linears)].T)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model.load_state_dict(state)
    model.to(dtype)
    return bits


def bits_of(weights):
    """A number that tells bf16 matrices apart: the sum of bits[i] * (2 i + 1) mod 2^64."""
    bits = weights.contiguous().view(torch.uint16).numpy().reshape(-1).astype(numpy.uint64)
    odd = 2 * numpy.arange(bits.size, dtype=numpy.uint64) + numpy.uint64(1)
    return int((bits * odd).sum(dtype=numpy.uint64))


def matrices_of(name, shape):
    """The matrices that a tensor of the model has one above another, by their names in files; none
    where it is not quantised. transformers keeps the linears of all experts in one tensor."""
    if name.endswith("_proj.weight"):
        return [name]
    found = re.fullmatch(r"(.*\.experts)\.(gate_up|down)_proj", name)
    return [f"{found[1]}.{expert}.{linear}_proj.weight" for expert in range(shape[0])
            for linear in found[2].split("_")] if found else []


def effective_weights(tensors, name, shape, form):
    if form == "nf4":
        weights = nf4_weights(tensors, name, shape)
    elif form == "int8":
        weights = int8_weights(tensors, name)
    else:
        weights = fp8_weights(tensors, name, form == "e4m3_block")
    if form in ("nf4", "int8"):
        check_with_bitsandbytes(tensors, name, weights)
    return weights


def quantize(model, form, folder):
    """Writes `model` (values that bf16 can hold) quantised to `folder`, and gives it the weights of
    that folder. Returns bits_of() them."""
    folder = pathlib.Path(folder)
    if form == "mxfp4":
        return save_mxfp4(model, folder)
    with tempfile.TemporaryDirectory() as dense:
        dense = pathlib.Path(dense)
        dtype = next(model.parameters()).dtype
        model.to(torch.bfloat16).save_pretrained(dense, safe_serialization=True)
        model.to(dtype)
        if form in ("nf4", "int8"):
            save_with_bitsandbytes(dense, form, folder)
        else:
            save_fp8(dense, form, folder)
    tensors = load_file(folder / "model.safetensors")
    state = model.state_dict()
    bits = {}
    for name, value in state.items():
        matrices = matrices_of(name, value.shape)
        if not matrices:
            assert torch.equal(tensors[name].double(), value.double()), name
            continue
        columns = value.shape[-1]
        shape = (value.numel() // columns // len(matrices), columns)
        weights = {matrix: effective_weights(tensors, matrix, shape, form) for matrix in matrices}
        bits.update({matrix: bits_of(of_matrix) for matrix, of_matrix in weights.items()})
        state[name] = torch.cat(list(weights.values())).reshape(value.shape).to(value.dtype)
    model.load_state_dict(state)
    return bits
