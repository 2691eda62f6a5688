"""Trajectories of losses on rollouts in float64, over Hugging Face transformers + PEFT. Where TRL has the loss, it is
TRL's: GRPOTrainer._compute_loss itself; the others are written out as Tinker documents them.
usage: make_rollout_golden.py GOLDEN_DIR
Reads GOLDEN_DIR/llama/base, writes GOLDEN_DIR/rollouts as make_preference_golden.py its preferences. Needs trl 1.16.
Rollouts are random tokens; their sampler is the adapter's start, moved by noise, so that ratios lie around 1."""
import json
import os
from collections import defaultdict
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import entropy_from_logits

import make_preference_golden as golden

OUT = f"{golden.GOLDEN}/rollouts"
STEPS, EPOCHS = golden.STEPS, golden.EPOCHS
ATTENTION = golden.ATTENTION
ADAPTERS = [
    dict(name="grpo", r=3, targets=ATTENTION + ["down_proj"], samples=4, lr=5e-3, schedule="cosine", decay=0.01, clip=1.0,
         trl="grpo", loss={"loss": "grpo", "loss_aggregation": "sequence", "beta": 0.04}),
    dict(name="dapo", r=2, targets=["q_proj", "v_proj"], samples=3, lr=1e-2, schedule="linear", decay=0.0, clip=0.0,
         trl="dapo", loss={"loss": "grpo", "clip_low": 0.8, "clip_high": 1.28}),
    dict(name="dr_grpo", r=4, targets=ATTENTION, samples=5, lr=5e-3, schedule="constant", decay=0.0, clip=0.3,
         trl="dr_grpo", loss={"loss": "grpo", "loss_aggregation": "constant", "max_completion_length": 11, "clip_low": 0.7,
                              "clip_high": 1.3}),
    dict(name="cispo", r=2, targets=["q_proj", "up_proj"], samples=4, lr=1e-2, schedule="cosine", decay=0.0, clip=1.0,
         trl="cispo", loss={"loss": "cispo", "clip_low": 0.0, "clip_high": 1.3, "beta": 0.1}),
    dict(name="grpo_start", r=3, targets=ATTENTION + ["up_proj"], samples=3, lr=5e-3, schedule="cosine", decay=0.01, clip=1.0,
         trl="dapo", loss={"loss": "grpo", "beta": 0.5, "ref_adapter": "init_from"}),
    dict(name="importance", r=2, targets=["v_proj", "o_proj"], samples=4, lr=1e-2, schedule="linear", decay=0.01, clip=0.0,
         loss={"loss": "importance_sampling"}),
    dict(name="ppo", r=2, targets=["k_proj", "v_proj"], samples=2, lr=1e-2, schedule="constant", decay=0.0, clip=0.5,
         loss={"loss": "ppo", "clip_low": 0.9, "clip_high": 1.1, "loss_aggregation": "sequence"}),
    dict(name="cispo_both", r=2, targets=["q_proj", "gate_proj"], samples=3, lr=1e-2, schedule="constant", decay=0.0, clip=0.0,
         loss={"loss": "cispo", "clip_low": 0.85, "clip_high": 1.15, "loss_aggregation": "sequence"}),
    dict(name="dro", r=3, targets=ATTENTION, samples=4, lr=5e-3, schedule="cosine", decay=0.01, clip=1.0,
         loss={"loss": "dro", "beta": 0.2}),
]


def random_rollouts(count, vocabulary):
    """(ids, labels, advantages): a sample's tokens share an advantage, but in every third; some tokens behind the
    prompt are not trained, as those of a tool."""
    rollouts = []
    for i in range(count):
        prompt, completion = (int(torch.randint(1, 14, (1,), generator=golden.generator)) for _ in range(2))
        ids = golden.random_ids(prompt + completion, vocabulary)
        labels = [-100] * prompt + ids[prompt:]
        if completion > 4 and i % 2:
            labels[prompt + 2] = -100
        spread = golden.random_normal(len(ids)) if i % 3 == 2 else torch.zeros(len(ids), dtype=torch.float64)
        rollouts.append((ids, labels, (golden.random_normal(1) + spread).float().tolist()))
    return rollouts


