#!/usr/bin/env python3
"""Speed of TRL's GRPO with transformers' generate, as rewards_speed.py measures loratrain.

  rewards_speed_trl.py [--steps 2]

One adapter (r 16, all linears) on a random base of Llama 3.1 8B's shape in bf16: 8 prompts of 64
tokens, 8 texts of 256 tokens each a step. Prints one JSON line: seconds of a step and of its
generate(), and sampled tokens per second. Needs torch, transformers, peft, trl, datasets; a GPU.
"""
import argparse
import json
import random
import statistics
import time

import torch
from datasets import Dataset
from datasets.table import InMemoryTable
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

VOCABULARY = 128256
PROMPT, NEW, PROMPTS, GROUP, MICROBATCH = 64, 256, 8, 8, 16
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make_tokenizer():
    ids = {"<unk>": 0, "<pad>": 1, "<eos>": 2} | {f"t{i}": i for i in range(3, VOCABULARY)}
    words = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>",
                                   padding_side="left")


def make_model():
    config = LlamaConfig(
        num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=VOCABULARY, max_position_embeddings=8192,
        rope_theta=500000.0, tie_word_embeddings=False, eos_token_id=None, pad_token_id=1,
        bos_token_id=None)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.02) if weight.dim() > 1 else weight.fill_(1)
    model.generation_config.eos_token_id = None  # every text has all its tokens
    return model


def make_prompts():
    draw = random.Random(1)
    texts = [" ".join(f"t{draw.randrange(3, VOCABULARY)}" for _ in range(PROMPT))
             for _ in range(256)]
    # A fingerprint of its own: dill cannot pickle tables of new pyarrow.
    return Dataset(InMemoryTable.from_pydict({"prompt": texts}), fingerprint="prompts")


def share_of_even(completions, **_):
    words = [text.split() for text in completions]
    return [sum(int(w[1:]) % 2 == 0 for w in text if w[0] == "t") / max(1, len(text))
            for text in words]


def time_calls(model):
    """Seconds of each generate() of the model's class, a list that grows."""
    inner, seconds = type(model).generate, []

    def timed(self, *args, **kwargs):
        since = time.monotonic()
        out = inner(self, *args, **kwargs)
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - since)
        return out

    type(model).generate = timed
    return seconds


class Clock(TrainerCallback):
    def __init__(self):
        self.seconds = []

    def on_step_begin(self, *_, **__):
        self.since = time.monotonic()

    def on_step_end(self, *_, **__):
        torch.cuda.synchronize()
        self.seconds.append(time.monotonic() - self.since)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=2)
    steps = parser.parse_args().steps
    clock = Clock()
    trainer = GRPOTrainer(
        model=make_model(), reward_funcs=share_of_even, train_dataset=make_prompts(),
        processing_class=make_tokenizer(), callbacks=[clock],
        args=GRPOConfig(
            output_dir="/tmp/trl", per_device_train_batch_size=MICROBATCH,
            gradient_accumulation_steps=PROMPTS * GROUP // MICROBATCH, num_generations=GROUP,
            max_completion_length=NEW, temperature=1.0, beta=0.0, learning_rate=1e-4,
            max_steps=steps + 1, bf16=True, logging_steps=1, report_to=[], save_strategy="no",
            use_vllm=False, gradient_checkpointing=True, mask_truncated_completions=False,
            generation_kwargs={"eos_token_id": None, "min_new_tokens": NEW}),
        peft_config=LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM", target_modules=LINEARS))
    generating = time_calls(trainer.model)
    start = time.monotonic()
    trainer.train()
    # Texts are written before on_step_begin of their step: the first step warms up.
    whole = (time.monotonic() - start - clock.seconds[0] - generating[0]) / steps
    sample = statistics.median(generating[1:])
    print(json.dumps({
        "step_seconds": round(whole, 2), "sample_seconds": round(sample, 2),
        "sampled_tokens_per_second": round(PROMPTS * GROUP * NEW / sample)}))


if __name__ == "__main__":
    main()
