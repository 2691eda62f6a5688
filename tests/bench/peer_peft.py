#!/usr/bin/env python3
"""How fast Hugging Face transformers + PEFT train one LoRA adapter on one GPU, as a yardstick for
`loratrain bench`. Random weights, bf16 base, rank 16 on all seven linears, SDPA attention.

  peer_peft.py --model llama-3.1-8b --batch 4 --sequence 2048 [--compile] [--checkpointing]

The adapter is kept in fp32, as PEFT does by default, and multiplied in fp32; --autocast multiplies it
in bf16 (what Trainer does with bf16=True), --bf16-adapter also keeps it in bf16. --nf4: QLoRA, linears
of the base in bitsandbytes' NF4. Prints one JSON line; seconds_per_step is the median."""
from __future__ import annotations

import argparse
import contextlib

import torch

from peer_model import (add_adapter, make_config, make_model, make_trainable, place_the_rest, presets,
                        quantise_linears, randomise, result_line, train_steps)

BATCHES = 4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3.1-8b", choices=list(presets()))
    parser.add_argument("--batch", type=int, default=4, help="samples per step")
    parser.add_argument("--sequence", type=int, default=2048, help="tokens per sample")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--bf16-adapter", action="store_true")
    parser.add_argument("--nf4", action="store_true")
    return parser.parse_args()


def build(arguments, config):
    """(model, optimizer)"""
    model = make_model(config)
    if arguments.nf4:
        quantise_linears(model, arguments.device)
    place_the_rest(model, arguments.device)
    randomise(model, arguments.device)
    model = add_adapter(model, arguments.rank, arguments.dropout,
                        autocast_adapter_dtype=not arguments.bf16_adapter)
    return make_trainable(model.to(arguments.device), arguments.device, arguments.checkpointing)


def measure(arguments, config) -> list[float]:
    model, optimizer = build(arguments, config)
    compiled = torch.compile(model) if arguments.compile else model
    autocast = (torch.autocast(arguments.device, torch.bfloat16) if arguments.autocast
                else contextlib.nullcontext())
    batches = [torch.randint(0, config.vocab_size, (arguments.batch, arguments.sequence),
                             device=arguments.device) for _ in range(BATCHES)]
    cuda = arguments.device == "cuda"

    def forward(ids):
        with autocast:
            return compiled(input_ids=ids, labels=ids).loss

    return train_steps(forward, optimizer, batches, torch.cuda.synchronize if cuda else lambda: None,
                       arguments.steps, cuda)


def main() -> None:
    arguments = parse_arguments()
    config = make_config(arguments.model, arguments.sequence)
    print(result_line("peer-peft", arguments, config, measure(arguments, config), 1,
                      dropout=arguments.dropout, compile=arguments.compile,
                      checkpointing=arguments.checkpointing, autocast=arguments.autocast, nf4=arguments.nf4,
                      bf16_adapter=arguments.bf16_adapter))


if __name__ == "__main__":
    main()