def logprobs_of(model, samples):
    """[samples, width - 1]: log-probabilities of the tokens behind the first, and which are targets."""
    logits, labels = golden.logits_of(model, [sample[:2] for sample in samples])
    targets = labels[:, 1:]
    logps = torch.gather(logits[:, :-1].log_softmax(-1), 2, targets.clamp(min=0)[..., None])[..., 0]
    return logps, (targets != -100).double()


def with_sampler(model, rollouts):
    """Rollouts with the log-probabilities of a sampler that is not quite the model."""
    with torch.no_grad():
        logps, _ = logprobs_of(model, rollouts)
    noisy = (logps + 0.25 * golden.random_normal(*logps.shape)).clamp(max=-0.01).float()
    return [(*rollout, [0.0] + noisy[i, :len(rollout[0]) - 1].tolist()) for i, rollout in enumerate(rollouts)]


def mean_entropy(model, samples, mask):
    """Of the model's distributions of the targets."""
    with torch.no_grad():
        logits, _ = golden.logits_of(model, [sample[:2] for sample in samples])
    return entropy_from_logits(logits[:, :-1])[mask > 0].mean().item()


def padded(lists, width):
    return torch.tensor([list(values[1:]) + [0.0] * (width - len(values) + 1) for values in lists], dtype=torch.float64)


def trl_loss(facts, logps, reference, mask, advantages, sampler):
    """GRPOTrainer._compute_loss on log-probabilities that are there already."""
    keys = facts["loss"]
    metrics = {"train": defaultdict(list)}
    cispo = facts["trl"] == "cispo"
    high = keys.get("clip_high", 1.2)
    one_process = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logps, torch.zeros_like(logps), None), aux_loss_enabled=False,
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level="token", loss_type=facts["trl"],
        beta=keys.get("beta", 0.0), epsilon_low=1 - keys.get("clip_low", 0.8), epsilon_high=high if cispo else high - 1,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1), use_vllm=False,
        max_completion_length=keys.get("max_completion_length"), current_gradient_accumulation_steps=1,
        accelerator=one_process, model=SimpleNamespace(training=True), _metrics=metrics, _entropy_bonus_enabled=False)
    ids = torch.zeros_like(logps, dtype=torch.long)
    loss = GRPOTrainer._compute_loss(trainer, None, {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1], "completion_ids": ids, "completion_mask": mask,
        "advantages": advantages, "old_per_token_logps": sampler, "ref_per_token_logps": reference,
        "num_items_in_batch": mask.sum()})
    told = {"clip_ratio/region_mean": metrics["train"]["clip_ratio/region_mean"][0]} if not cispo else {}
    return loss, told | ({"kl": metrics["train"]["kl"][0]} if "beta" in keys else {})


def tinker_loss(facts, logps, mask, advantages, sampler):
    """As Tinker documents them, with a mean where it has a sum."""
    keys = facts["loss"]
    ratio = torch.exp(logps - sampler)
    clipped = ratio.clamp(keys.get("clip_low", 0.8), keys.get("clip_high", 1.2))
    if keys["loss"] == "importance_sampling":
        tokens = -ratio * advantages
    elif keys["loss"] == "ppo":
        tokens = -torch.min(ratio * advantages, clipped * advantages)
    elif keys["loss"] == "cispo":
        tokens = -clipped.detach() * logps * advantages
    else:
        tokens = -(logps * advantages - 0.5 * keys["beta"] * (logps - sampler) ** 2)
    if keys.get("loss_aggregation") == "sequence":
        return ((tokens * mask).sum(1) / mask.sum(1)).mean(), {}
    return (tokens * mask).sum() / mask.sum(), {}


