#!/usr/bin/env python3
"""Which codes move gradients and losses how far: the linears of a real Llama model in fp8 as
src/model/lora_linear.h has them, emulated in torch on a CPU, W, X and dY in codes each by itself and
together; also what is not built: LoRA's part as more columns of codes, finer scales, layers left out.

  emulate_fp8.py --model HF_FOLDER --adapter PEFT_FOLDER --samples TOKENS.jsonl [--count 8] [--ways WAY...]

--samples: pre-tokenised (scripts/prepare_data.py), the first --count are one batch; the adapter is LoRA
on all linears. The first way is always bf16, in fp32 with all that loratrain keeps in bf16 rounded to
it. Prints a JSON line for each way: loss, its distance from bf16's, mean KL divergence of the predicted
tokens from bf16's, and of gradients by tensor the cosine with bf16's (worst, 10th percentile, median),
how many are below 0.99, the range of norm ratios, and both for all tensors as one; where W is in codes
also against the way `w`, which computes in bf16 with the same weights. Some 100 s of two cores a way."""
from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

LARGEST = 448.0
MODULES = {"qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "o": ("self_attn.o_proj",),
           "gate_up": ("mlp.gate_proj", "mlp.up_proj"), "down": ("mlp.down_proj",)}
CODES = {"w": "row", "x": "row", "dy": "row"}
# way -> what is in codes, how it is scaled ("row", or blocks of so many along it), and what else differs
WAYS = {"bf16": {}, "fp32": {"exact": True}, "w": {"w": "row"}, "x": {"x": "row"}, "dy": {"dy": "row"},
        "w+x": {"w": "row", "x": "row"}, "fp8": CODES, "fp8, LoRA in codes": CODES | {"lora": True},
        "x, blocks of 32": {"x": 32}, "w, blocks of 128": {"w": 128}, "w, best scales": {"w": "best"},
        **{f"fp8 in {group} alone": CODES | {"groups": (group,)} for group in MODULES},
        "fp8 but in 2 layers at each end": CODES | {"ends": 2}}


def bf16(x):
    return x.bfloat16().float()


def e4m3(x):
    return x.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float()


def row_scales(x):
    scale = x.abs().amax(-1, keepdim=True) / LARGEST
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def coded(x, how):
    """(codes, scales of rows), blocks already scaled back."""
    if how == "row":
        scale = row_scales(x)
        return e4m3(x / scale), scale
    if how == "best":
        return best_codes(x)
    blocks = F.pad(x, (0, -x.shape[-1] % how)).unflatten(-1, (-1, how))
    scale = row_scales(blocks)
    return (e4m3(blocks / scale) * scale).flatten(-2)[..., :x.shape[-1]], torch.ones_like(x[..., :1])


def best_codes(x):
    """The scale of each row that is best of 16 within an octave, by the sum of squared errors."""
    codes, best, least = None, None, None
    for i in range(16):
        scale = row_scales(x) * 2 ** (i / 16)
        tried = e4m3(x / scale)
        error = (tried * scale - x).square().sum(-1, keepdim=True)
        better = error < least if least is not None else torch.ones_like(error, dtype=torch.bool)
        codes = torch.where(better, tried, codes) if codes is not None else tried
        best = torch.where(better, scale, best) if best is not None else scale
        least = torch.where(better, error, least) if least is not None else error
    return codes, best


def lora_codes(factor, s, scale):
    """factor [N, r] in two e4m3 terms and s [T, r] in one under the scales of the row beside it; the
    power of two by column that makes s as large as codes go."""
    s = s / scale
    most = s.abs().flatten(0, -2).amax(0)
    power = torch.where(most > 0, (LARGEST / most.clamp(min=1e-30)).log2().floor().exp2(), torch.ones_like(most))
    factor = factor / power
    first = e4m3(factor)
    return first + e4m3(factor - first), e4m3(s * power)


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return bf16(x)

    @staticmethod
    def backward(ctx, gradient):
        return bf16(gradient)


