"""Reference trajectory of an adapter whose tokens have weights, by Hugging Face transformers + PEFT in float64.
usage: make_weights_golden.py GOLDEN_DIR
As make_forms.py's adapters of family llama, but GOLDEN_DIR/llama/weights.json: the loss of a batch is the sum of
torch's cross-entropies of its tokens by their weights over the sum of the weights. A token that lacks its weight has 1."""
import json
import os
import sys

import torch

import make_forms

NAME = "w_tokens"
KEYS = dict(make_forms.PLAIN, r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])


def draw_weights(samples, generator):
    """None of every third sample; else some are 0, the others between 0.05 and 2."""
    weights = []
    for i, (ids, _) in enumerate(samples):
        drawn = (torch.rand(len(ids), generator=generator) * 2 + 0.05).tolist()
        weights.append(None if i % 3 == 2 else [0 if w < 0.4 else round(w, 3) for w in drawn])
    return weights


class WeightedMean:
    """In place of cross_entropy(sum) / number of targets."""

    def __init__(self, samples, weights):
        self.step = 0
        self.samples, self.weights = samples, weights
        self.targets = []

    def __call__(self, logits, targets, ignore_index, reduction):
        size = KEYS["global_batch_size"]
        own = self.weights[self.step * size:(self.step + 1) * size]
        labels = self.samples[self.step * size:(self.step + 1) * size]
        width = max(len(ids) for ids, _ in labels)
        weights = torch.zeros(size, width - 1, dtype=torch.float64)
        for i, (ids, _) in enumerate(labels):
            values = own[i] or [1.0] * len(ids)
            weights[i, :len(ids) - 1] = torch.tensor(values[1:], dtype=torch.float32).double()
        weights = weights.reshape(-1) * (targets != ignore_index)
        losses = cross_entropy(logits, targets, ignore_index=ignore_index, reduction="none")
        self.step += 1
        self.targets.append(int((weights > 0).sum()))
        # make_forms divides by the number of targets.
        return (losses * weights).sum() / weights.sum() * (targets != ignore_index).sum()


cross_entropy = torch.nn.functional.cross_entropy


def main():
    golden = sys.argv[1]
    generator = torch.Generator().manual_seed(31)
    folder = f"{golden}/llama/adapters/{NAME}"
    os.makedirs(folder, exist_ok=True)
    model = make_forms.peft_model(f"{golden}/llama/base", KEYS, generator)
    make_forms.save(model, f"{folder}/init")
    samples = make_forms.draw_samples(KEYS["global_batch_size"] * make_forms.STEPS, model.config.vocab_size, generator)
    weights = draw_weights(samples, generator)
    with open(f"{folder}/data.jsonl", "w") as out:
        for (ids, labels), own in zip(samples, weights, strict=True):
            line = {"input_ids": ids, "labels": labels}
            out.write(json.dumps(line if own is None else {**line, "weights": own}) + "\n")
    torch.nn.functional.cross_entropy = mean = WeightedMean(samples, weights)
    facts = make_forms.train(model, KEYS, samples, folder)
    facts["target_tokens"] = mean.targets
    make_forms.save(model, f"{folder}/final")
    print(NAME, facts["loss"], facts["grad_norm"])
    with open(f"{golden}/llama/weights.json", "w") as out:
        json.dump({"steps": make_forms.STEPS, "adapters": {NAME: facts}}, out, indent=1)


if __name__ == "__main__":
    main()
