#!/usr/bin/env python3
"""Answers a question with an exported adapter, loaded by Hugging Face PEFT as any user does.

  ask_adapter.py RUN_DIR/adapters/NAME "What is 3 times 7?" [--max-new-tokens 200]

The base is the one that adapter_config.json names, its tokenizer and chat template lie beside it; without
a template the text goes in as it is. Greedy decoding. Needs torch, transformers and peft (requirements.txt).
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from needed_packages import needed_packages

with needed_packages(__name__, "torch, transformers and peft"):
    import torch
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer


def answer(adapter: Path, text: str, max_new_tokens: int) -> str:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoPeftModelForCausalLM.from_pretrained(adapter, device_map=device).eval()
    tokenizer = AutoTokenizer.from_pretrained(model.peft_config["default"].base_model_name_or_path)
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                             add_generation_prompt=True)
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=not tokenizer.chat_template).to(device)
    with torch.no_grad():
        output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False,
                                pad_token_id=tokenizer.eos_token_id)
    return tokenizer.decode(output[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", type=Path)
    parser.add_argument("text")
    parser.add_argument("--max-new-tokens", type=int, default=200)
    args = parser.parse_args()
    if not (args.adapter / "adapter_config.json").is_file():
        print(f"ask_adapter: {args.adapter}: no adapter_config.json; give a folder below RUN_DIR/adapters",
              file=sys.stderr)
        return 2
    print(answer(args.adapter, args.text, args.max_new_tokens))
    return 0


if __name__ == "__main__":
    sys.exit(main())
