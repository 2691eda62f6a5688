"""Trajectories of preference losses in float64: TRL's formulas, written out, over Hugging Face transformers + PEFT.
usage: make_preference_golden.py GOLDEN_DIR
Reads GOLDEN_DIR/llama/base, writes GOLDEN_DIR/preferences: as make_golden.py's families, but for eval_logits, with pairs as
data, or examples, of KTO with labels; of CIT (CoIN, with mLoRA's bound) instructions and paraphrases with an answer. Every adapter is trained alone, for EPOCHS epochs over its pairs in their order."""
import copy
import json
import math
import os
import sys

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch.nn.functional import cosine_similarity, cross_entropy, logsigmoid, relu
from transformers.trainer_pt_utils import LabelSmoother
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

GOLDEN = sys.argv[1]
OUT = f"{GOLDEN}/preferences"
STEPS, EPOCHS, WARMUP = 6, 2, 2
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ADAPTERS = [
    dict(name="dpo_sigmoid", r=3, targets=ATTENTION + ["down_proj"], pairs=3, lr=5e-3, schedule="cosine", decay=0.01,
         clip=1.0, loss={"loss": "dpo", "loss_type": "sigmoid", "beta": 0.2, "label_smoothing": 0.1}),
    dict(name="dpo_hinge", r=2, targets=["q_proj", "v_proj"], pairs=4, lr=1e-2, schedule="linear", decay=0.0, clip=0.0,
         loss={"loss": "dpo", "loss_type": "hinge", "beta": 0.5}),
    dict(name="dpo_ipo", r=4, targets=ATTENTION, pairs=2, lr=5e-3, schedule="constant", decay=0.0, clip=0.3,
         loss={"loss": "dpo", "loss_type": "ipo", "beta": 0.8}),
    dict(name="cpo", r=2, targets=["q_proj", "v_proj"], pairs=3, lr=1e-2, schedule="cosine", decay=0.0, clip=1.0,
         loss={"loss": "cpo", "loss_type": "sigmoid", "beta": 0.3, "label_smoothing": 0.05, "cpo_alpha": 0.7}),
    dict(name="simpo", r=2, targets=["v_proj", "o_proj"], pairs=4, lr=1e-2, schedule="linear", decay=0.01, clip=0.0,
         loss={"loss": "simpo", "beta": 2.0, "simpo_gamma": 0.8}),
    dict(name="orpo", r=2, targets=["k_proj", "v_proj"], pairs=2, lr=1e-2, schedule="constant", decay=0.0, clip=0.5,
         loss={"loss": "orpo", "beta": 0.4}),
    dict(name="kto", r=3, targets=ATTENTION, pairs=4, lr=5e-3, schedule="cosine", decay=0.01, clip=1.0, kl_batch_size=2,
         loss={"loss": "kto", "beta": 0.3, "desirable_weight": 1.0, "undesirable_weight": 1.4}),
    dict(name="kto_group", r=2, targets=["q_proj", "v_proj"], pairs=3, lr=1e-2, schedule="constant", decay=0.0, clip=0.0,
         kl_batch_size=3, loss={"loss": "kto", "beta": 0.1, "desirable_weight": 1.5, "undesirable_weight": 0.8}),
    dict(name="sft_smoothed", r=2, targets=["q_proj", "down_proj"], pairs=3, lr=1e-2, schedule="cosine", decay=0.0, clip=0.5,
         loss={"loss": "sft", "label_smoothing_factor": 0.2, "z_loss": 0.01}),
    dict(name="sft_dft", r=2, targets=["v_proj", "up_proj"], pairs=2, lr=1e-2, schedule="constant", decay=0.01, clip=0.0,
         loss={"loss": "sft", "loss_type": "dft"}),
    dict(name="dpo_start", r=3, targets=ATTENTION + ["up_proj"], pairs=3, lr=5e-3, schedule="cosine", decay=0.01, clip=1.0,
         loss={"loss": "dpo", "loss_type": "sigmoid", "beta": 0.3, "ref_adapter": "init_from"}),
    dict(name="kto_other", r=2, targets=["q_proj", "v_proj"], pairs=4, lr=1e-2, schedule="linear", decay=0.0, clip=0.5,
         kl_batch_size=2, ref_of="kto_group", loss={"loss": "kto", "beta": 0.2}),
    dict(name="cit", r=3, targets=ATTENTION + ["down_proj"], pairs=3, lr=5e-3, schedule="cosine", decay=0.01, clip=1.0,
         loss={"loss": "cit", "temperature": 0.5, "lambda": 0.8}),
    dict(name="cit_bounded", r=2, targets=["q_proj", "v_proj", "gate_proj"], pairs=2, lr=1e-2, schedule="constant", decay=0.0,
         clip=0.0, short=1, loss={"loss": "cit", "temperature": 0.3, "lambda": 50.0}),
]
KTO_WEIGHTS = {"desirable_weight": 1.0, "undesirable_weight": 1.0}
generator = torch.Generator().manual_seed(23)


