"""What the peer benchmarks share: presets of `loratrain bench --model` as Hugging Face models with
random weights and one PEFT adapter on all seven linears, timed steps, and the line of results."""
from __future__ import annotations

import json
import re
import statistics
import time
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model

PRESETS = Path(__file__).resolve().parents[2] / "src" / "config" / "model_presets.cpp"
WARMUP_STEPS = 3
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
DELTA_TARGETS = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads")
CONFIGS = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
           "qwen3_moe": transformers.Qwen3MoeConfig, "qwen3_5_text": transformers.Qwen3_5TextConfig}
TINY = {"llama": (320, 64, 160, 2, 4, 2), "qwen3_moe": (320, 64, 160, 2, 4, 2, 8, 2, 32),
        "qwen3_5_text": (320, 64, 160, 4, 4, 2, 32)}  # tiny, tiny-moe, ...: to try the scripts without a GPU


def row(family: str, theta: float, sizes) -> tuple:
    """(family, fields of its config) of a row of the program's table."""
    fields = {name: int(size) for name, size in zip(SIZES, sizes)}
    fields["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    more = list(map(int, sizes[len(SIZES):]))
    if family == "qwen3_moe":
        count, chosen, size = more
        fields |= {"num_experts": count, "num_experts_per_tok": chosen, "moe_intermediate_size": size,
                   "norm_topk_prob": True}
    if family.startswith("qwen3"):
        fields["head_dim"] = 128
    if family == "qwen3_5_text":
        fields |= {"head_dim": 256, "linear_num_value_heads": more[0]}
        fields["rope_parameters"]["partial_rotary_factor"] = 0.25
    return family, fields


def presets() -> dict[str, tuple]:
    """Name -> (family, fields of its config), read from the program's own table."""
    found = {"tiny": row("llama", 10000.0, TINY["llama"]), "tiny-moe": row("qwen3_moe", 1e6, TINY["qwen3_moe"]),
             "tiny-delta": row("qwen3_5_text", 1e7, TINY["qwen3_5_text"])}
    made = len(found)
    text = re.sub(r"\s+", " ", PRESETS.read_text())
    dense = r'Preset\{ ?"([^"]+)", "([^"]+)", (\d+), (\d+), (\d+), (\d+), (\d+), (\d+), ([\d.]+), [^{}]*(?:\{(\d+), (\d+), (\d+), true\})?\}'
    for name, family, *sizes, theta, count, chosen, size in re.findall(dense, text):
        if family not in CONFIGS:
            continue
        found[name] = row(family, float(theta), sizes + ([count, chosen, size] if count else []))
    hybrid = r'hybrid\("([^"]+)", (\d+), (\d+), (\d+), (\d+), (\d+), (\d+), \w+\)'
    for name, *sizes in re.findall(hybrid, text):
        found[name] = row("qwen3_5_text", 1e7, [248320, *sizes])
    if len(found) == made:
        raise SystemExit(f"error: no presets found in {PRESETS}")
    return found


def make_config(name: str, longest: int):
    """The Hugging Face config of a preset, for samples of up to `longest` tokens."""
    family, fields = presets()[name]
    if family == "qwen3_moe":
        fields["experts_implementation"] = "grouped_mm"
    return CONFIGS[family](**fields, max_position_embeddings=max(8192, longest), rms_norm_eps=1e-5,
                           tie_word_embeddings=False, use_cache=False, attn_implementation="sdpa")


def targets_of(config) -> list[str]:
    """What `loratrain bench` gives LoRA by default: all linears but those of experts."""
    if config.model_type == "qwen3_moe":
        return TARGETS[:4]
    return TARGETS + (DELTA_TARGETS if config.model_type == "qwen3_5_text" else [])


def make_model(config):
    """On the meta device, bf16, without data."""
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)


