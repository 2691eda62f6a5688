#include "config/job_keys.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "config/foreign_keys.h"
#include "config/job_yaml.h"

namespace loratrain {

namespace {

constexpr JobKey keys[] = {
    {"", "model", "the base model"},
    {"", "run", "where the run lives"},
    {"", "parallel", "how the model is laid over ranks"},
    {"", "cluster", "the machine, for plans"},
    {"", "schedule", "how work is planned"},
    {"", "datasets", "name: dataset"},
    {"", "defaults", "keys that all adapters share"},
    {"", "adapters", "the list of adapters"},
    {"", "checkpoint", "when the run is saved"},
    {"", "eval", "when adapters are evaluated"},
    {"", "export", "how adapters are written"},
    {"", "logging", "what is reported"},
    {"", "sweep", "adapters made of a space of keys, which compete"},

    {"model", "weights", "HDF5 file made by `loratrain import-hf`", "required"},
    {"model", "synthetic",
     "random weights of this preset in their place, to measure speed; with `-nf4`, `-int8` or "
     "`-fp8` behind it quantised",
     "none"},
    {"model", "precision",
     "`auto`, `fp32`, `bf16`; auto is bf16 on GPUs, fp32 on CPUs; `fp8`, on GPUs from Hopper "
     "on: the linears of the layers in 8 bits, a faster approximation"},
    {"model", "residency",
     "whose frozen weights stay on a rank: `all`; `stream`: no layer's, they come from the host's "
     "memory behind computation; `{resident_layers: N}`: of N layers of each rank; `shared`: each "
     "of several replicas alike on a host has others, and reads the rest from there; `auto`: all, "
     "on GPUs where they do not fit as many as do"},
    {"model", "base_model_name_or_path", "what exported adapters name as their base",
     "as imported"},

    {"residency", "resident_layers", "layers that stay on each rank, spread evenly", "required"},

    {"run", "dir", "folder of everything that the run writes", "required"},
    {"run", "seed", "seed of adapters that have none, and of eval splits"},
    {"run", "backend", "`auto`, `cpu`, `cuda`"},
    {"run", "max_hours", "stop cleanly (exit code 75) before this time is over; 0 = no limit"},
    {"run", "peer_timeout", "seconds without a sign of life of a rank that end the job; 0 = off"},

    {"parallel", "pipeline_stages", "of one pipeline; `auto`: all ranks"},
    {"parallel", "deployment",
     "`pipeline`: one, as above; `auto`: what is found to be fastest; or replicas and how they "
     "are cut over ranks: `[{tp: 2, pp: 2}]`; without the key `auto` where that gains 3% on GPUs",
     "auto"},
    {"parallel", "microbatch_tokens", "tokens of a microbatch; `auto`: the fastest that fits"},
    {"parallel", "recompute",
     "`auto`, `none`, `layer` (keep only the layers' inputs), `{layers: N}` (of N layers of each "
     "rank); auto: where memory is short, of as few layers as it asks"},
    {"parallel", "offload",
     "of the layers that `recompute` is of, whose activations go to pinned host memory and back "
     "instead: `none`, `{layers: N}` (at most N of each rank), `auto`: on GPUs with a known link "
     "as many as are fastest by costs, else none"},
    {"parallel", "dispatch",
     "samples to replicas: `balanced` (all end together), `length` (each to the kind that takes "
     "the "
     "fewest GPU-seconds for it), `uniform` (as many to each)"},
    {"parallel", "assignment",
     "`joint`: every adapter trains on all ranks; `each`: on one worker, cut as pipeline_stages or "
     "deployment say, else one rank; `auto`: so too, cut by simulation; without this key and "
     "those `auto` where that gains 3% on GPUs",
     "auto"},
    {"parallel", "redeploy",
     "`auto`: where `deployment: auto` finds a faster one for what is left, as adapters end or "
     "come, "
     "and that pays, the run goes on in it; `never`"},

    {"recompute", "layers", "layers of each rank that are computed again", "required"},

    {"offload", "layers", "layers of each rank whose activations go to the host, spread evenly",
     "required"},

    {"deployment", "tp", "lanes that share a stage (tensor parallelism)", "1"},
    {"deployment", "pp", "stages", "1"},
    {"deployment", "count", "replicas that are cut alike", "1"},
    {"deployment", "microbatch_tokens",
     "tokens of their microbatches, and of their longest sample; `auto`: as above", "auto"},
    {"deployment", "recompute", "theirs alone; `auto`: as above", "auto"},

    {"cluster", "between_hosts",
     "what messages between ranks of two hosts take; a run on several measures it, for its "
     "predictions",
     "built in"},

    {"between_hosts", "gigabytes_per_second", "from one rank to another, 10^9 bytes each",
     "built in"},
    {"between_hosts", "microseconds", "latency of a message", "built in"},

    {"schedule", "policy", "`sequential`, `1f1b`, `mlora`, `balanced`"},
    {"schedule", "packing", "how microbatches are filled: `milp`, `greedy`, `bucketed`"},
    {"schedule", "max_adapters",
     "adapters that train at the same time; `auto`: what memory allows"},
    {"schedule", "solver_seconds", "limit of one MILP; greedy packing stands in"},
    {"schedule", "costs", "`auto`: measured on this hardware; `built-in`"},

    {"datasets", "path", "`.jsonl` or `.h5`; a list of several is mixed", "required"},
    {"datasets", "files",
     "in place of `path` a list, as in [{path: a.jsonl, weight: 2}, b.jsonl]; metrics have their "
     "losses as loss/NAME and eval_loss/NAME",
     "none"},
    {"datasets", "eval_path", "data for evaluation, or a list of files", "none"},
    {"datasets", "tokenizer", "`none`: tokens; `bytes`: text for a byte-level model"},
    {"datasets", "max_seq_len", "tokens of the longest sample"},
    {"datasets", "over_length", "longer samples: `error`, `truncate`, `drop`"},
    {"datasets", "shuffle", "a new order in every epoch"},
    {"datasets", "kl_batch_size",
     "of `kto`: neighbours whose completions are swapped to estimate KL, TRL's "
     "per_device_train_batch_size",
     "8"},
    {"datasets", "eval_split", "samples held out for evaluation: 200, or a fraction as 0.05",
     "`eval.split`"},

    {"file", "path", "as above", "required"},
    {"file", "weight",
     "how often an epoch has its samples: 2 = twice each, 0.25 = a quarter of them, in the next "
     "epoch the next quarter",
     "1"},
    {"file", "name", "in metrics", "of the path"},

    {"adapters", "name", "also its folder's", "required"},
    {"adapters", "dataset", "one of `datasets`", "the only one"},
    {"adapters", "r", "rank"},
    {"adapters", "lora_alpha", "scaling is lora_alpha / r"},
    {"adapters", "lora_dropout", "of the inputs of A"},
    {"adapters", "target_modules",
     "`all-linear`, or a list of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, "
     "where the model fuses them qkv_proj, gate_up_proj, or a regular expression for whole names "
     "as model.layers.0.self_attn.q_proj"},
    {"adapters", "exclude_modules", "names or ends of names, or a regular expression", "none"},
    {"adapters", "layers_to_transform", "layers that the list of target_modules is about, from 0",
     "all"},
    {"adapters", "layers_pattern", "what the list of layers is called", "any"},
    {"adapters", "rank_pattern",
     "ranks of modules, by regular expressions for names or their ends: `{q_proj: 8}`", "none"},
    {"adapters", "alpha_pattern", "alphas of modules, likewise", "none"},
    {"adapters", "peft_type",
     "`lora`, or `vera`: trained vectors that scale shared random factors, without lora_alpha",
     "lora"},
    {"adapters", "d_initial", "of `vera`: first value of the vectors between the factors", "0.1"},
    {"adapters", "projection_prng_key", "of `vera`: seed of the factors, as in PEFT", "0"},
    {"adapters", "save_projection", "of `vera`: exports have the factors", "true"},
    {"adapters", "use_rslora", "scaling is lora_alpha / sqrt(r)"},
    {"adapters", "use_dora", "DoRA: a trained magnitude for every row of W + scaling B A", "false"},
    {"adapters", "init_lora_weights",
     "first A: `true` (uniform) or `gaussian`, with B 0; or both from W: `pissa`, `pissa_niter_4` "
     "(near it, and quick), `olora`",
     "true"},
    {"adapters", "loraplus_lr_ratio", "LoRA+: learning rate of B over that of A", "1"},
    {"adapters", "init_from", "PEFT directory to start from", "none"},
    {"adapters", "loss",
     "what is minimised: `sft` (cross-entropy); of pairs of a chosen and a rejected sample `dpo`, "
     "`cpo`, `simpo`, `orpo`; of samples with a label `kto`; of instructions and their paraphrases "
     "`cit`",
     "sft"},
    {"adapters", "loss_type", "of `dpo`, `cpo`: `sigmoid`, `hinge`, `ipo`; of `sft`: `nll`, `dft`",
     "sigmoid; nll"},
    {"adapters", "beta", "scale of rewards; of `orpo` weight of the odds ratio", "0.1"},
    {"adapters", "label_smoothing",
     "of `simpo`, and of `sigmoid`: share of pairs that are wrong; of `dpo` that is cDPO (TRL 1.16 "
     "takes the key there and does nothing with it)",
     "0"},
    {"adapters", "simpo_gamma", "of `simpo`: the margin of rewards that it aims at", "0.5"},
    {"adapters", "cpo_alpha", "of `cpo`, `simpo`: weight of the chosen samples' cross-entropy",
     "`cpo` 1, `simpo` 0"},
    {"adapters", "desirable_weight", "of `kto`: of the losses of desirable samples", "1"},
    {"adapters", "undesirable_weight", "of `kto`: of the others", "1"},
    {"adapters", "temperature", "of `cit`: what similarities are divided by", "0.05"},
    {"adapters", "lambda", "of `cit`: largest weight of the contrastive loss", "1"},
    {"adapters", "ref_adapter",
     "of `dpo`, `kto`: PEFT directory of the adapter to compare with, of this one's r, alpha and "
     "targets; `init_from`: its own start",
     "none: the base alone"},
    {"adapters", "label_smoothing_factor", "of `sft`: share of the target that all tokens have",
     "0"},
    {"adapters", "neftune_noise_alpha", "NEFTune: noise on the embeddings while training", "0"},
    {"adapters", "z_loss", "of `sft`: weight of the squared log of the sum of exp(logits)", "0"},
    {"adapters", "learning_rate", "at its highest"},
    {"adapters", "lr_scheduler_type",
     "`constant`, `constant_with_warmup`, `linear`, `cosine`, `cosine_with_restarts`, "
     "`cosine_with_min_lr`, `polynomial`, `inverse_sqrt`, `warmup_stable_decay`"},
    {"adapters", "lr_scheduler_kwargs", "what the schedule takes beside: below", "none"},
    {"adapters", "warmup_steps", "whole, or below 1 a fraction of the steps"},
    {"adapters", "warmup_ratio", "the fraction alone", "none"},
    {"adapters", "optim",
     "`adamw_torch`, `adamw_8bit`: AdamW with moments in fp32, or as 8-bit codes", "adamw_torch"},
    {"adapters", "weight_decay", "of AdamW"},
    {"adapters", "adam_beta1", "of AdamW"},
    {"adapters", "adam_beta2", "of AdamW"},
    {"adapters", "adam_epsilon", "of AdamW"},
    {"adapters", "max_grad_norm", "gradients are clipped to this norm, per adapter; 0 = never"},
    {"adapters", "global_batch_size",
     "samples of one optimizer step, whatever the ranks and microbatches"},
    {"adapters", "num_train_epochs", "times through the data, also 0.5"},
    {"adapters", "max_steps", "optimizer steps, in place of num_train_epochs; -1 = not given",
     "none"},
    {"adapters", "seed", "of first weights, order of samples and dropout", "`run.seed`"},
    {"adapters", "priority", "higher goes first, and preempts"},
    {"adapters", "trial", "competes in the sweep; first weights do not depend on its name",
     "false"},

    {"kwargs", "num_cycles",
     "waves of a cosine; restarts of cosine_with_restarts, also of warmup_stable_decay's decay",
     "0.5; 1 of restarts"},
    {"kwargs", "min_lr", "rate that cosine_with_min_lr ends with", "none"},
    {"kwargs", "min_lr_rate", "the same, of the learning rate", "none"},
    {"kwargs", "lr_end", "rate that polynomial ends with", "1.0e-07"},
    {"kwargs", "power", "of polynomial", "1"},
    {"kwargs", "timescale", "steps of inverse_sqrt", "the warm-up's, or 10000"},
    {"kwargs", "num_decay_steps", "of warmup_stable_decay", "required there"},
    {"kwargs", "num_stable_steps", "of warmup_stable_decay", "what is left"},
    {"kwargs", "min_lr_ratio", "what warmup_stable_decay begins and ends with", "0"},
    {"kwargs", "warmup_type", "of warmup_stable_decay: `linear`, `cosine`, `1-sqrt`", "linear"},
    {"kwargs", "decay_type", "of warmup_stable_decay: `linear`, `cosine`, `1-sqrt`", "cosine"},

    {"checkpoint", "every_steps", "0 = not by steps"},
    {"checkpoint", "every_minutes", "0 = not by time"},
    {"checkpoint", "keep", "the newest so many"},

    {"eval", "every_steps", "0 = only before the first and after the last step"},
    {"eval", "keep_best", "export the state of lowest eval loss as `best/` too"},
    {"eval", "early_stopping_patience",
     "evaluations without improvement that end an adapter; 0 = none do"},
    {"eval", "early_stopping_threshold", "a smaller decrease is no improvement"},
    {"eval", "split", "`eval_split` of datasets without that and without `eval_path`", "none"},
    {"eval", "generate", "texts that adapters write when they end: below", "none"},

    {"generate", "samples",
     "prompts of the evaluation data, from its first on, that a text is written behind",
     "required"},
    {"generate", "max_new_tokens", "where a text ends that has come to no stop token", "256"},
    {"generate", "stop_tokens", "ids that end a text beside the `eos_token_id` of the base",
     "none"},

    {"export", "scaling",
     "`peft`: use_rslora, ranks and alphas as in the job; `plain`: all in lora_alpha, r and B, "
     "for programs that know no more (not VeRA)"},
    {"export", "dtype", "of the tensors: `fp32`, or `bf16` for half the size"},
    {"export", "tokenizer",
     "with the tokenizer files and chat template of the base's folder, where that is here"},

    {"logging", "every_steps", "steps from one progress line to the next"},
    {"logging", "live", "`auto`: on a terminal a table drawn in place; `never`"},
    {"logging", "tensorboard", "event files in `<run.dir>/tensorboard`"},
    {"logging", "trace", "`<run.dir>/trace.json`: what every rank did when"},

    {"sweep", "method", "`grid`: every combination; `random`; `list`", "grid"},
    {"sweep", "space",
     "keys of an adapter with lists of values, `{min, max, scale}` or `{times_r: [...]}`; "
     "`together`: a list of what goes together",
     "required, but with list"},
    {"sweep", "configurations", "random: how many; list: the trials, each as its keys", "none"},
    {"sweep", "name", "what the names of trials begin with", "none"},
    {"sweep", "seed", "of random draws", "`run.seed`"},
    {"sweep", "shard", "`0/4`: the first of four parts of the trials, for arrays of jobs", "none"},
    {"sweep", "objective", "`eval_loss`, `exact_match`: what trials of one dataset are ranked by"},
    {"sweep", "top_k", "places shown, and kept with `export: best`"},
    {"sweep", "export", "`best`: the best `top_k` of each dataset; `all`; `none`"},
    {"sweep", "reference", "adapter that the best is compared with", "none"},
    {"sweep", "scheduler", "what ends trials early: `none`, `halving`, `asha`, `median`"},
    {"sweep", "rungs", "evaluations that decide it, each trial's end included"},
    {"sweep", "reduction_factor", "from one rung to the next: one of so many goes on"},
    {"sweep", "rung_eval_samples", "at rungs before the end; 0 = all"},
    {"sweep", "speculate",
     "halving: trials at a rung train on: `auto`, where it costs little; `always`; `never`"},
    {"sweep", "budget_hours", "of training, that end the sweep; 0 = no limit"},
    {"sweep", "wait_minutes", "for more trials through the inbox, when none is left"},

    {"space", "min", "of a range, for `method: random`", "required"},
    {"space", "max", "of a range", "required"},
    {"space", "scale", "of a range: `linear`, `log`", "linear"},
    {"space", "times_r", "values as multiples of the trial's r", "none"},
};

/// Every key of a job that says nothing, as the writer of resolved.yaml has it.
YamlNode default_tree() {
    Job job;
    job.datasets.emplace_back();
    job.datasets.back().name = "NAME";
    job.adapters.emplace_back();
    job.sweep.emplace();
    ProblemLog log;
    std::optional<YamlNode> root = parse_yaml(to_yaml(job), {"defaults", false}, log);
    log.throw_if_any();
    return std::move(*root);
}

std::string default_of(const YamlNode& root, const JobKey& key) {
    if (key.default_words != nullptr) return key.default_words;
    const YamlNode* section = root.find(key.section);
    LORATRAIN_CHECK(section != nullptr, key.section);
    const bool of_items =
        !section->children.empty() &&
        (section->kind == YamlNode::Kind::list || section->children[0].kind == YamlNode::Kind::map);
    const YamlNode* value = (of_items ? section->children[0] : *section).find(key.key);
    LORATRAIN_CHECK(value != nullptr, "no default of ", key.section, ".", key.key);
    return value->text;
}

std::string shown_section(const std::string& section) {
    if (section == "between_hosts") return "cluster.between_hosts";
    if (section == "datasets") return "datasets.NAME";
    if (section == "deployment") return "parallel.deployment[0]";
    if (section == "file") return "datasets.NAME.files[0]";
    if (section == "generate") return "eval.generate";
    if (section == "kwargs") return "lr_scheduler_kwargs";
    if (section == "offload") return "parallel.offload";
    if (section == "recompute") return "parallel.recompute";
    if (section == "residency") return "model.residency";
    if (section == "space") return "sweep.space.KEY";
    return section == "adapters" ? "adapters, defaults" : section;
}

void write_row(std::ostringstream& out, const KeyRow& row) {
    const auto padded = [&](std::string text, std::size_t width) {
        text.resize(std::max(text.size(), width), ' ');
        out << "| " << text << ' ';
    };
    std::vector<std::string> names = row.elsewhere;
    for (std::string& name : names) name = cat("`", name, "`");
    padded(cat("`", row.key, "`"), 26);
    padded(row.default_value, 12);
    out << "| " << row.meaning << " | " << join(names, ", ") << " |\n";
}

}  // namespace

std::span<const JobKey> job_keys() {
    return keys;
}

std::string key_section(const std::string& path) {
    if (path.empty()) return "";
    if (path.starts_with("parallel.") && path.ends_with(".recompute")) return "recompute";
    if (path == "parallel.offload") return "offload";
    if (path == "cluster.between_hosts") return "between_hosts";
    if (path.starts_with("parallel.deployment[")) return "deployment";
    if (path.starts_with("datasets.") && path.ends_with(']')) return "file";
    if (path.ends_with(".lr_scheduler_kwargs")) return "kwargs";
    if (path == "model.residency") return "residency";
    if (path == "eval.generate") return "generate";
    if (path == "sweep.space" || path == "sweep.configurations") return "adapters";
    if (path.starts_with("sweep.space.")) return "space";
    const std::string section = path.substr(0, path.find_first_of(".["));
    return section == "defaults" ? "adapters" : section;
}

bool is_job_key(const std::string& section, const std::string& key) {
    return std::any_of(std::begin(keys), std::end(keys),
                       [&](const JobKey& row) { return key == row.key && section == row.section; });
}

std::string key_place(const std::string& section, const std::string& key) {
    if (section == "adapters") return cat(key, " of an adapter or of defaults");
    if (section == "between_hosts") return cat("cluster.between_hosts.", key);
    if (section == "datasets") return cat("datasets.NAME.", key);
    if (section == "deployment") return cat("parallel.deployment[0].", key);
    if (section == "file") return cat("datasets.NAME.files[0].", key);
    if (section == "generate") return cat("eval.generate.", key);
    if (section == "kwargs") return cat("lr_scheduler_kwargs.", key);
    if (section == "offload") return cat("parallel.offload.", key);
    if (section == "recompute") return cat("parallel.recompute.", key);
    if (section == "residency") return cat("model.residency.", key);
    if (section == "space") return cat("sweep.space.KEY.", key);
    return section.empty() ? key : cat(section, ".", key);
}

std::vector<std::string> sections_with(const std::string& key) {
    std::vector<std::string> sections;
    for (const JobKey& row : keys) {
        if (key == row.key) sections.emplace_back(row.section);
    }
    return sections;
}

std::vector<KeyRow> key_rows() {
    const YamlNode defaults = default_tree();
    std::vector<KeyRow> rows;
    for (const JobKey& key : keys) {
        const bool is_section = std::strlen(key.section) == 0;
        rows.push_back({shown_section(key.section), key.key,
                        is_section ? "" : default_of(defaults, key), key.meaning,
                        names_elsewhere(key.section, key.key)});
    }
    return rows;
}

std::string keys_text() {
    std::ostringstream out;
    out << "| key | default | meaning | names in PEFT, Hugging Face, axolotl, ... |\n"
           "|---|---|---|---|\n";
    std::string section;
    for (const KeyRow& row : key_rows()) {
        if (row.section.empty()) continue;
        if (section != row.section) {
            section = row.section;
            out << "| **" << section << "** | | | |\n";
        }
        write_row(out, row);
    }
    return out.str();
}

}  // namespace loratrain
