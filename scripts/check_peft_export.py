#!/usr/bin/env python3
"""Does an exported adapter give the same logits in Hugging Face PEFT as in loratrain?

  check_peft_export.py BASE_HF_DIR ADAPTER_DIR LOGITS.safetensors --samples data.jsonl

Loads the base with transformers and the adapter with PeftModel.from_pretrained, both unchanged,
computes in float32 (or --dtype float64) the logits of the samples and compares them with the stored
ones: tensors sample0, sample1, ... of shape [tokens, vocabulary], sample i being line i of the
pre-tokenised data.jsonl. Prints per sample the largest difference relative to the largest stored
logit; exit code 1 where it exceeds --tolerance (1e-4), 2 where the files do not fit together.

Without LOGITS it checks that the adapter loads and prints the loss of the samples.
"""
from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from pathlib import Path

from needed_packages import needed_packages

with needed_packages(__name__, "torch, transformers, peft and safetensors"):
    import torch
    import torch.nn.functional as F
    from peft import PeftModel
    from peft.utils import get_peft_model_state_dict
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText


class CheckError(Exception):
    """The files do not fit together; the text says which and how."""


def read_samples(path: Path, count: int | None) -> list[dict[str, list[int]]]:
    """The first `count` samples (None: all) of a pre-tokenised JSONL file."""
    samples = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if count is not None and len(samples) == count:
            break
        record = json.loads(line)
        if "input_ids" not in record:
            raise CheckError(f"{path}:{number}: no input_ids; scripts/prepare_data.py makes them from text")
        samples.append(record)
    return samples


def load(base: Path, adapter: Path, dtype: torch.dtype) -> PeftModel:
    """Base and adapter as any user of PEFT loads them; every tensor of the adapter file must find its
    place and the other way round."""
    config = AutoConfig.from_pretrained(base)
    has_pictures = type(config) in AutoModelForImageTextToText._model_mapping
    auto = AutoModelForImageTextToText if has_pictures else AutoModelForCausalLM
    model = auto.from_pretrained(base, dtype=dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(model, adapter, autocast_adapter_dtype=False).to(dtype).eval()
    missing = [str(warning.message) for warning in caught if "missing adapter keys" in str(warning.message)]
    if missing:
        raise CheckError(f"{adapter}: {missing[0]}")
    # Beside LoRA on lm_head PEFT would save the base's embeddings too. Of experts it makes other tensors.
    expected = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    expected, found = ({name for name in names if ".experts." not in name}
                       for names in (expected, load_file(adapter / "adapter_model.safetensors")))
    if expected != found:
        example = sorted(expected ^ found)[0]
        raise CheckError(f"{adapter}: {len(found - expected)} tensors without a place in the model, "
                         f"{len(expected - found)} missing; for example {example}")
    return model


@torch.no_grad()
def logits_of(model: PeftModel, sample: dict[str, list[int]]) -> torch.Tensor:
    return model(input_ids=torch.tensor([sample["input_ids"]])).logits[0]


def compare(model: PeftModel, samples: list[dict], stored: dict[str, torch.Tensor]) -> float:
    """Prints a line per sample; returns the largest relative difference, NaN counting as infinite."""
    worst = 0.0
    for index, sample in enumerate(samples):
        want, have = stored[f"sample{index}"], logits_of(model, sample)
        if want.shape != have.shape:
            raise CheckError(f"sample{index}: stored logits are {tuple(want.shape)}, PEFT's {tuple(have.shape)}")
        difference = ((have.double() - want.double()).abs().max() / want.double().abs().max()).item()
        difference = math.inf if math.isnan(difference) else difference
        agreeing = (have.argmax(-1) == want.argmax(-1)).double().mean().item()
        print(f"sample{index}: {len(sample['input_ids'])} tokens, difference {difference:.2e}, "
              f"same most likely token in {100 * agreeing:.1f}%")
        worst = max(worst, difference)
    return worst


def mean_loss(model: PeftModel, samples: list[dict]) -> float:
    """Summed cross-entropy of all targets / their number."""
    total, targets = 0.0, 0
    for sample in samples:
        labels = torch.tensor(sample.get("labels", sample["input_ids"]))[1:]
        total += F.cross_entropy(logits_of(model, sample)[:-1].double(), labels, ignore_index=-100, reduction="sum").item()
        targets += int((labels != -100).sum())
    return total / max(1, targets)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, help="Hugging Face directory of the base model")
    parser.add_argument("adapter", type=Path, help="PEFT directory to check")
    parser.add_argument("logits", type=Path, nargs="?", help="safetensors file with sample0, sample1, ...")
    parser.add_argument("--samples", type=Path, required=True, metavar="FILE", help="pre-tokenised JSONL")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    try:
        stored = load_file(args.logits) if args.logits else {}
        count = len(stored) if args.logits else None
        samples = read_samples(args.samples, count)
        if not samples or (args.logits and (len(samples) < count or f"sample{count - 1}" not in stored)):
            raise CheckError(f"{args.samples} has {len(samples)} samples, {args.logits} the logits of {count}")
        model = load(args.base, args.adapter, getattr(torch, args.dtype))
        if not args.logits:
            print(f"loads; loss {mean_loss(model, samples):.6f} over {len(samples)} samples")
            return 0
        worst = compare(model, samples, stored)
    except (CheckError, OSError, ValueError) as error:
        print(f"check_peft_export: {error}", file=sys.stderr)
        return 2
    result = "ok" if worst <= args.tolerance else "TOO LARGE"
    print(f"largest difference {worst:.2e} of the largest logit (tolerance {args.tolerance:.0e}): {result}")
    return 0 if worst <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
