#!/usr/bin/env python3
"""Are the texts of a run (eval.generate) those of transformers' generate with the exported adapters?

  generation_beside_transformers.py RUN_DIR --base HF_DIR [--samples 64] [--batch 16] [--pattern '#### (.*)']

Decodes the same prompts greedily in fp32 (no TF32), on a GPU where there is one, with the base of HF_DIR and each
adapter of RUN_DIR that has written texts, and prints, per adapter, of how many the tokens and the answers (as
scripts/exact_match.py has them) are equal, exact match of both, and tokens/s of transformers. Where tokens differ: by
how much transformers' logits of the two tokens do, at the first such place. Exit code 1 where an answer differs.

The comparison on one GPU, with SmolLM2-135M-Instruct in DIR (scripts/fetch_real_model.py) and GSM8K's test.jsonl:

  loratrain import-hf DIR base.h5
  for s in train test; do scripts/prepare_data.py GSM8K/$s.jsonl -o $s.h5 --tokenizer DIR --prompt-field question \\
      --completion-field answer --as-chat --max-seq-len 1024; done
  loratrain job.yaml            # model: {weights: base.h5, precision: fp32}, run: {dir: run},
                                # datasets: {gsm8k: {path: train.h5, eval_path: test.h5}},
                                # adapters: [{name: a, r: 16, lora_alpha: 32, max_steps: 200}],
                                # eval: {generate: {samples: 64, max_new_tokens: 256}}
  scripts/exact_match.py run --tokenizer DIR --report
  tests/bench/generation_beside_transformers.py run --base DIR
"""
from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

import torch
from peft import PeftModel
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from exact_match import answer


def write_texts(model, prompts: list[list[int]], ends: list[int], new: int) -> list[tuple[list[int], torch.Tensor]]:
    """Per prompt its tokens, up to and with one that ends it, and the logits of each."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, width - len(prompt):] = torch.tensor(prompt)
        mask[i, width - len(prompt):] = 1
    out = model.generate(input_ids=ids.to(model.device), attention_mask=mask.to(model.device), do_sample=False,
                         max_new_tokens=new, eos_token_id=ends or None, pad_token_id=0, return_dict_in_generate=True,
                         output_logits=True, temperature=None, top_p=None, top_k=None)
    texts = []
    logits = torch.stack(out.logits, 1)
    for i, row in enumerate(out.sequences[:, width:].tolist()):
        end = next((t + 1 for t, token in enumerate(row) if token in ends), len(row))
        texts.append((row[:end], logits[i, :end]))
    return texts


def first_difference(ours: list[int], theirs: list[int], logits: torch.Tensor) -> str:
    for t, (a, b) in enumerate(zip(ours, theirs)):
        if a != b:
            gap = float(logits[t, b] - logits[t, a])
            return f"token {t}: {a} for {b}, whose logit is {gap:.2e} higher"
    return f"{len(ours)} tokens for {len(theirs)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--pattern", default="#### (.*)")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    job = (args.run / "resolved.yaml").read_text()
    new = int(re.search(r"max_new_tokens: \"?(\d+)", job).group(1))
    config = json.loads((args.base / "config.json").read_text())
    ends = config.get("eos_token_id") or []
    ends = ends if isinstance(ends, list) else [ends]
    stops = re.search(r"stop_tokens: \[(.*)\]", job)
    ends += [int(token) for token in stops.group(1).split(",")] if stops else []
    tokenizer = Tokenizer.from_file(str(args.base / "tokenizer.json"))
    pattern = re.compile(args.pattern)
    differ = 0
    for path in sorted(args.run.glob("adapters/*/generations.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()][:args.samples]
        base = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.float32)
        model = PeftModel.from_pretrained(base, path.parent, autocast_adapter_dtype=False).float().to(device).eval()
        theirs, start = [], time.monotonic()
        with torch.no_grad():
            for first in range(0, len(lines), args.batch):
                theirs += write_texts(model, [line["prompt"] for line in lines[first:first + args.batch]], ends, new)
        seconds = time.monotonic() - start
        answers = {"ours": [], "theirs": [], "expected": []}
        equal_tokens = 0
        for line, (tokens, logits) in zip(lines, theirs, strict=True):
            equal_tokens += tokens == line["generated"]
            if tokens != line["generated"]:
                print(f"  sample {line['sample']}: {first_difference(line['generated'], tokens, logits)}")
            for key, ids in (("ours", line["generated"]), ("theirs", tokens), ("expected", line["reference"])):
                answers[key].append(answer(tokenizer.decode(ids), pattern))
        equal = sum(a == b for a, b in zip(answers["ours"], answers["theirs"]))
        right = {key: sum(a is not None and a == b for a, b in zip(answers[key], answers["expected"])) for key in ("ours", "theirs")}
        print(f"{path.parent.name}: {len(lines)} texts on {device}: equal answers {equal}, equal tokens {equal_tokens}, right answers "
              f"{right['ours']} here, {right['theirs']} with transformers; transformers took {seconds:.1f} s, "
              f"{sum(len(tokens) for tokens, _ in theirs) / seconds:.0f} tokens/s")
        differ += len(lines) - equal
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
