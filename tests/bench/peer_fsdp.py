#!/usr/bin/env python3
"""How fast Hugging Face transformers + PEFT train one LoRA adapter on several GPUs with PyTorch's
FSDP2, as a yardstick for a pipeline of `loratrain bench`.

  torchrun --nproc-per-node 4 peer_fsdp.py --model llama-3-70b --batch 4 --sequence 2048

Random weights, everything in bf16, rank 16 on all seven linears, activations recomputed unless
--keep-activations. --batch is per GPU. --device cpu tries it out with gloo. Rank 0 prints one JSON
line; seconds_per_step is the median, tokens count all GPUs."""
from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from peer_model import (add_adapter, make_config, make_model, make_trainable, presets, randomise,
                        result_line, train_steps)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3-70b", choices=list(presets()))
    parser.add_argument("--batch", type=int, default=4, help="samples per GPU and step")
    parser.add_argument("--sequence", type=int, default=2048, help="tokens per sample")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--keep-activations", action="store_true")
    return parser.parse_args()


def build(arguments, config):
    """(model, optimizer): every layer sharded over all ranks, then filled shard by shard."""
    mesh = init_device_mesh(arguments.device, (dist.get_world_size(),))
    model = add_adapter(make_model(config), arguments.rank, 0.0, autocast_adapter_dtype=False,
                        low_cpu_mem_usage=True).to(torch.bfloat16)
    for layer in model.base_model.model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=arguments.device)
    randomise(model, arguments.device)
    return make_trainable(model, arguments.device, not arguments.keep_activations)


def measure(arguments, config) -> list[float]:
    """Of all ranks together."""
    model, optimizer = build(arguments, config)
    ids = torch.randint(0, config.vocab_size, (arguments.batch, arguments.sequence),
                        device=arguments.device)
    cuda = arguments.device == "cuda"

    def synchronize():
        if cuda:
            torch.cuda.synchronize()
        dist.barrier()

    return train_steps(lambda batch: model(input_ids=batch, labels=batch).loss, optimizer, [ids],
                       synchronize, arguments.steps, cuda)


def main() -> None:
    arguments = parse_arguments()
    cuda = arguments.device == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if cuda else "gloo")
    config = make_config(arguments.model, arguments.sequence)
    seconds = measure(arguments, config)
    if dist.get_rank() == 0:
        print(result_line("peer-fsdp", arguments, config, seconds, dist.get_world_size(),
                          checkpointing=not arguments.keep_activations), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
