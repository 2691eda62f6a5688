"""Reference trajectories of other forms of adapters than plain LoRA, by Hugging Face transformers + PEFT in float64.
usage: make_forms.py GOLDEN_DIR [NAME...]    all of them, or these; FAMILY/NAME: of one family
Beside make_golden.py's families, whose bases it takes: <family>/forms.json as golden.json, with the keys of the job (`keys`), and
<family>/adapters/<name>/ as there."""
import json, math, os, sys, torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup
from peft import LoraConfig, VeraConfig, get_peft_model, get_peft_model_state_dict
from peft.optimizers import create_loraplus_optimizer
import delta_float64
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STEPS, WARM = 6, 2
PATTERNS = dict(target_modules=["q_proj", "v_proj", "0.mlp.up_proj", "mlp.down_proj"], exclude_modules=["1.self_attn.v_proj"],
                layers_to_transform=[0, 1, 3], rank_pattern={"down_proj": 9, "layers.3.self_attn.q_proj": 2},
                alpha_pattern={".*\\.0\\.self_attn\\.(q|v)_proj": 11})
REGEX = dict(target_modules=r"model\.layers\.\d+\.(self_attn\.[kv]_proj|mlp\.gate_proj)", exclude_modules=r".*\.2\..*k_proj",
             rank_pattern={"v_proj": 20}, alpha_pattern={"v_proj": 3})