def random_normal(*shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_ids(count, vocabulary):
    return torch.randint(0, vocabulary, (count,), generator=generator).tolist()


def random_pair(vocabulary):
    """A prompt and two completions of unlike lengths: two of (ids, labels)."""
    prompt, chosen, rejected = (int(torch.randint(1, 16, (1,), generator=generator)) for _ in range(3))
    first = random_ids(prompt, vocabulary)
    pair = []
    for length in (chosen, rejected):
        completion = random_ids(length, vocabulary)
        pair.append((first + completion, [-100] * prompt + completion))
    return pair


def random_paraphrases(vocabulary):
    """Two prompts of unlike lengths with one answer: two of (ids, labels)."""
    first, second, answer = (int(torch.randint(1, 7, (1,), generator=generator)) for _ in range(3))
    completion = random_ids(answer, vocabulary)
    return [(random_ids(length, vocabulary) + completion, [-100] * length + completion) for length in (first, second)]


def outputs_of(model, samples, **keys):
    """Of padded samples what the model gives, and labels that are not shifted."""
    width = max(len(ids) for ids, _ in samples)
    ids = torch.zeros(len(samples), width, dtype=torch.long)
    labels = torch.full((len(samples), width), -100)
    mask = torch.zeros(len(samples), width, dtype=torch.long)
    for i, (tokens, targets) in enumerate(samples):
        ids[i, :len(tokens)] = torch.tensor(tokens)
        labels[i, :len(targets)] = torch.tensor(targets)
        mask[i, :len(tokens)] = 1
    return model(input_ids=ids, attention_mask=mask, **keys), labels


def logits_of(model, samples):
    outputs, labels = outputs_of(model, samples)
    return outputs.logits, labels


def sums(model, samples):
    """Per sample the log-probability of its targets, and their number."""
    logits, labels = logits_of(model, samples)
    logits = logits[:, :-1]
    targets = labels[:, 1:]
    trained = targets != -100
    logps = torch.gather(logits.log_softmax(-1), 2, targets.clamp(min=0)[..., None])[..., 0]
    return (logps * trained).sum(-1), trained.sum(-1)


def of_margin(loss, margin):
    beta = loss["beta"]
    if loss.get("loss_type", "sigmoid") == "sigmoid":
        smoothing = loss.get("label_smoothing", 0.0)
        return -logsigmoid(beta * margin) * (1 - smoothing) - logsigmoid(-beta * margin) * smoothing
    if loss["loss_type"] == "hinge":
        return relu(1 - beta * margin)
    return (margin - 1 / (2 * beta)) ** 2


def objective(loss, policy, reference, counts):
    """policy, reference, counts: [2 pairs], chosen and rejected in turn. Loss of the batch, rewards, log-probabilities."""
    kind, beta = loss["loss"], loss["beta"]
    nll = -policy[0::2].sum() / counts[0::2].sum()
    means = loss.get("loss_type") == "ipo" or kind in ("simpo", "orpo")
    if kind != "dpo" and means:
        policy = policy / counts
    gains = policy - reference if kind == "dpo" else policy
    compared = gains / counts if kind == "dpo" and means else gains
    margin = compared[0::2] - compared[1::2]
    if kind == "orpo":
        odds = policy - torch.log1p(-torch.exp(policy))
        value = nll - (beta * logsigmoid(odds[0::2] - odds[1::2])).mean()
    elif kind == "simpo":
        value = of_margin(loss, margin - loss["simpo_gamma"] / beta).mean()
    else:
        value = of_margin(loss, margin).mean() + (loss["cpo_alpha"] * nll if kind == "cpo" else 0.0)
    return value, beta * gains.detach(), policy.detach()


def random_examples(count, vocabulary):
    """(ids, labels, desirable); the first of every two is."""
    examples = []
    for i in range(count):
        prompt, completion = (int(torch.randint(1, 12, (1,), generator=generator)) for _ in range(2))
        ids = random_ids(prompt + completion, vocabulary)
        examples.append((ids, [-100] * prompt + ids[prompt:], i % 2 == 0))
    return examples


def kl_sample(prompt, completion):
    """The prompt of one example with the completion of another."""
    prompt_ids = [i for i, label in zip(*prompt[:2]) if label == -100]
    completion_ids = [label for label in completion[1] if label != -100]
    return prompt_ids + completion_ids, [-100] * len(prompt_ids) + completion_ids


def kto(facts, examples, policy, reference):
    """policy, reference: of the examples, then of their KL samples. Loss, metrics."""
    loss, k, n = KTO_WEIGHTS | facts["loss"], facts["kl_batch_size"], len(examples)
    ratio = policy - reference
    kl = ratio[n:].detach().view(-1, k).mean(1).clamp(min=0)
    desirable = torch.tensor([example[2] for example in examples])
    margin = ratio[:n] - kl.repeat_interleave(k)
    losses = torch.where(desirable, loss["desirable_weight"] * (1 - torch.sigmoid(loss["beta"] * margin)),
                         loss["undesirable_weight"] * (1 - torch.sigmoid(-loss["beta"] * margin)))
    rewards, logps = loss["beta"] * ratio[:n].detach(), policy[:n].detach()
    means = [values[which].mean().item() for values in (rewards, logps) for which in (desirable, ~desirable)]
    return losses.mean(), {"rewards/chosen": means[0], "rewards/rejected": means[1], "rewards/margins": means[0] - means[1],
                           "logps/chosen": means[2], "logps/rejected": means[3], "kl": kl.mean().item()}


def pair_metrics(rewards, logps):
    """Accuracies but where rewards are alike: before the first step of an adapter that is its own reference."""
    chosen, rejected = rewards[0::2], rewards[1::2]
    metrics = {"rewards/chosen": chosen.mean().item(), "rewards/rejected": rejected.mean().item(),
               "rewards/margins": (chosen - rejected).mean().item(),
               "logps/chosen": logps[0::2].mean().item(), "logps/rejected": logps[1::2].mean().item()}
    if (chosen - rejected).abs().min() > 1e-9:
        metrics["rewards/accuracies"] = (chosen > rejected).double().mean().item()
    return metrics


def samples_of(facts, batch):
    """What is run: both samples of pairs; of examples these, then KL samples, each with the completion before in its group."""
    if facts["loss"]["loss"] == "sft":
        return [example[:2] for example in batch]
    if "kl_batch_size" not in facts:
        return [sample for pair in batch for sample in pair]
    k = facts["kl_batch_size"]
    groups = [batch[i:i + k] for i in range(0, len(batch), k)]
    return [example[:2] for example in batch] + [kl_sample(group[i], group[i - 1]) for group in groups for i in range(k)]


def token_loss(loss, model, samples):
    """Of sft, mean over targets, and their number: transformers' LabelSmoother, TRL's dft, PaLM's z-loss."""
    logits, labels = logits_of(model, samples)
    trained = labels[:, 1:] != -100
    if loss.get("loss_type") == "dft":
        logps = torch.gather(logits[:, :-1].log_softmax(-1), 2, labels[:, 1:].clamp(min=0)[..., None])[..., 0]
        return (-logps * logps.exp().detach() * trained).sum() / trained.sum(), trained.sum()
    value = LabelSmoother(loss["label_smoothing_factor"])({"logits": logits}, labels, shift_labels=True)
    squares = (logits[:, :-1].logsumexp(-1) ** 2 * trained).sum() / trained.sum()
    return value + loss["z_loss"] * squares, trained.sum()


def cit(loss, model, samples):
    """G + min(lambda, G / C) C, the weight without gradient; targets, metrics. Samples of pairs in turn."""
    outputs, labels = outputs_of(model, samples, output_hidden_states=True)
    generation = cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    hidden = outputs.hidden_states[-1]
    assert torch.equal(model.get_base_model().lm_head(hidden), outputs.logits)
    ends = torch.stack([hidden[i, len(ids) - 1] for i, (ids, _) in enumerate(samples)])
    similarities = cosine_similarity(ends[0::2, None], ends[None, 1::2], dim=2) / loss["temperature"]
    own = torch.arange(len(samples) // 2)
    contrastive = (cross_entropy(similarities, own) + cross_entropy(similarities.T, own)) / 2
    weight = (generation / contrastive).detach().clamp(max=loss["lambda"])
    return generation + weight * contrastive, (labels[:, 1:] != -100).sum(), {"contrastive_loss": contrastive.item()}


def loss_and_metrics(facts, batch, policy, reference, counts):
    if "kl_batch_size" in facts:
        return kto(facts, batch, policy, reference)
    value, rewards, logps = objective(facts["loss"], policy, reference, counts)
    return value, pair_metrics(rewards, logps)


def reference_sums(model, ref_model, samples):
    """Under the base, or the model of ref_adapter."""
    with torch.no_grad():
        if ref_model is not None:
            return sums(ref_model, samples)[0]
        with model.disable_adapter():
            return sums(model, samples)[0]


def run(facts, model, ref_model, batch, samples):
    """Loss, targets of the samples, metrics."""
    if facts["loss"]["loss"] == "sft":
        return *token_loss(facts["loss"], model, samples), {}
    if facts["loss"]["loss"] == "cit":
        return cit(facts["loss"], model, samples)
    reference = reference_sums(model, ref_model, samples)
    policy, counts = sums(model, samples)
    value, metrics = loss_and_metrics(facts, batch, policy, reference, counts)
    return value, counts, metrics


def adapter_model(facts):
    model = AutoModelForCausalLM.from_pretrained(f"{GOLDEN}/llama/base", attn_implementation="eager",
                                                 dtype=torch.float64)
    config = LoraConfig(r=facts["r"], lora_alpha=2 * facts["r"], lora_dropout=0.0, target_modules=facts["targets"],
                        task_type="CAUSAL_LM")
    model = get_peft_model(model, config, autocast_adapter_dtype=False).to(torch.float64)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_A" in name:
                parameter.copy_((random_normal(*parameter.shape) / math.sqrt(parameter.shape[1])).float().double())
            if "lora_B" in name:
                parameter.copy_((random_normal(*parameter.shape) * 0.05).float().double())
    return model


def reference_model(facts, model):
    """The start of the adapter itself, or of another of the same shape (ref_of); None: the base."""
    if "ref_adapter" not in facts["loss"] and "ref_of" not in facts:
        return None
    reference = copy.deepcopy(model)
    if "ref_of" in facts:
        tensors = load_file(f"{OUT}/adapters/{facts['ref_of']}/init/adapter_model.safetensors")
        set_peft_model_state_dict(reference, {name: value.double() for name, value in tensors.items()})
    return reference


def save(model, path):
    os.makedirs(path, exist_ok=True)
    tensors = {k: v.to(torch.float32).contiguous() for k, v in get_peft_model_state_dict(model).items()}
    save_file(tensors, f"{path}/adapter_model.safetensors", metadata={"format": "pt"})
    model.peft_config["default"].save_pretrained(path)


def write_pairs(pairs, path):
    with open(path, "w") as out:
        for chosen, rejected in pairs:
            out.write(json.dumps({"chosen_input_ids": chosen[0], "chosen_labels": chosen[1],
                                  "rejected_input_ids": rejected[0], "rejected_labels": rejected[1]}) + "\n")


def write_examples(examples, with_label, path):
    with open(path, "w") as out:
        for ids, labels, desirable in examples:
            out.write(json.dumps({"input_ids": ids, "labels": labels} | ({"label": desirable} if with_label else {})) + "\n")


def write_data(facts, vocabulary, path):
    count = facts["pairs"] * STEPS // EPOCHS
    if "kl_batch_size" in facts or facts["loss"]["loss"] == "sft":
        data = random_examples(count, vocabulary)
        write_examples(data, "kl_batch_size" in facts, path)
    else:
        pair = random_paraphrases if facts["loss"]["loss"] == "cit" else random_pair
        data = [pair(vocabulary) for _ in range(count - facts.get("short", 0))]
        write_pairs(data, path)
    return data


def schedule_of(facts, optimizer):
    if facts["schedule"] == "cosine":
        return get_cosine_schedule_with_warmup(optimizer, WARMUP, STEPS)
    if facts["schedule"] == "linear":
        return get_linear_schedule_with_warmup(optimizer, WARMUP, STEPS)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)


def train(facts):
    model = adapter_model(facts)
    directory = f"{OUT}/adapters/{facts['name']}"
    save(model, f"{directory}/init")
    ref_model = reference_model(facts, model)
    data = write_data(facts, model.config.vocab_size, f"{directory}/data.jsonl")
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=facts["lr"], betas=(0.9, 0.999), eps=1e-8,
                                  weight_decay=facts["decay"])
    schedule = schedule_of(facts, optimizer)
    keys = {"r": facts["r"], "lora_alpha": 2 * facts["r"], "target_modules": facts["targets"],
            "global_batch_size": facts["pairs"], "num_train_epochs": EPOCHS, "learning_rate": facts["lr"],
            "lr_scheduler_type": facts["schedule"], "warmup_steps": 0 if facts["schedule"] == "constant" else WARMUP,
            "weight_decay": facts["decay"], "max_grad_norm": facts["clip"], **facts["loss"]}
    dataset = {"kl_batch_size": facts["kl_batch_size"]} if "kl_batch_size" in facts else {}
    record = {"keys": keys, "dataset": dataset, "loss": [], "grad_norm": [], "lr": [], "target_tokens": [], "metrics": []}
    record |= {"ref_of": facts["ref_of"]} if "ref_of" in facts else {}
    for step in range(STEPS):
        first = step % (STEPS // EPOCHS) * facts["pairs"]
        batch = data[first:first + facts["pairs"]]
        samples = samples_of(facts, batch)
        value, counts, metrics = run(facts, model, ref_model, batch, samples)
        optimizer.zero_grad()
        value.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in parameters)).item()
        if step == 0:
            save_file({name.replace(".default", ""): p.grad.to(torch.float32).contiguous()
                       for name, p in model.named_parameters() if p.requires_grad},
                      f"{directory}/grad_step1.safetensors")
        if facts["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(parameters, facts["clip"])
        record["loss"].append(value.item())
        record["grad_norm"].append(norm)
        record["lr"].append(optimizer.param_groups[0]["lr"])
        record["target_tokens"].append(int(counts.sum()))
        record["metrics"].append(metrics)
        optimizer.step()
        schedule.step()
    save(model, f"{directory}/final")
    print(facts["name"], [round(x, 5) for x in record["loss"]], [round(x, 4) for x in record["grad_norm"]], flush=True)
    return record


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    report = {"dtype": "float64", "steps": STEPS, "warmup_steps": WARMUP,
              "adapters": {facts["name"]: train(facts) for facts in ADAPTERS}}
    with open(f"{OUT}/golden.json", "w") as out:
        json.dump(report, out, indent=1)