def quantise_linears(model, device: str) -> None:
    """Random linears of the layers in bitsandbytes' NF4 with nested absmax, one by one on the device
    (QLoRA); what is not one of them stays undefined."""
    import bitsandbytes
    for parent in list(model.modules()):
        for name, linear in list(parent.named_children()):
            if name not in TARGETS:
                continue
            weight = torch.empty(linear.weight.shape, dtype=torch.bfloat16, device=device).normal_(0.0, 0.02)
            new = bitsandbytes.nn.Linear4bit(linear.in_features, linear.out_features, bias=False,
                                             compute_dtype=torch.bfloat16, quant_type="nf4", device="meta")
            new.weight = bitsandbytes.nn.Params4bit(weight, requires_grad=False, quant_type="nf4",
                                                    compress_statistics=True, module=new).to(device)
            setattr(parent, name, new)
    model.is_loaded_in_4bit = True  # what PEFT asks for


def place_the_rest(model, device: str) -> None:
    """Undefined memory on the device for parameters that have none yet."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.is_meta:
                empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
                setattr(module, name, torch.nn.Parameter(empty))


def add_adapter(model, rank: int, dropout: float, **options):
    """One PEFT adapter; `options` go to get_peft_model."""
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=dropout,
                                            target_modules=targets_of(model.config),
                                            task_type="CAUSAL_LM"), **options)


@torch.no_grad()
def randomise(model, device: str, seed: int = 0) -> None:
    """Fills parameters that to_empty() left undefined, and recomputes the rotary frequencies, which
    are no parameters."""
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            continue  # codes of a quantised linear
        if parameter.dim() == 1:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
        else:
            parameter.normal_(0.0, 0.02)
    for module in model.modules():
        rotary = getattr(module, "rotary_emb", None)
        if rotary is not None:
            with torch.device(device):
                module.rotary_emb = type(rotary)(model.config)


def useful_flop(config, batch: int, sequence: int) -> tuple[float, float]:
    """(weights, attention) of a step: 4 FLOP per weight in a matrix product and token, as loratrain
    bench counts, of experts those that a token takes; attention 3 x 2 L Q D s per token, causal."""
    weights = 0
    for name, parameter in make_model(config).named_parameters():
        if parameter.dim() < 2 or "embed_tokens" in name or "conv1d" in name:
            continue
        share = config.num_experts_per_tok / config.num_experts if parameter.dim() == 3 else 1.0
        weights += parameter.numel() * share
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    tokens = batch * sequence
    return (4.0 * tokens * weights,
            6.0 * tokens * kinds.count("full_attention") * head * config.num_attention_heads * sequence)


def make_trainable(model, device: str, checkpointing: bool):
    """(model, optimizer) of a placed model with its adapter."""
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    trained = [p for p in model.parameters() if p.requires_grad]
    return model, torch.optim.AdamW(trained, lr=1e-4, fused=device == "cuda")


def train_steps(forward, optimizer, batches, synchronize, steps: int, cuda: bool) -> list[float]:
    """Seconds of each of `steps` steps after the warm-up; `forward(ids)` gives the loss."""
    seconds = []
    for step in range(WARMUP_STEPS + steps):
        if step == WARMUP_STEPS and cuda:
            torch.cuda.reset_peak_memory_stats()
        synchronize()
        start = time.perf_counter()
        loss = forward(batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        seconds.append(time.perf_counter() - start)
    if not torch.isfinite(loss):
        raise SystemExit(f"error: the loss is {loss.item()}")
    return seconds[WARMUP_STEPS:]


def result_line(case: str, arguments, config, step_seconds: list[float], ranks: int, **more) -> str:
    """One JSON line with the median step."""
    seconds = statistics.median(step_seconds)
    tokens = ranks * arguments.batch * arguments.sequence
    weights, attention = useful_flop(config, arguments.batch, arguments.sequence)
    cuda = arguments.device == "cuda"
    return json.dumps({
        "case": case, "model": arguments.model, "batch": arguments.batch,
        "sample_tokens": arguments.sequence, "rank": arguments.rank, **more,
        "device": torch.cuda.get_device_name() if cuda else "cpu", "ranks": ranks,
        "steps": arguments.steps, "seconds_per_step": seconds, "tokens_per_second": tokens / seconds,
        "tokens_per_second_per_rank": tokens / seconds / ranks,
        "weight_gflops_per_rank": weights / seconds * 1e-9,
        "attention_gflops_per_rank": attention / seconds * 1e-9,
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__,
                     "peft": peft.__version__}})