PLAIN = dict(use_rslora=False, global_batch_size=4, learning_rate=5e-3, lr_scheduler_type="cosine", weight_decay=0.01, max_grad_norm=1.0)
FEW = dict(PLAIN, global_batch_size=3)
NETS = ["in_proj_qkvz", "in_proj_ba", "out_proj"]  # of gated delta nets
VERA = {**{k: v for k, v in PLAIN.items() if k != "use_rslora"}, "peft_type": "vera"}
FORMS = {
    "llama": {
        "f_patterns": dict(PLAIN, r=4, lora_alpha=8, **PATTERNS),
        "f_regex_plus": dict(PLAIN, r=3, lora_alpha=6, loraplus_lr_ratio=4.0, weight_decay=0.1, lr_scheduler_type="linear", **REGEX),
        "f_dora": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL, use_dora=True),
        "f_dora_plus": dict(PLAIN, r=5, lora_alpha=5, target_modules=["q_proj", "k_proj", "down_proj"], use_dora=True, use_rslora=True,
                            loraplus_lr_ratio=4.0, learning_rate=2e-3, weight_decay=0.1, max_grad_norm=0.3),
        "f_pissa": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL, init_lora_weights="pissa", weight_decay=0.1),
        "f_olora": dict(PLAIN, r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "gate_proj", "down_proj"], use_rslora=True,
                        init_lora_weights="olora", learning_rate=2e-3, lr_scheduler_type="linear", rank_pattern={"down_proj": 5},
                        alpha_pattern={"v_proj": 2}),
        "f_vera": dict(VERA, r=12, target_modules=ALL, projection_prng_key=7, weight_decay=0.1),
        "f_vera_fresh": dict(VERA, r=70, target_modules=["k_proj", "up_proj", "down_proj"], d_initial=0.2, layers_to_transform=[1, 2],
                             lr_scheduler_type="linear", learning_rate=2e-2, max_grad_norm=0.02),
        "f_head": dict(PLAIN, r=5, lora_alpha=10, target_modules=["v_proj", "down_proj", "lm_head"], weight_decay=0.1,
                       rank_pattern={"lm_head": 3}),
        "f_embed": dict(PLAIN, r=5, lora_alpha=10, target_modules=["v_proj", "up_proj", "embed_tokens", "lm_head"], weight_decay=0.1,
                        rank_pattern={"embed_tokens": 3}, alpha_pattern={"embed_tokens": 2})},
    "qwen2": {"f_dora": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL, use_dora=True, lr_scheduler_type="constant"),
              "f_pissa": dict(PLAIN, r=6, lora_alpha=3, target_modules=["k_proj", "o_proj", "up_proj"], init_lora_weights="pissa"),
              "f_vera": dict(VERA, r=20, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj"], lr_scheduler_type="constant"),
              "f_head": dict(PLAIN, r=4, lora_alpha=4, target_modules=["lm_head"], lr_scheduler_type="linear"),
              "f_embed": dict(PLAIN, r=4, lora_alpha=2, target_modules=["embed_tokens"], use_rslora=True, lr_scheduler_type="linear")},
    "smollm3": {"f_dora": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL, use_dora=True)},
    "granite": {"f_dora": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL, use_dora=True, lr_scheduler_type="constant"),
                "f_embed": dict(PLAIN, r=3, lora_alpha=3, target_modules=["q_proj", "embed_tokens"]),
                "f_head": dict(FEW, r=4, lora_alpha=8, target_modules=["o_proj", "lm_head"], rank_pattern={"lm_head": 3})},
    "granitemoe": {"f_head": dict(FEW, r=3, lora_alpha=6, target_modules=["o_proj", "lm_head"], lr_scheduler_type="linear")},
    "olmo2": {"f_dora": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL, use_dora=True)},
    "ernie4_5": {"f_dora": dict(FEW, r=4, lora_alpha=8, target_modules=ALL, use_dora=True)},
    "hunyuan_v1_dense": {"f_dora": dict(FEW, r=4, lora_alpha=8, target_modules=ALL, use_dora=True)},
    "phi3": {"f_dora_fused": dict(PLAIN, r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], use_dora=True)},
    "qwen3_moe": {"f_experts": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL),
                  "f_experts_down": dict(PLAIN, r=3, lora_alpha=5, target_modules=["q_proj", "down_proj"], use_rslora=True, weight_decay=0.1,
                                         lr_scheduler_type="linear", loraplus_lr_ratio=4.0)},
    "qwen3_moe_dense": {"f_experts": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL),
                        "f_linear": dict(FEW, r=3, lora_alpha=6, target_modules="all-linear", weight_decay=0.1)},
    "mixtral": {"f_experts": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL)},
    "qwen2_moe": {"f_experts": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL),
                  "f_down": dict(FEW, r=3, lora_alpha=5, target_modules=["v_proj", "down_proj"], use_rslora=True, lr_scheduler_type="linear")},
    "glm4_moe": {"f_experts": dict(PLAIN, r=4, lora_alpha=8, target_modules=ALL),
                 "f_linear": dict(FEW, r=3, lora_alpha=6, target_modules="all-linear", weight_decay=0.1)},
    "qwen3_next": {"f_dora": dict(FEW, r=3, lora_alpha=6, target_modules=NETS + ["q_proj", "o_proj"], use_dora=True),
                   "f_pissa": dict(FEW, r=4, lora_alpha=2, target_modules=NETS, init_lora_weights="pissa", lr_scheduler_type="linear"),
                   "f_vera": dict(VERA, r=12, target_modules=NETS + ["v_proj"], global_batch_size=3, lr_scheduler_type="constant")},
    "gemma2": {"f_head": dict(FEW, r=3, lora_alpha=6, target_modules=["lm_head"], lr_scheduler_type="constant"),
               "f_embed": dict(FEW, r=3, lora_alpha=2, target_modules=["v_proj", "embed_tokens", "lm_head"], use_rslora=True)},
    "gemma3_text": {"f_embed": dict(FEW, r=3, lora_alpha=3, target_modules=["k_proj", "embed_tokens", "lm_head"], alpha_pattern={"lm_head": 5})},
    "gemma3": {"f_embed": dict(FEW, r=3, lora_alpha=3, target_modules=["embed_tokens", "lm_head"], rank_pattern={"embed_tokens": 2})},
}
# Those that were added to the table later have numbers of their own.
SEEDS = {("granite", "f_head"): 21, ("gemma2", "f_head"): 22, ("gemma2", "f_embed"): 23, ("gemma3_text", "f_embed"): 24, ("gemma3", "f_embed"): 25,
         ("qwen3_moe_dense", "f_experts"): 26, ("qwen3_moe_dense", "f_linear"): 27, ("mixtral", "f_experts"): 28,
         ("qwen2_moe", "f_experts"): 29, ("qwen2_moe", "f_down"): 30, ("glm4_moe", "f_experts"): 31, ("glm4_moe", "f_linear"): 32,
         ("qwen3_next", "f_dora"): 33, ("qwen3_next", "f_pissa"): 34, ("qwen3_next", "f_vera"): 35, ("ernie4_5", "f_dora"): 36,
         ("hunyuan_v1_dense", "f_dora"): 37, ("granitemoe", "f_head"): 38}
