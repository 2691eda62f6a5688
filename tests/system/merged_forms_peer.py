#!/usr/bin/env python3
"""What transformers, PEFT, bitsandbytes and compressed-tensors make of a model in few bits.

  merged_forms_peer.py make FOLDER FAMILY     writes FOLDER/base and FOLDER/adapter, small and random, in fp32
  merged_forms_peer.py compare FOLDER FORM...
        quantises what PEFT's merge_and_unload() gives (nf4 by bitsandbytes; int8, fp8 by their formulas in
        torch) and compares FOLDER/FORM with it as transformers loads that. Prints JSON by form: "unlike", the part of
        the weights that are another number; "logits", the largest difference over the largest logit; "shares", by
        module, how far what surviving_changes.json says is from the same figures of these weights.
  merged_forms_peer.py same FOLDER MERGED     the largest differences of weights, by their last name, and of logits between
                                              two folders as transformers loads them"""
import json
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

TOKENS = torch.arange(3, 45)[None]


def make(folder, family):
    from peft import LoraConfig, get_peft_model
    torch.manual_seed(11)
    sizes = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 200, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes, tie_word_embeddings=False),
                                             dtype=torch.float32)
    model.save_pretrained(folder / "base")
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(model, lora).save_pretrained(folder / "adapter")


def quantized(weight, form):
    """The numbers that the codes of a weight stand for."""
    if form == "nf4":
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit
        return dequantize_4bit(*quantize_4bit(weight.contiguous(), quant_type="nf4", blocksize=64))
    largest = weight.abs().amax(1, keepdim=True)
    if form == "int8":
        return (weight * (127 / largest)).round() * largest / 127
    scale = largest / 448
    return (weight / scale).to(torch.float8_e4m3fn).to(weight.dtype) * scale


def linears(model):
    return {name: module for name, module in model.named_modules() if name.endswith("_proj")}


def numbers(module, form):
    if form == "nf4":
        from bitsandbytes.functional import dequantize_4bit
        return dequantize_4bit(module.weight.data, module.weight.quant_state)
    state = module.state_dict()
    return state["weight"].float() * state["SCB"][:, None] / 127


def figures(change, before, after, wanted):
    left = after - before
    return {"share": ((left * change).sum() / (change * change).sum()).item(),
            "cosine": ((left * change).sum() / (left.norm() * change.norm())).item(),
            "rounding": ((after - wanted).norm() / change.norm()).item()}


def compare(folder, *forms):
    print(json.dumps({form: compare_form(folder, form) for form in forms}))


def compare_form(folder, form):
    from peft import PeftModel
    base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    original = {name: module.weight.detach().clone() for name, module in linears(base).items()}
    whole = PeftModel.from_pretrained(base, folder / "adapter").merge_and_unload()
    found = AutoModelForCausalLM.from_pretrained(folder / form)
    # bitsandbytes packs its codes anew for the CPU, and compressed-tensors widens them, as they are first used.
    there = {} if form == "fp8" else {name: numbers(module, form) for name, module in linears(found).items()}
    # In training bitsandbytes multiplies by its weights in fp32, else by a kernel for bf16.
    logits = found.train(form == "nf4")(TOKENS).logits
    there = there or {name: module.weight for name, module in linears(found).items()}
    told = json.loads((folder / form / "surviving_changes.json").read_text())["linears"]
    assert set(told) == set(there) == set(original), set(told) ^ set(there)
    unlike, count, shares = 0, 0, {}
    for name, module in linears(whole).items():
        wanted = module.weight.detach().double()
        expected = quantized(module.weight.detach(), form)
        unlike += ((there[name] - expected).abs() > 1e-6 * expected.abs()).sum().item()
        count += expected.numel()
        own = figures(wanted - original[name].double(), quantized(original[name], form).double(), expected.double(), wanted)
        shares[name] = max(abs(told[name][key] - own[key]) for key in own)
        module.weight.data = there[name].detach()
    expected = whole(TOKENS).logits
    return {"unlike": unlike / count, "logits": ((logits - expected).abs().max() / expected.abs().max()).item(),
            "shares": shares}


def same(folder, merged):
    one, other = (AutoModelForCausalLM.from_pretrained(path) for path in (folder, merged))
    unlike = {}
    for (name, weight), there in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        last = ".".join(name.split(".")[-2:])
        unlike[last] = max(unlike.get(last, 0.0), (weight.float() - there.float()).abs().max().item())
    logits, expected = other(TOKENS).logits.float(), one(TOKENS).logits.float()
    print(json.dumps({"weights": unlike, "logits": ((logits - expected).abs().max() / expected.abs().max()).item()}))


@torch.no_grad()
def main(way, *arguments):
    logging.disable_progress_bar()
    paths = [Path(argument) if "/" in argument else argument for argument in arguments]
    {"make": make, "compare": compare, "same": same}[way](*paths)


if __name__ == "__main__":
    main(*sys.argv[1:])