def run(facts, model, ref_model, batch):
    """Loss, number of targets, metrics."""
    logps, mask = logprobs_of(model, batch)
    advantages, sampler = (padded([sample[i] for sample in batch], logps.shape[1]) for i in (2, 3))
    reference = None
    with torch.no_grad():
        if ref_model is not None:
            reference, _ = logprobs_of(ref_model, batch)
        elif "beta" in facts["loss"]:
            with model.disable_adapter():
                reference, _ = logprobs_of(model, batch)
    if "trl" in facts:
        loss, metrics = trl_loss(facts, logps, reference, mask, advantages, sampler)
    else:
        loss, metrics = tinker_loss(facts, logps, mask, advantages, sampler)
    ratios = torch.exp(logps - sampler).detach()[mask > 0]
    for bound in ("clip_low", "clip_high"):  # no rounding of fp32 moves a ratio over a bound
        assert (ratios - facts["loss"].get(bound, 0.8 if bound == "clip_low" else 1.2)).abs().min() > 1e-4
    told = {"ratio/mean": ratios.mean().item(), "ratio/max": ratios.max().item(), "entropy": mean_entropy(model, batch, mask)}
    return loss, int(mask.sum()), metrics | told


def write(rollouts, path):
    with open(path, "w") as out:
        for ids, labels, advantages, logprobs in rollouts:
            out.write(json.dumps({"input_ids": ids, "labels": labels, "advantages": advantages, "logprobs": logprobs}) + "\n")


def train(facts):
    model = golden.adapter_model(facts)
    directory = f"{OUT}/adapters/{facts['name']}"
    golden.save(model, f"{directory}/init")
    ref_model = golden.reference_model(facts, model)
    data = with_sampler(model, random_rollouts(facts["samples"] * STEPS // EPOCHS, model.config.vocab_size))
    write(data, f"{directory}/data.jsonl")
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=facts["lr"], betas=(0.9, 0.999), eps=1e-8, weight_decay=facts["decay"])
    schedule = golden.schedule_of(facts, optimizer)
    keys = {"r": facts["r"], "lora_alpha": 2 * facts["r"], "target_modules": facts["targets"],
            "global_batch_size": facts["samples"], "num_train_epochs": EPOCHS, "learning_rate": facts["lr"],
            "lr_scheduler_type": facts["schedule"], "warmup_steps": 0 if facts["schedule"] == "constant" else golden.WARMUP,
            "weight_decay": facts["decay"], "max_grad_norm": facts["clip"], **facts["loss"]}
    record = {"keys": keys, "loss": [], "grad_norm": [], "lr": [], "target_tokens": [], "metrics": []}
    for step in range(STEPS):
        first = step % (STEPS // EPOCHS) * facts["samples"]
        value, targets, metrics = run(facts, model, ref_model, data[first:first + facts["samples"]])
        optimizer.zero_grad()
        value.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in parameters)).item()
        if step == 0:
            save_file({name.replace(".default", ""): p.grad.to(torch.float32).contiguous()
                       for name, p in model.named_parameters() if p.requires_grad}, f"{directory}/grad_step1.safetensors")
        if facts["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(parameters, facts["clip"])
        for key, number in (("loss", value.item()), ("grad_norm", norm), ("lr", optimizer.param_groups[0]["lr"]),
                            ("target_tokens", targets), ("metrics", metrics)):
            record[key].append(number)
        optimizer.step()
        schedule.step()
    golden.save(model, f"{directory}/final")
    print(facts["name"], [round(x, 5) for x in record["loss"]], [round(x, 4) for x in record["grad_norm"]],
          [round(m.get("clip_ratio/region_mean", -1), 3) for m in record["metrics"]], flush=True)
    return record


if __name__ == "__main__":
    golden.generator.manual_seed(31)
    os.makedirs(OUT, exist_ok=True)
    report = {"dtype": "float64", "steps": STEPS, "warmup_steps": golden.WARMUP,
              "adapters": {facts["name"]: train(facts) for facts in ADAPTERS}}
    with open(f"{OUT}/golden.json", "w") as out:
        json.dump(report, out, indent=1)