MOE_FAMILIES = ("qwen3_moe", "qwen3_moe_dense", "mixtral", "qwen2_moe", "glm4_moe")
MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
RESIDUAL_STARTS = ("pissa", "olora")
CONFIG = ("r", "lora_alpha", "target_modules", "use_rslora", "use_dora", "exclude_modules", "layers_to_transform", "rank_pattern", "alpha_pattern",
          "init_lora_weights")
VERA_CONFIG = ("r", "target_modules", "projection_prng_key", "d_initial", "layers_to_transform")


def kind_of(keys):
    """Whose random numbers an adapter gets."""
    if keys.get("init_lora_weights") in RESIDUAL_STARTS: return "residual start"
    targets = keys["target_modules"]
    if any(keys in FORMS[family].values() for family in MOE_FAMILIES): return "experts"
    return "vera" if is_vera(keys) else "embedding" if "embed_tokens" in targets else "head" if "lm_head" in targets else "lora"


class UnfusedExperts(torch.nn.ModuleList):
    """Experts as modules of linears, as transformers 4 has them: PEFT's LoRA on each. Those of transformers 5 are two tensors, on
    which PEFT would train gate and up with one A."""

    def __init__(self, fused, names):
        super().__init__(torch.nn.Module() for _ in range(fused.num_experts))
        self.activate = fused.act_fn.forward
        self.names = names
        for expert, gate_up, down in zip(list(self), fused.gate_up_proj.detach(), fused.down_proj.detach()):
            for name, weight in zip(names, (*gate_up.chunk(2), down)):
                linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
                linear.weight.data.copy_(weight)
                setattr(expert, name, linear)

    def forward(self, hidden, chosen, weights):
        sums = torch.zeros_like(hidden)
        for number, expert in enumerate(self):
            rows, places = torch.where(chosen == number)
            gate, up, down = (getattr(expert, name) for name in self.names)
            product = self.activate(gate(hidden[rows])) * up(hidden[rows])
            sums.index_add_(0, rows, down(product) * weights[rows, places, None])
        return sums


def is_moe(model): return model.config.model_type in MOE_FAMILIES


def has_lora_on_experts(keys):
    """By names: all-linear has the linears beside them alone."""
    return bool({"gate_proj", "up_proj", "down_proj"} & set(keys["target_modules"]))


def with_lora(base, config, keys):
    """get_peft_model, which would make of targets in experts those of transformers 5's tensors."""
    base.config._experts_implementation = "eager"  # the others have no float64
    if not is_moe(base): return get_peft_model(base, config, autocast_adapter_dtype=False)
    names = ["gate_proj", "up_proj", "down_proj"]
    if base.config.model_type == "mixtral":
        names = [MIXTRAL[name] for name in names]
        config.target_modules = {MIXTRAL.get(name, name) for name in config.target_modules}
    for layer in base.model.layers if has_lora_on_experts(keys) else ():
        if hasattr(layer.mlp, "experts"): layer.mlp.experts = UnfusedExperts(layer.mlp.experts, names)
    kind, base.config.model_type = base.config.model_type, "qwen3"
    try: return get_peft_model(base, config, autocast_adapter_dtype=False)
    finally: base.config.model_type = kind


def is_vera(keys): return keys.get("peft_type") == "vera"


def starts_by_keys(keys):
    """As PEFT does, without an init to read: of VeRA one that says what d_initial is."""
    return keys.get("init_lora_weights") in RESIDUAL_STARTS or "d_initial" in keys


def batch_of(samples):
    width = max(len(ids) for ids, _ in samples)
    ids, mask = torch.zeros(len(samples), width, dtype=torch.long), torch.zeros(len(samples), width, dtype=torch.long)
    labels = torch.full((len(samples), width), -100)
    for i, (x, y) in enumerate(samples):
        ids[i, :len(x)], labels[i, :len(y)], mask[i, :len(x)] = torch.tensor(x), torch.tensor(y), 1
    return ids, labels, mask


def batches_of(samples, model):
    """A window may hide all keys from rows that pad a batch, which are NaN then: no such rows there."""
    alone = getattr(model.config.get_text_config(), "sliding_window", None) is not None
    return [batch_of([sample]) for sample in samples] if alone else [batch_of(samples)]


