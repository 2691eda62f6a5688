"""Reference trajectories of adapters that train rows of the embedding, by Hugging Face transformers + PEFT in float64.
usage: make_tokens_golden.py GOLDEN_DIR
As make_forms.py's adapters, but <family>/tokens.json: LoraConfig(trainable_token_indices=...) of a base without ties (llama), with a
tied head (qwen2), with one that is tied, divides its logits, multiplies embeddings and has a padding token, which is among the
trained ones (granite), and with one that caps logits (gemma2). Rows begin moved from the base's."""
import json
import os
import sys

import torch

import make_forms

NAME = "t_tokens"
PLAIN, FEW = make_forms.PLAIN, make_forms.FEW
KEYS = {"llama": dict(PLAIN, r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], trainable_token_indices=[7, 250, 3, 319],
                      weight_decay=0.1),
        "qwen2": dict(PLAIN, r=3, lora_alpha=6, target_modules=["v_proj", "up_proj"], trainable_token_indices=[290, 11, 12, 150, 0],
                      lr_scheduler_type="linear", weight_decay=0.1, max_grad_norm=0.5),
        "granite": dict(FEW, r=3, lora_alpha=3, target_modules=["k_proj"], trainable_token_indices=[40, 0, 199, 41]),
        "gemma2": dict(FEW, r=2, lora_alpha=4, target_modules=["o_proj"], trainable_token_indices=[100, 5, 6], use_rslora=True)}
SEEDS = {"llama": 41, "qwen2": 42, "granite": 43, "gemma2": 44}


def draw_samples(keys, model, generator):
    """Every fourth token is one of the trained ones."""
    samples = make_forms.draw_samples(keys["global_batch_size"] * make_forms.STEPS, model, generator)
    trained = keys["trainable_token_indices"]
    for ids, labels in samples:
        for i in range(len(ids)):
            if int(torch.randint(0, 4, (1,), generator=generator)) > 0:
                continue
            ids[i] = trained[int(torch.randint(0, len(trained), (1,), generator=generator))]
            labels[i] = -100 if labels[i] == -100 else ids[i]
    return samples


def main():
    golden = sys.argv[1]
    make_forms.CONFIG = (*make_forms.CONFIG, "trainable_token_indices")
    for family, keys in KEYS.items():
        generator = torch.Generator().manual_seed(SEEDS[family])
        folder = f"{golden}/{family}/adapters/{NAME}"
        os.makedirs(folder, exist_ok=True)
        model = make_forms.peft_model(f"{golden}/{family}/base", keys, generator)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if "trainable_tokens_delta" in name:
                    p.copy_((p + p.std() * 0.3 * torch.randn(*p.shape, generator=generator, dtype=torch.float64)).float().double())
        make_forms.save(model, f"{folder}/init")
        samples = draw_samples(keys, model, generator)
        with open(f"{folder}/data.jsonl", "w") as out:
            for ids, labels in samples:
                out.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
        facts = make_forms.train(model, keys, samples, folder)
        make_forms.save(model, f"{folder}/final")
        make_forms.save_logits(model, samples, folder)
        print(family, facts["loss"], facts["grad_norm"])
        with open(f"{golden}/{family}/tokens.json", "w") as out:
            json.dump({"steps": make_forms.STEPS, "adapters": {NAME: facts}}, out, indent=1)


if __name__ == "__main__":
    main()