class Group:
    """One linear group: W, how it computes, and the codes of W."""

    def __init__(self, weight, scale, way, in_codes):
        self.way = way if in_codes else {key: way[key] for key in ("exact",) if key in way}
        self.weight, self.scale = weight, scale
        self.codes, self.scales = (coded(weight, self.way["w"]) if self.way.get("w")
                                   else (weight, torch.ones(weight.shape[0], 1)))

    def round(self, x):
        return x if self.way.get("exact") else bf16(x)

    def in_codes(self, x, what):
        return coded(x, self.way[what]) if self.way.get(what) else (x, torch.ones_like(x[..., :1]))

    def forward(self, x, residual, a, b):
        s = [self.round(self.scale * (x @ self.round(factor).T)) for factor in a]
        codes, scales = self.in_codes(x, "x")
        product = (codes @ self.codes.T) * scales * self.scales[:, 0]
        if not self.way.get("lora"):
            y = torch.cat([part @ self.round(factor).T for part, factor in zip(s, b)], -1)
            return s, self.round(self.round(y if residual is None else y + residual) + product)
        y, row = [], 0
        for part, factor in zip(s, b):
            of_rows = self.scales[row:row + factor.shape[0]]
            terms, s_codes = lora_codes(self.round(factor) / of_rows, part, scales)
            y.append((s_codes @ terms.T) * scales * of_rows[:, 0])
            row += factor.shape[0]
        y = torch.cat(y, -1) + product
        return s, self.round(y if residual is None else y + residual)

    def backward(self, dy, ds, a):
        codes, scales = self.in_codes(dy * self.scales[:, 0], "dy")
        product = (codes @ self.codes) * scales
        if not self.way.get("lora"):
            return self.round(self.round(sum(part @ self.round(factor) for part, factor in zip(ds, a))) + product)
        for part, factor in zip(ds, a):
            terms, part_codes = lora_codes(self.round(factor).T, part, scales)
            product = product + (part_codes @ terms.T) * scales
        return self.round(product)


class LoraLinears(torch.autograd.Function):
    """Y = residual + X Wᵀ + S Bᵀ of a group; the gradients of A and B are those of X, dY as they are."""

    @staticmethod
    def forward(ctx, x, residual, group, *factors):
        a, b = factors[0::2], factors[1::2]
        s, y = group.forward(x, residual, a, b)
        ctx.save_for_backward(x, *factors, *s)
        ctx.group, ctx.has_residual = group, residual is not None
        return y

    @staticmethod
    def backward(ctx, dy):
        x, *kept = ctx.saved_tensors
        count = len(kept) // 3
        a, b, s = kept[0:2 * count:2], kept[1:2 * count:2], kept[2 * count:]
        group = ctx.group
        dy = group.round(dy)
        flat, gradients, ds = x.flatten(0, -2), [], []
        for part, factor, s_part in zip(dy.split([factor.shape[0] for factor in b], -1), b, s):
            ds.append(group.round(group.scale * (part @ group.round(factor))))
            gradients += [ds[-1].flatten(0, -2).T @ flat, part.flatten(0, -2).T @ s_part.flatten(0, -2)]
        return group.backward(dy, ds, a), dy if ctx.has_residual else None, None, *gradients


