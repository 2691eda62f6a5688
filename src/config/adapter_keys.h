#pragma once

#include <limits>

#include "config/adapter_reader.h"
#include "config/job.h"
#include "config/job_key.h"
#include "config/job_words.h"
#include "config/lr_schedule_reader.h"
#include "config/module_reader.h"

namespace loratrain {

/// The keys of an adapter, in the order of the resolved job: name, field, accepted values, meaning
/// (Markdown), and what KeyInfo has of them. Everything that knows keys is a visitor of these
/// functions: KeyReader, KeyWriter, KeyTexts.

template <class V>
void keys(V& v, LrSchedulerKwargs& kwargs) {
    const LrSchedulerKwargs usual;
    v.key(
        "num_cycles", kwargs.num_cycles,
        "waves of a cosine; restarts of cosine_with_restarts, also of warmup_stable_decay's decay",
        {.usual = "0.5; 1 of restarts",
         .of = "cosine, cosine_with_restarts, cosine_with_min_lr, warmup_stable_decay"});
    v.key("min_lr", kwargs.min_lr, "rate that cosine_with_min_lr ends with",
          {.usual = "none", .of = "cosine_with_min_lr"});
    v.key("min_lr_rate", kwargs.min_lr_rate, "the same, of the learning rate",
          {.usual = "none", .of = "cosine_with_min_lr"});
    v.key("lr_end", kwargs.lr_end, "rate that polynomial ends with",
          {.usual = "1.0e-07", .of = "polynomial"});
    v.key("power", kwargs.power, "of polynomial", {.usual = "1", .of = "polynomial"});
    v.key("timescale", kwargs.timescale, "steps of inverse_sqrt",
          {.range = at_least(1),
           .usual = "the warm-up's, or 10000",
           .whole = true,
           .of = "inverse_sqrt"});
    v.key("num_decay_steps", kwargs.num_decay_steps, "of warmup_stable_decay",
          {.usual = "required there", .whole = true, .of = "warmup_stable_decay"});
    v.key("num_stable_steps", kwargs.num_stable_steps, "of warmup_stable_decay",
          {.usual = "what is left", .whole = true, .of = "warmup_stable_decay"});
    v.key("min_lr_ratio", kwargs.min_lr_ratio, "what warmup_stable_decay begins and ends with",
          {.usual = "0", .of = "warmup_stable_decay"});
    v.key("warmup_type", kwargs.warmup_type, lr_ramp_words,
          "of warmup_stable_decay: `linear`, `cosine`, `1-sqrt`",
          {.written = kwargs.warmup_type != usual.warmup_type, .of = "warmup_stable_decay"});
    v.key("decay_type", kwargs.decay_type, lr_ramp_words,
          "of warmup_stable_decay: `linear`, `cosine`, `1-sqrt`",
          {.written = kwargs.decay_type != usual.decay_type, .of = "warmup_stable_decay"});
}

template <class V>
void keys(V& v, LossJob& loss) {
    const bool sft = loss.loss == Loss::sft;
    const bool kto = loss.loss == Loss::kto;
    const bool cit = loss.is_contrastive();
    v.key("loss", loss.loss, loss_words,
          "what is minimised: `sft` (cross-entropy); of pairs of a chosen and a rejected sample "
          "`dpo`, `cpo`, `simpo`, `orpo`; of samples with a label `kto`; of instructions and their "
          "paraphrases `cit`",
          {.written = !sft});
    v.key("loss_type", loss.type, loss_type_words,
          "of `dpo`, `cpo`: `sigmoid`, `hinge`, `ipo`; of `sft`: `nll`, `dft`",
          {.usual = "sigmoid; nll",
           .written = !sft || loss.is_dft(),
           .of = "dpo, cpo or sft",
           .used = loss.has_types() || sft});
    v.key("beta", loss.beta, "scale of rewards; of `orpo` weight of the odds ratio",
          {.range = above(0.0), .of = "dpo, cpo, simpo, orpo or kto", .used = loss.has_rewards()});
    v.key("label_smoothing", loss.label_smoothing,
          "of `simpo`, and of `sigmoid`: share of pairs that are wrong; of `dpo` that is cDPO (TRL "
          "1.16 takes the key there and does nothing with it)",
          {.range = from_to_below(0.0, 0.5),
           .written = loss.has_label_smoothing(),
           .of = "simpo, or dpo or cpo with loss_type: sigmoid (sft: label_smoothing_factor)",
           .used = loss.has_label_smoothing() || loss.label_smoothing == 0});
    v.key("simpo_gamma", loss.simpo_gamma, "of `simpo`: the margin of rewards that it aims at",
          {.of = "simpo", .used = loss.loss == Loss::simpo});
    v.key("cpo_alpha", loss.cpo_alpha,
          "of `cpo`, `simpo`: weight of the chosen samples' cross-entropy",
          {.usual = "`cpo` 1, `simpo` 0", .of = "cpo or simpo", .used = loss.has_cpo_alpha()});
    v.key("desirable_weight", loss.desirable_weight, "of `kto`: of the losses of desirable samples",
          {.of = "kto", .used = kto});
    v.key("undesirable_weight", loss.undesirable_weight, "of `kto`: of the others",
          {.of = "kto", .used = kto});
    v.key("temperature", loss.temperature, "of `cit`: what similarities are divided by",
          {.range = above(0.0), .of = "cit", .used = cit});
    v.key("lambda", loss.lambda, "of `cit`: largest weight of the contrastive loss",
          {.of = "cit", .used = cit});
    v.key("label_smoothing_factor", loss.label_smoothing_factor,
          "of `sft`: share of the target that all tokens have",
          {.range = from_to_below(0.0, 1.0),
           .written = loss.label_smoothing_factor != 0,
           .of = "sft with loss_type: nll",
           .used = (sft && !loss.is_dft()) || loss.label_smoothing_factor == 0});
    v.key("z_loss", loss.z_loss, "of `sft`: weight of the squared log of the sum of exp(logits)",
          {.written = loss.z_loss != 0, .of = "sft", .used = sft || loss.z_loss == 0});
}

/// Rank, form and modules.
template <class V>
void form_keys(V& v, AdapterJob& job) {
    const bool vera = job.is_vera();
    v.key("r", job.r, "rank", {.range = from_to(1, most_rank), .in_names = "r"});
    v.key("lora_alpha", job.lora_alpha, "scaling is lora_alpha / r",
          {.range = above(0.0), .written = !vera, .in_names = "a"});
    v.key("peft_type", job.peft_type, peft_type_words,
          "`lora`, or `vera`: trained vectors that scale shared random factors, without lora_alpha",
          {.written = vera, .null_is_none = true});
    v.key("d_initial", job.d_initial, "of `vera`: first value of the vectors between the factors",
          {.range = above(0.0), .written = vera});
    v.key("projection_prng_key", job.projection_prng_key,
          "of `vera`: seed of the factors, as in PEFT", {.written = vera});
    v.key("save_projection", job.save_projection, "of `vera`: exports have the factors",
          {.written = vera});
    v.key("lora_dropout", job.lora_dropout, "of the inputs of A",
          {.range = from_to_below(0.0, 1.0), .in_names = "do"});
    v.own("target_modules", job, modules_key,
          "`all-linear`, or a list of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
          "down_proj, where the model fuses them qkv_proj, gate_up_proj, or a regular expression "
          "for whole names as model.layers.0.self_attn.q_proj",
          {.usual = all_linear_word, .in_names = ""});
    v.mention("exclude_modules", "names or ends of names, or a regular expression",
              {.usual = "none"});
    v.mention("layers_to_transform", "layers that the list of target_modules is about, from 0",
              {.usual = "all"});
    v.mention("layers_pattern", "what the list of layers is called", {.usual = "any"});
    v.mention("rank_pattern",
              "ranks of modules, by regular expressions for names or their ends: `{q_proj: 8}`",
              {.usual = "none"});
    v.mention("alpha_pattern", "alphas of modules, likewise", {.usual = "none"});
    v.key("use_rslora", job.use_rslora, "scaling is lora_alpha / sqrt(r)", {.in_names = "rs-"});
    v.key("use_dora", job.use_dora, "DoRA: a trained magnitude for every row of W + scaling B A",
          {.written = job.use_dora});
    v.own("init_lora_weights", job, start_key,
          "first A: `true` (uniform) or `gaussian`, with B 0; or both from W: `pissa`, "
          "`pissa_niter_4` (near it, and quick), `olora`",
          {.usual = "true"});
    v.key("loraplus_lr_ratio", job.loraplus_lr_ratio, "LoRA+: learning rate of B over that of A",
          {.range = above(0.0), .written = job.loraplus_lr_ratio != 1.0, .null_is_none = true});
    v.path("init_from", job.init_from, "PEFT directory to start from", {.usual = "none"});
}

/// Learning rate and optimizer.
template <class V>
void optimizer_keys(V& v, AdapterJob& job) {
    v.key("learning_rate", job.learning_rate, "at its highest", {.in_names = "lr"});
    v.own("lr_scheduler_type", job, lr_schedule_key,
          "`constant`, `constant_with_warmup`, `linear`, `cosine`, `cosine_with_restarts`, "
          "`cosine_with_min_lr`, `polynomial`, `inverse_sqrt`, `warmup_stable_decay`",
          {.usual = "cosine", .in_names = ""});
    v.section("lr_scheduler_kwargs", job.lr_scheduler_kwargs,
              "what the schedule takes beside: below",
              {.usual = "none",
               .written = job.lr_scheduler_kwargs != LrSchedulerKwargs{},
               .null_is_none = true,
               .in_line = true,
               .inside = "lr_scheduler_kwargs"});
    v.own("warmup_steps", job, warmup_key, "whole, or below 1 a fraction of the steps",
          {.usual = "0", .in_names = "wu"});
    v.mention("warmup_ratio", "the fraction alone", {.usual = "none"});
    v.own("optim", job, optim_key,
          "`adamw_torch`, `adamw_8bit`: AdamW with moments in fp32, or as 8-bit codes",
          {.usual = "adamw_torch", .written = job.optim != Optim::adamw_torch});
    v.key("weight_decay", job.weight_decay, "of AdamW", {.in_names = "wd"});
    v.key("adam_beta1", job.adam_beta1, "of AdamW", {.range = from_to_below(0.0, 1.0)});
    v.key("adam_beta2", job.adam_beta2, "of AdamW", {.range = from_to_below(0.0, 1.0)});
    v.key("adam_epsilon", job.adam_epsilon, "of AdamW", {.range = above(0.0)});
    v.key("max_grad_norm", job.max_grad_norm,
          "gradients are clipped to this norm, per adapter; 0 = never", {.in_names = "gn"});
}

template <class V>
void keys(V& v, AdapterJob& job) {
    v.key("name", job.name, "also its folder's",
          {.required = "give each adapter a name of its own", .shared = false});
    v.own("dataset", job, dataset_key, "one of `datasets`",
          {.usual = "the only one", .in_names = ""});
    form_keys(v, job);
    keys(v, job.loss);
    v.own("ref_adapter", job, reference_key,
          "of `dpo`, `kto`: PEFT directory of the adapter to compare with, of this one's r, alpha "
          "and targets; `init_from`: its own start",
          {.usual = "none: the base alone", .of = "dpo or kto", .used = job.loss.has_reference()});
    v.key("neftune_noise_alpha", job.neftune_noise_alpha,
          "NEFTune: noise on the embeddings while training",
          {.written = job.neftune_noise_alpha != 0.0});
    optimizer_keys(v, job);
    v.key("global_batch_size", job.global_batch_size,
          "samples of one optimizer step, whatever the ranks and microbatches",
          {.range = at_least(1), .in_names = "b"});
    v.own("num_train_epochs", job, length_key, "times through the data, also 0.5",
          {.usual = "1", .resume = Resume::longer, .in_names = "ep"});
    v.mention("max_steps", "optimizer steps, in place of num_train_epochs; -1 = not given",
              {.usual = "none", .whole = true, .resume = Resume::longer, .in_names = "st"});
    v.key("seed", job.seed, "of first weights, order of samples and dropout",
          {.usual = "`run.seed`", .in_names = "s"});
    v.key("priority", job.priority, "higher goes first, and preempts",
          {.range = any_number, .resume = Resume::allowed});
    v.key("trial", job.trial, "competes in the sweep; first weights do not depend on its name",
          {.written = job.trial, .shared = false});
}

}  // namespace loratrain