def draw_samples(count, model, generator):
    vocabulary = model.config.get_text_config().vocab_size
    first = 6 if model.config.model_type == "gemma3" else 0  # behind the tokens of pictures
    samples = []
    for _ in range(count):
        length = int(torch.randint(3, 41, (1,), generator=generator))
        ids = torch.randint(first, vocabulary, (length,), generator=generator).tolist()
        prompt = int(torch.randint(0, max(1, length - 2), (1,), generator=generator))
        samples.append((ids, [-100] * prompt + ids[prompt:]))
    return samples


def save(model, path):
    os.makedirs(path, exist_ok=True)
    # With lm_head PEFT adds the base's embeddings, which it does not need to load.
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    mixtral = model.config.model_type == "mixtral"
    state = {k.replace(".mlp.", ".block_sparse_moe.") if mixtral else k: v.to(torch.float32).contiguous() for k, v in state.items()}
    save_file(state, f"{path}/adapter_model.safetensors", metadata={"format": "pt"})
    model.peft_config["default"].save_pretrained(path)


def peft_model(base_dir, keys, generator):
    residual_start = keys.get("init_lora_weights") in RESIDUAL_STARTS
    base = AutoModelForCausalLM.from_pretrained(base_dir, attn_implementation="eager", dtype=torch.float32 if residual_start else torch.float64)
    original = {name: p.detach().double().clone() for name, p in base.named_parameters()}
    if is_vera(keys):
        config = VeraConfig(task_type="CAUSAL_LM", **{k: keys[k] for k in VERA_CONFIG if k in keys})
    else:
        config = LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **{k: keys[k] for k in CONFIG if k in keys})
    model = with_lora(base, config, keys).to(torch.float64)
    if residual_start:
        take_off_exactly(model, original)
        return model
    if starts_by_keys(keys): return model
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_A" in name: p.copy_((torch.randn(*p.shape, generator=generator, dtype=torch.float64) / math.sqrt(p.shape[1])).float().double())
            if "magnitude" in name: p.copy_((p * (1 + 0.1 * torch.randn(*p.shape, generator=generator, dtype=torch.float64))).float().double())
            if "lambda_d" in name: p.copy_((p * (1 + 0.5 * torch.randn(*p.shape, generator=generator, dtype=torch.float64))).float().double())
            if "lambda_b" in name: p.copy_((torch.randn(*p.shape, generator=generator, dtype=torch.float64) * 0.1).float().double())
            if "lora_embedding" in name: p.copy_((torch.randn(*p.shape, generator=generator, dtype=torch.float64) * 0.2).float().double())
            if "lora_B" in name: p.copy_((torch.randn(*p.shape, generator=generator, dtype=torch.float64) * 0.05).float().double())
    return model


def take_off_exactly(model, original):
    """PEFT starts in float32, and so it subtracts: in float64 here, from what the base was."""
    with torch.no_grad():
        for name, module in model.named_modules():
            if not hasattr(module, "lora_A"): continue
            weight = original[name.removeprefix("base_model.model.") + ".weight"]
            product = module.lora_B["default"].weight @ module.lora_A["default"].weight
            module.get_base_layer().weight.copy_(weight - module.scaling["default"] * product)


def save_residual_start(model, path, init):
    """As save_pretrained(path_initial_model_for_weight_conversion=...) has it: [A; A0] and [B, -B0]."""
    os.makedirs(path, exist_ok=True)
    state = {}
    for name, values in get_peft_model_state_dict(model).items():
        start = init[name]
        state[name] = (torch.cat([values, start]) if "lora_A" in name else torch.cat([values, -start], dim=1)).to(torch.float32).contiguous()
    save_file(state, f"{path}/adapter_model.safetensors", metadata={"format": "pt"})


def optimizer_of(model, keys):
    decay = keys["weight_decay"]
    if "loraplus_lr_ratio" in keys:
        return create_loraplus_optimizer(model, torch.optim.AdamW, lr=keys["learning_rate"], loraplus_lr_ratio=keys["loraplus_lr_ratio"],
                                         loraplus_weight_decay=decay, betas=(0.9, 0.999), eps=1e-8)
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=keys["learning_rate"], betas=(0.9, 0.999), eps=1e-8, weight_decay=decay)