class Model:
    """A Llama model with tied embeddings, and its adapter."""

    def __init__(self, folder: Path, adapter: Path):
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = {key: value.float() for key, value in load_file(folder / "model.safetensors").items()}
        config = json.loads((adapter / "adapter_config.json").read_text())
        self.scale = config["lora_alpha"] / config["r"]
        self.factors = {key.removeprefix("base_model.model."): value.float().requires_grad_()
                        for key, value in load_file(adapter / "adapter_model.safetensors").items()}

    def prepare(self, way):
        layers = self.config["num_hidden_layers"]
        ends = way.get("ends", 0)
        for layer in range(layers):
            for name, modules in MODULES.items():
                weight = torch.cat([self.tensors[f"model.layers.{layer}.{module}.weight"] for module in modules])
                in_codes = name in way.get("groups", MODULES) and ends <= layer < layers - ends
                self.groups[layer, name] = Group(weight, self.scale, way, in_codes)

    def norm(self, x, name):
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return self.round(x * self.tensors[name + ".weight"])

    def linears(self, layer, name, x, residual=None):
        factors = [self.factors[f"model.layers.{layer}.{module}.lora_{which}.weight"]
                   for module in MODULES[name] for which in "AB"]
        return LoraLinears.apply(x, residual, self.groups[layer, name], *factors)

    def attention(self, qkv):
        heads, kv, dim = (self.config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        frequencies = self.config["rope_theta"] ** (-torch.arange(0, dim, 2).float() / dim)
        angles = torch.arange(qkv.shape[1]).float()[:, None] * frequencies
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)

        def rotated(x):
            first, second = x.chunk(2, -1)
            return self.round(x * cos + torch.cat([-second, first], -1) * sin)
        q, k, v = (part.unflatten(-1, (-1, dim)).transpose(1, 2)
                   for part in qkv.split([heads * dim, kv * dim, kv * dim], -1))
        out = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        return self.round(out).transpose(1, 2).flatten(-2)

    def logits(self, ids):
        x = self.tensors["model.embed_tokens.weight"][ids]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            qkv = self.linears(layer, "qkv", self.norm(x, prefix + "input_layernorm"))
            x = self.linears(layer, "o", self.attention(qkv), x)
            gate, up = self.linears(layer, "gate_up", self.norm(x, prefix + "post_attention_layernorm")).chunk(2, -1)
            x = self.linears(layer, "down", self.round(F.silu(gate) * up), x)
        return self.norm(x, "model.norm") @ self.tensors["model.embed_tokens.weight"].T

    def run(self, way, batches):
        """(loss, log probabilities of the predicted tokens, gradients)"""
        self.groups, self.round = {}, (lambda x: x) if way.get("exact") else Rounded.apply
        self.prepare(way)
        for factor in self.factors.values():
            factor.grad = None
        targets = sum(int((labels[:, 1:] != -100).sum()) for _, labels in batches)
        total, predicted = 0.0, []
        for ids, labels in batches:
            kept = labels[:, 1:] != -100
            probabilities = F.log_softmax(self.logits(ids)[:, :-1][kept], -1)
            loss = F.nll_loss(probabilities, labels[:, 1:][kept], reduction="sum") / targets
            loss.backward()
            total += loss.item()
            predicted.append(probabilities.detach())
        return total, torch.cat(predicted), {key: value.grad.clone() for key, value in self.factors.items()}


def read_batches(path: Path, count: int, size: int = 4):
    """Of samples that are alike in length, padded behind."""
    lines = [json.loads(line) for line in path.read_text().splitlines()[:count]]
    lines.sort(key=lambda line: len(line["input_ids"]))
    batches = []
    for first in range(0, len(lines), size):
        part = lines[first:first + size]
        longest = len(part[-1]["input_ids"])
        pad = [longest - len(line["input_ids"]) for line in part]
        batches.append((torch.tensor([line["input_ids"] + [0] * n for line, n in zip(part, pad)]),
                        torch.tensor([line["labels"] + [-100] * n for line, n in zip(part, pad)])))
    return batches


def distances(expected: dict, got: dict) -> dict:
    cosine = sorted(torch.cosine_similarity(value.flatten().double(), got[key].flatten().double(), 0).item()
                    for key, value in expected.items())
    ratio = [(got[key].norm() / value.norm()).item() for key, value in expected.items()]
    whole, other = (torch.cat([gradients[key].flatten() for key in expected]).double()
                    for gradients in (expected, got))
    return {"cosine": [round(cosine[at], 4) for at in (0, len(cosine) // 10, len(cosine) // 2)],
            "below_0.99": f"{sum(value < 0.99 for value in cosine)} of {len(cosine)}",
            "norm_ratio": [round(min(ratio), 3), round(max(ratio), 3)],
            "cosine_of_all": round(torch.cosine_similarity(whole, other, 0).item(), 4),
            "norm_ratio_of_all": round((other.norm() / whole.norm()).item(), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--samples", type=Path, required=True)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    arguments = parser.parse_args()
    model, batches = Model(arguments.model, arguments.adapter), read_batches(arguments.samples, arguments.count)
    found = {}
    for name in ["bf16", *(way for way in arguments.ways if way != "bf16")]:
        loss, predicted, gradients = model.run(WAYS[name], batches)
        if name in ("bf16", "w"):
            found[name] = (loss, predicted, gradients)
        of_bf16 = found["bf16"]
        exact = of_bf16[1]
        line = {"way": name, "loss": round(loss, 5), "over": round(loss / of_bf16[0] - 1, 5),
                "kl": round((exact.exp() * (exact - predicted)).sum(-1).mean().item(), 5),
                **distances(of_bf16[2], gradients)}
        if WAYS[name].get("w") and name != "w" and "w" in found:
            line["to_w"] = {"over": round(loss / found["w"][0] - 1, 5), **distances(found["w"][2], gradients)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
