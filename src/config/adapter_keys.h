#pragma once

#include <limits>

#include "config/adapter_reader.h"
#include "config/job.h"
#include "config/job_key.h"
#include "config/job_words.h"
#include "config/rewards_reader.h"

namespace loratrain {

/// The keys of an adapter, in the order of the resolved job: name, field, accepted values, meaning
/// (Markdown) and KeyInfo. All code that needs the keys is a visitor of these functions: KeyReader,
/// KeyWriter, KeyTexts.

template <class V>
void keys(V& v, LrSchedulerKwargs& kwargs) {
    const LrSchedulerKwargs usual;
    v.key("num_cycles", kwargs.num_cycles,
          "number of waves of the cosine, for cosine schedules and the decay of "
          "warmup_stable_decay; for cosine_with_restarts the number of restarts",
          {.usual = "0.5; cosine_with_restarts 1",
           .of = "cosine, cosine_with_restarts, cosine_with_min_lr, warmup_stable_decay"});
    v.key("min_lr", kwargs.min_lr, "last learning rate of cosine_with_min_lr",
          {.usual = "none", .of = "cosine_with_min_lr"});
    v.key("min_lr_rate", kwargs.min_lr_rate, "min_lr as a share of the learning rate",
          {.usual = "none", .of = "cosine_with_min_lr"});
    v.key("lr_end", kwargs.lr_end, "last learning rate of polynomial",
          {.usual = "1.0e-07", .of = "polynomial"});
    v.key("power", kwargs.power, "exponent of polynomial", {.usual = "1", .of = "polynomial"});
    v.key("timescale", kwargs.timescale,
          "t of inverse_sqrt in steps: the rate is lr / sqrt((step - warm-up + t) / t)",
          {.range = at_least(1),
           .usual = "the steps of the warm-up, or 10000 without one",
           .whole = true,
           .of = "inverse_sqrt"});
    v.key(
        "num_decay_steps", kwargs.num_decay_steps, "steps of the decay of warmup_stable_decay",
        {.usual = "required for warmup_stable_decay", .whole = true, .of = "warmup_stable_decay"});
    v.key("num_stable_steps", kwargs.num_stable_steps,
          "steps at the full rate of warmup_stable_decay",
          {.usual = "what is left", .whole = true, .of = "warmup_stable_decay"});
    v.key("min_lr_ratio", kwargs.min_lr_ratio,
          "first and last rate of warmup_stable_decay, as a share of the learning rate",
          {.usual = "0", .of = "warmup_stable_decay"});
    v.key("warmup_type", kwargs.warmup_type, lr_ramp_words,
          "shape of the warm-up of warmup_stable_decay: `linear`, `cosine`, `1-sqrt`",
          {.written = kwargs.warmup_type != usual.warmup_type, .of = "warmup_stable_decay"});
    v.key("decay_type", kwargs.decay_type, lr_ramp_words,
          "shape of the decay of warmup_stable_decay: `linear`, `cosine`, `1-sqrt`",
          {.written = kwargs.decay_type != usual.decay_type, .of = "warmup_stable_decay"});
}

template <class V>
void keys(V& v, LossJob& loss) {
    const bool sft = loss.loss == Loss::sft;
    const bool kto = loss.loss == Loss::kto;
    const bool cit = loss.is_contrastive();
    const bool rollouts = loss.is_of_rollouts();
    const bool constant = rollouts && loss.aggregation == LossAggregation::constant;
    v.key(
        "loss", loss.loss, loss_words,
        "what is minimised: `sft`: cross-entropy; `dpo`, `cpo`, `simpo`, `orpo`: preferences, from "
        "pairs of a chosen and a rejected sample; `kto`: preferences, from samples with a label; "
        "`cit`: a contrast, from pairs of an instruction and its paraphrase; "
        "`importance_sampling`, "
        "`ppo`, `cispo`, `dro`, `grpo`: rewards, from rollouts with advantages",
        {.written = !sft});
    v.key("loss_type", loss.type, loss_type_words,
          "variant of the loss: `sigmoid`, `hinge` or `ipo` for `dpo` and `cpo`; `nll` or `dft` "
          "for `sft`",
          {.usual = "sigmoid; nll",
           .written = !sft || loss.is_dft(),
           .of = "dpo, cpo or sft",
           .used = loss.has_types() || sft});
    v.key("beta", loss.beta,
          "`dpo`, `cpo`, `simpo`, `kto`: scale of rewards; `orpo`: weight of the odds ratio; "
          "`dro`: weight of the squared log-ratio; other losses of rollouts: weight of the KL to "
          "the reference",
          {.range = at_least(0.0),  // above 0 for rewards: check_beta()
           .usual = "0.1; `dro` 0.05; other losses of rollouts 0",
           .of = "dpo, cpo, simpo, orpo, kto or of rollouts",
           .used = loss.has_beta()});
    v.key(
        "label_smoothing", loss.label_smoothing,
        "share of pairs whose chosen and rejected samples are assumed to be swapped; for `simpo`, "
        "and for `dpo` (cDPO) and `cpo` with loss_type `sigmoid`. TRL 1.16 ignores it for `dpo`",
        {.range = from_to_below(0.0, 0.5),
         .written = loss.has_label_smoothing(),
         .of = "simpo, or dpo or cpo with loss_type: sigmoid (sft: label_smoothing_factor)",
         .used = loss.has_label_smoothing() || loss.label_smoothing == 0});
    v.key("simpo_gamma", loss.simpo_gamma, "target margin of rewards of `simpo`",
          {.of = "simpo", .used = loss.loss == Loss::simpo});
    v.key("cpo_alpha", loss.cpo_alpha,
          "weight of the chosen samples' cross-entropy in `cpo` and `simpo`",
          {.usual = "`cpo` 1, `simpo` 0", .of = "cpo or simpo", .used = loss.has_cpo_alpha()});
    v.key("desirable_weight", loss.desirable_weight, "weight of desirable samples in `kto`",
          {.of = "kto", .used = kto});
    v.key("undesirable_weight", loss.undesirable_weight, "weight of undesirable samples in `kto`",
          {.of = "kto", .used = kto});
    v.key("temperature", loss.temperature, "temperature of `cit`: similarities are divided by it",
          {.range = above(0.0), .of = "cit", .used = cit});
    v.key("lambda", loss.lambda, "largest weight of the contrastive loss of `cit`",
          {.of = "cit", .used = cit});
    v.key("clip_low", loss.clip_low,
          "lower bound of the ratio p / q, where p is the adapter's and q the sampler's "
          "probability of a token; 1 - epsilon of TRL",
          {.range = from_to(0.0, 1.0),
           .written = loss.has_clip(),
           .of = "ppo, cispo or grpo",
           .used = loss.has_clip()});
    v.key("clip_high", loss.clip_high,
          "upper bound of the ratio p / q of clip_low; TRL's 1 + epsilon_high, for `cispo` TRL's "
          "epsilon_high",
          {.range = at_least(1.0),
           .written = loss.has_clip(),
           .of = "ppo, cispo or grpo",
           .used = loss.has_clip()});
    v.key("loss_aggregation", loss.aggregation, loss_aggregation_words,
          "how the losses of tokens of rollouts are averaged: `token`: mean over all tokens "
          "(DAPO); `sequence`: mean of each sample, then mean of these (GRPO); `constant`: sum / "
          "(samples x max_completion_length) (Dr. GRPO)",
          {.written = rollouts, .of = rollout_words, .used = rollouts});
    v.key("max_completion_length", loss.max_completion_length,
          "tokens by which `loss_aggregation: constant` divides the sum of a sample",
          {.range = at_least(1),
           .usual = "required for constant",
           .of = "rollouts with loss_aggregation: constant",
           .used = constant});
    v.key("max_staleness", loss.max_staleness,
          "for rollouts that come while the job runs: most steps that an adapter may have taken "
          "since it sampled a rollout at adapter_step. Older rollouts are left out; the metric "
          "stale_rollouts counts them",
          {.range = at_least(0), .usual = "any", .of = rollout_words, .used = rollouts});
    v.key("label_smoothing_factor", loss.label_smoothing_factor,
          "label smoothing of `sft`: share of the target that is spread over all tokens",
          {.range = from_to_below(0.0, 1.0),
           .written = loss.label_smoothing_factor != 0,
           .of = "sft with loss_type: nll",
           .used = (sft && !loss.is_dft()) || loss.label_smoothing_factor == 0});
    v.key("z_loss", loss.z_loss, "weight of (log sum exp(logits))^2 in `sft`",
          {.written = loss.z_loss != 0, .of = "sft", .used = sft || loss.z_loss == 0});
}

template <class V>
void keys(V& v, RewardsJob& rewards) {
    v.key("program", rewards.program,
          "command that gives texts their rewards, as in `python3 exact_match_reward.py`. It "
          "starts in the folder of the job file. For each text it reads a line with a JSON object "
          "and writes a line with a number",
          {.required = "give the command, as in program: python3 exact_match_reward.py",
           .resume = Resume::allowed});
    v.own("prompts", rewards, prompts_key,
          "dataset of the prompts; only needed if `dataset` is a folder for the rollouts that you "
          "have chosen",
          {.usual = "`dataset`"});
    v.key("group_size", rewards.group_size,
          "texts that are written after each prompt and compared with each other; "
          "global_batch_size counts texts",
          {.range = at_least(2)});
    v.key("max_new_tokens", rewards.max_new_tokens, "most tokens of a text",
          {.range = from_to(1, most_new_tokens)});
    v.key("temperature", rewards.temperature, "logits are divided by it before a token is drawn",
          {.range = above(0.0)});
    v.key("top_p", rewards.top_p,
          "a token is drawn from the most likely tokens whose probabilities add up to this share",
          {.range = {0.0, 1.0, true, false}});
    v.own("stop_tokens", rewards, reward_stop_tokens_key,
          "token ids that end a text, in addition to the base's `eos_token_id`", {.usual = "none"});
    v.key("advantages", rewards.advantages, advantage_words,
          "how rewards become advantages: `mean`: reward minus the mean of the group; `deviation`: "
          "the same, divided by the standard deviation of the group");
    v.key("timeout", rewards.timeout,
          "seconds that the program may take for an answer; then the adapter fails",
          {.range = above(0.0), .resume = Resume::allowed});
}

/// Rank, form and modules.
template <class V>
void form_keys(V& v, AdapterJob& job) {
    const bool vera = job.is_vera();
    v.key("r", job.r, "rank of A and B", {.range = from_to(1, most_rank), .in_names = "r"});
    v.key("lora_alpha", job.lora_alpha, "the adapter is scaled by lora_alpha / r",
          {.range = above(0.0), .written = !vera, .in_names = "a"});
    v.key(
        "peft_type", job.peft_type, peft_type_words,
        "`lora`, or `vera`: trains vectors that scale shared random matrices; takes no lora_alpha",
        {.written = vera, .null_is_none = true});
    v.key("d_initial", job.d_initial, "initial value of `vera_lambda_d`",
          {.range = above(0.0), .written = vera});
    v.key("projection_prng_key", job.projection_prng_key,
          "seed of the matrices of `vera`, as in PEFT", {.written = vera});
    v.key("save_projection", job.save_projection, "exports of `vera` contain the matrices",
          {.written = vera});
    v.key("lora_dropout", job.lora_dropout, "dropout rate of the inputs of A",
          {.range = from_to_below(0.0, 1.0), .in_names = "do"});
    v.own("target_modules", job, modules_key,
          "linear layers that get LoRA: `all-linear`; a list, as in `[q_proj, v_proj]`; or a "
          "regular expression for whole names such as model.layers.0.self_attn.q_proj. A list has "
          "names or ends of names of modules: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
          "down_proj, lm_head, embed_tokens; fused qkv_proj, gate_up_proj; of gated delta nets "
          "in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, in_proj_qkvz, in_proj_ba, out_proj; of "
          "latent attention q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj",
          {.usual = all_linear_word, .in_names = ""});
    v.mention("exclude_modules",
              "modules without LoRA: a list of names or ends of names, or a regular expression",
              {.usual = "none"});
    v.mention(
        "layers_to_transform",
        "layers that get LoRA, counted from 0, as in `[0, 1, 2]`; needs a list of target_modules",
        {.usual = "all"});
    v.mention("layers_pattern", "name of the model's list of layers, with layers_to_transform",
              {.usual = "any"});
    v.mention("rank_pattern",
              "ranks that differ from r, by regular expressions for names or ends of names, as in "
              "`{q_proj: 8}`",
              {.usual = "none"});
    v.mention("alpha_pattern", "alphas that differ from lora_alpha, as in `{q_proj: 16}`",
              {.usual = "none"});
    v.own("trainable_token_indices", job, trained_tokens_key,
          "ids of tokens whose embeddings are trained beside LoRA, such as new tokens of the "
          "tokenizer, as in `[32000, 32001]` or PEFT's `{embed_tokens: [32000]}`. A tied head uses "
          "the trained rows too",
          {.usual = "none"});
    v.key("use_rslora", job.use_rslora, "the adapter is scaled by lora_alpha / sqrt(r)",
          {.in_names = "rs-"});
    v.key("use_dora", job.use_dora, "DoRA: a trained magnitude for every row of W + scaling B A",
          {.written = job.use_dora});
    v.own("init_lora_weights", job, start_key,
          "how A and B start: `true` (A uniform, B 0), `gaussian` (A normal, B 0), or both from W: "
          "`pissa`, `pissa_niter_4` (approximate and quick), `olora`",
          {.usual = "true"});
    v.key("loraplus_lr_ratio", job.loraplus_lr_ratio,
          "LoRA+: learning rate of B divided by that of A",
          {.range = above(0.0), .written = job.loraplus_lr_ratio != 1.0, .null_is_none = true});
    v.path("init_from", job.init_from, "PEFT directory of an adapter to continue from",
           {.usual = "none"});
}

/// Learning rate and optimizer.
template <class V>
void optimizer_keys(V& v, AdapterJob& job) {
    v.key("learning_rate", job.learning_rate, "highest learning rate of the schedule",
          {.in_names = "lr"});
    v.own(
        "lr_scheduler_type", job, lr_schedule_key,
        "schedule: `constant`, `constant_with_warmup`, `linear`, `cosine`, `cosine_with_restarts`, "
        "`cosine_with_min_lr`, `polynomial`, `inverse_sqrt`, `warmup_stable_decay`",
        {.usual = "cosine", .in_names = ""});
    v.section("lr_scheduler_kwargs", job.lr_scheduler_kwargs,
              "further settings of the schedule, as in `{num_cycles: 2}`; the section "
              "lr_scheduler_kwargs has the keys",
              {.usual = "none",
               .written = job.lr_scheduler_kwargs != LrSchedulerKwargs{},
               .null_is_none = true,
               .in_line = true,
               .inside = "lr_scheduler_kwargs"});
    v.own("warmup_steps", job, warmup_key,
          "steps of linear warm-up; a number below 1 is a share of all steps",
          {.usual = "0", .in_names = "wu"});
    v.mention("warmup_ratio", "warm-up as a share of all steps", {.usual = "none"});
    v.own("optim", job, optim_key,
          "`adamw_torch`: AdamW with moments in fp32; `adamw_8bit`: with moments as 8-bit codes",
          {.usual = "adamw_torch", .written = job.optim != Optim::adamw_torch});
    v.key("weight_decay", job.weight_decay, "weight decay of AdamW", {.in_names = "wd"});
    v.key("adam_beta1", job.adam_beta1, "beta 1 of AdamW", {.range = from_to_below(0.0, 1.0)});
    v.key("adam_beta2", job.adam_beta2, "beta 2 of AdamW", {.range = from_to_below(0.0, 1.0)});
    v.key("adam_epsilon", job.adam_epsilon, "epsilon of AdamW", {.range = above(0.0)});
    v.key("max_grad_norm", job.max_grad_norm,
          "norm that each adapter's gradients are clipped to; 0 = no clipping", {.in_names = "gn"});
}

template <class V>
void keys(V& v, AdapterJob& job) {
    v.key("name", job.name, "name of the adapter and of its folder",
          {.required = "give each adapter a name of its own", .shared = false});
    v.own("dataset", job, dataset_key, "name of one of `datasets`",
          {.usual = "the only one", .in_names = ""});
    form_keys(v, job);
    keys(v, job.loss);
    v.section("rewards", job.rewards,
              "the adapter samples texts and learns from their rewards, as in `{program: python3 "
              "exact_match_reward.py}`; the section rewards has the keys",
              {.usual = "none",
               .written = job.rewards.wanted(),
               .null_is_none = true,
               .in_line = true,
               .inside = "rewards"});
    v.own("ref_adapter", job, reference_key,
          "what `dpo`, `kto` and losses of rollouts with beta > 0 compare with: the PEFT directory "
          "of an adapter with the same r, alpha and targets, or `init_from`: this adapter's own "
          "start",
          {.usual = "none: the base alone",
           .of = "dpo, kto, or of rollouts with beta > 0",
           .used = job.loss.has_reference()});
    v.key("neftune_noise_alpha", job.neftune_noise_alpha,
          "NEFTune: strength of the noise on embeddings during training",
          {.written = job.neftune_noise_alpha != 0.0});
    optimizer_keys(v, job);
    v.key("global_batch_size", job.global_batch_size,
          "samples of one optimizer step, over all ranks and microbatches. Other programs give "
          "batch size per device x accumulation steps x devices",
          {.range = at_least(1), .in_names = "b"});
    v.own("num_train_epochs", job, length_key, "epochs; fractions such as 0.5 are possible",
          {.usual = "1", .resume = Resume::longer, .in_names = "ep"});
    v.mention("max_steps", "optimizer steps, instead of num_train_epochs; -1 = not given",
              {.usual = "none", .whole = true, .resume = Resume::longer, .in_names = "st"});
    v.key("seed", job.seed, "seed of initial weights, order of samples and dropout",
          {.usual = "`run.seed`", .in_names = "s"});
    v.key("priority", job.priority,
          "adapters of higher priority start first and take the place of others",
          {.range = any_number, .resume = Resume::allowed});
    v.key("trial", job.trial,
          "the adapter competes with the trials of the sweep. Like a trial, it starts from initial "
          "weights that do not depend on its name",
          {.written = job.trial, .shared = false});
}

}  // namespace loratrain