def sum_of_losses(model, ids, labels, mask):
    logits = model(input_ids=ids, attention_mask=mask).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), ignore_index=-100,
                                             reduction="sum")


def train(model, keys, samples, folder):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer_of(model, keys)
    kind = keys["lr_scheduler_type"]
    schedule = {"cosine": lambda: get_cosine_schedule_with_warmup(optimizer, WARM, STEPS),
                "linear": lambda: get_linear_schedule_with_warmup(optimizer, WARM, STEPS),
                "constant": lambda: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)}[kind]()
    warmup = 0 if kind == "constant" else WARM
    facts = dict(keys=dict(keys, warmup_steps=warmup), loss=[], grad_norm=[], lr=[], target_tokens=[])
    size = keys["global_batch_size"]
    for step in range(STEPS):
        parts = batches_of(samples[step * size:(step + 1) * size], model)
        count = sum((labels[:, 1:] != -100).sum() for _, labels, _ in parts)
        loss = sum(sum_of_losses(model, *part) for part in parts) / count
        optimizer.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in trained)).item()
        if step == 0 and not starts_by_keys(keys):
            save_file({k.replace(".default", ""): p.grad.to(torch.float32).contiguous() for k, p in model.named_parameters()
                       if p.requires_grad}, f"{folder}/grad_step1.safetensors")
        if keys["max_grad_norm"] > 0: torch.nn.utils.clip_grad_norm_(trained, keys["max_grad_norm"])
        for key, value in (("loss", loss.item()), ("grad_norm", norm), ("lr", optimizer.param_groups[0]["lr"]), ("target_tokens", int(count))):
            facts[key].append(value)
        optimizer.step()
        schedule.step()
    return facts


def save_logits(model, samples, folder):
    """Those of the first three samples."""
    with torch.no_grad():
        logits = [row for ids, _, mask in batches_of(samples[:3], model) for row in model(input_ids=ids, attention_mask=mask).logits]
    save_file({f"sample{i}": logits[i][:len(samples[i][0])].to(torch.float32).contiguous() for i in range(3)},
              f"{folder}/eval_logits.safetensors")


def main():
    golden, wanted = sys.argv[1], set(sys.argv[2:])
    generators = {kind: torch.Generator().manual_seed(seed) for kind, seed in (("lora", 12), ("residual start", 13), ("vera", 14), ("head", 15), ("embedding", 16), ("experts", 17))}
    for family, adapters in FORMS.items():
        path = f"{golden}/{family}/forms.json"
        if wanted and not any(name in wanted or f"{family}/{name}" in wanted for name in adapters): continue
        report = json.load(open(path))["adapters"] if wanted and os.path.exists(path) else {}
        for name, keys in adapters.items():
            if wanted and name not in wanted and f"{family}/{name}" not in wanted: continue
            folder = f"{golden}/{family}/adapters/{name}"
            os.makedirs(folder, exist_ok=True)
            residual_start = keys.get("init_lora_weights") in RESIDUAL_STARTS
            generator = generators[kind_of(keys)]
            if (family, name) in SEEDS: generator = torch.Generator().manual_seed(SEEDS[family, name])
            model = peft_model(f"{golden}/{family}/base", keys, generator)
            init = {name: p.clone() for name, p in get_peft_model_state_dict(model).items()}
            if not starts_by_keys(keys): save(model, f"{folder}/init")
            delta_float64.switch(family in delta_float64.FAMILIES)
            samples = draw_samples(keys["global_batch_size"] * STEPS, model, generator)
            with open(f"{folder}/data.jsonl", "w") as f:
                for ids, labels in samples: f.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
            report[name] = train(model, keys, samples, folder)
            if residual_start: save_residual_start(model, f"{folder}/final", init)
            else: save(model, f"{folder}/final")
            save_logits(model, samples, folder)
            delta_float64.switch(False)
            print(family, name, [round(x, 5) for x in report[name]["loss"]], [round(x, 4) for x in report[name]["grad_norm"]], flush=True)
        with open(path, "w") as f: json.dump({"steps": STEPS, "adapters": report}, f, indent=1)


if __name__ == "__main__":
    main()
