#!/usr/bin/env python3
"""Trains the quickstart's base model from scratch: a byte-level Llama of 2.4 million parameters.

  pretrain_demo_base.py OUT_DIR [--steps 6500] [--batch 512] [--device cuda]

Reads nothing: the text comes from make_demo_tasks.corpus(seed). Writes a Hugging Face model directory
(config.json, model.safetensors in bf16, < 8 MB) and training.json with the settings, the loss curve
and how well the model does each exercise of its worksheets. A GPU needs a few minutes; for a trial on
a CPU use --steps 20 --batch 4.

Vocabulary: bytes 0..255, 256 = BOS, 257 = EOS, 258 = PAD, padded to 264 entries.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

import make_demo_tasks as demo

BOS, EOS, PAD, VOCAB = 256, 257, 258, 264
ROW = demo.WORKSHEET_BYTES + 2


def model_config() -> LlamaConfig:
    return LlamaConfig(vocab_size=VOCAB, hidden_size=192, intermediate_size=512, num_hidden_layers=6,
                       num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=256,
                       rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                       tie_word_embeddings=True, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD)


def encode_block(seed: int, first: int, count: int) -> np.ndarray:
    """Worksheets first .. first+count-1 as rows [BOS] + bytes + [EOS] + padding, int16 [count, ROW]."""
    rows = np.full((count, ROW), PAD, dtype=np.int16)
    for row, text in zip(rows, demo.corpus(seed, first, count)):
        raw = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
        row[0], row[1:1 + len(raw)], row[1 + len(raw)] = BOS, raw, EOS
    return rows


def encode_corpus(seed: int, count: int, workers: int) -> torch.Tensor:
    """The first `count` worksheets of the corpus, int16 [count, ROW]; the same for any `workers`."""
    block = 20000
    starts = range(0, count, block)
    counts = [min(block, count - start) for start in starts]
    with ProcessPoolExecutor(workers) as pool:
        rows = list(pool.map(encode_block, [seed] * len(counts), starts, counts))
    return torch.from_numpy(np.concatenate(rows))


def learning_rate(progress: float, step: int, peak: float, warmup: int = 200) -> float:
    """Linear warmup, then a cosine from the peak to 2% of it at progress 1."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def train(model: LlamaForCausalLM, rows: torch.Tensor, args: argparse.Namespace) -> list[tuple[int, float]]:
    """One pass over the rows in order; returns (step, mean loss since the last entry) pairs."""
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
                                  lr=args.learning_rate, betas=(0.9, 0.98), fused=args.device == "cuda")
    curve: list[tuple[int, float]] = []
    sums, begin = torch.zeros((), device=args.device), time.time()
    model.train()
    for step in range(args.steps):
        progress = max(step / args.steps, (time.time() - begin) / (60 * args.max_minutes))
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, step, args.learning_rate)
        ids = rows[step * args.batch:(step + 1) * args.batch].long()
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.device == "cuda"):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        sums += loss.detach()
        if (step + 1) % args.log_every == 0:
            curve.append((step + 1, round(sums.item() / args.log_every, 4)))
            sums.zero_()
            print(f"step {step + 1:6} loss {curve[-1][1]:.4f} after {time.time() - begin:.0f} s", flush=True)
    return curve


@torch.no_grad()
def exercise_scores(model: LlamaForCausalLM, count: int = 256) -> dict[str, float]:
    """Per kind of exercise: the fraction of fresh problems (one at the top of a worksheet, in words)
    whose answer is the most likely continuation byte by byte."""
    rng, scores = random.Random("scores"), {}
    model.eval()
    for name, (_, draw, wordings) in demo.SKILLS.items():
        ids = torch.full((count, ROW), PAD)
        answers = torch.zeros((count, ROW), dtype=torch.bool)
        for row in range(count):
            inputs, answer = draw(rng)
            question = demo.pick(rng, wordings).format(**inputs) + " is "
            text = (question + answer).encode()
            ids[row, :len(text) + 1] = torch.tensor([BOS, *text])
            answers[row, len(question) + 1:len(text) + 1] = True
        best = model(input_ids=ids.to(model.device), use_cache=False).logits.argmax(-1).cpu()
        wrong = (best[:, :-1] != ids[:, 1:]) & answers[:, 1:]
        right = (~wrong.any(1)).sum().item()
        scores[name] = round(right / count, 3)
    return scores


def save(model: LlamaForCausalLM, out: Path) -> None:
    """Writes config.json and model.safetensors in bf16; checks the size."""
    model.to(torch.bfloat16).save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    (out / "model.safetensors").chmod(0o644)
    size = (out / "model.safetensors").stat().st_size
    if size > 8_000_000:
        raise SystemExit(f"{out}/model.safetensors: {size} bytes, more than 8 MB")
    print(f"{out}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument("--steps", type=int, default=6500)
    parser.add_argument("--batch", type=int, default=512, help="worksheets per step (default 512)")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="peak rate (default 3e-3)")
    parser.add_argument("--max-minutes", type=float, default=60,
                        help="end by then, with the rate decayed, even if not all steps were made")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that write the corpus")
    parser.add_argument("--log-every", type=int, default=250, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(args.seed)
    begin = time.time()
    rows = encode_corpus(args.seed, args.steps * args.batch, args.workers).to(args.device)
    print(f"{len(rows)} worksheets, {(rows != PAD).sum().item()} tokens after {time.time() - begin:.0f} s", flush=True)
    model = LlamaForCausalLM(model_config()).to(args.device)
    curve = train(model, rows, args)
    seconds = round(time.time() - begin)
    args.out.mkdir(parents=True, exist_ok=True)
    save(model, args.out)
    facts = {"steps": args.steps, "batch": args.batch, "learning_rate": args.learning_rate, "seed": args.seed,
             "seconds": seconds, "loss": curve, "exercises": exercise_scores(model.float())}
    (args.out / "training.json").write_text(json.dumps(facts) + "\n")
    print(json.dumps(facts["exercises"]))


if __name__ == "__main__":
    main()
