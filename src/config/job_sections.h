#pragma once

#include "config/adapter_keys.h"
#include "config/dataset_reader.h"
#include "config/job.h"
#include "config/job_key.h"
#include "config/job_keys.h"
#include "config/job_words.h"
#include "config/section_reader.h"
#include "config/sweep_axis.h"
#include "config/sweep_space.h"

namespace loratrain {

/// The sections of a job and their keys, as adapter_keys.h has those of adapters.

template <class V>
void keys(V& v, ModelJob& model) {
    Residency& residency = model.residency;
    v.path("weights", model.weights, "HDF5 file made by `loratrain import-hf`",
           {.usual = "required", .written = model.synthetic.empty()});
    v.key("synthetic", model.synthetic,
          "random weights of this preset in their place, to measure speed; with `-nf4`, `-int8` or "
          "`-fp8` behind it quantised",
          {.usual = "none", .written = !model.synthetic.empty()});
    v.key("precision", model.precision, precision_words,
          "`auto`, `fp32`, `bf16`; auto is bf16 on GPUs, fp32 on CPUs; `fp8`, on GPUs from Hopper "
          "on: the linears of the layers in 8 bits, a faster approximation");
    v.key("residency",
          WordOrNumber{residency.kind, Residency::Kind::some, residency.layers, "resident_layers",
                       "layers that stay on each rank, spread evenly",
                       "give the layers that stay on each rank"},
          residency_words,
          "whose frozen weights stay on a rank: `all`; `stream`: no layer's, they come from the "
          "host's memory behind computation; `{resident_layers: N}`: of N layers of each rank; "
          "`shared`: each of several replicas alike on a host has others, and reads the rest from "
          "there; `auto`: all, on GPUs where they do not fit as many as do",
          {.resume = Resume::allowed, .inside = "model.residency"});
    v.key("base_model_name_or_path", model.base_model_name_or_path,
          "what exported adapters name as their base",
          {.usual = "as imported", .resume = Resume::allowed});
}

template <class V>
void keys(V& v, RunJob& run) {
    v.path("dir", run.dir, "folder of everything that the run writes",
           {.required = "give the folder for results, as in run: {dir: runs/first}",
            .resume = Resume::allowed});
    v.key("seed", run.seed, "seed of adapters that have none, and of eval splits");
    v.key("backend", run.backend, backend_words, "`auto`, `cpu`, `cuda`",
          {.resume = Resume::same_backend});
    v.key("max_hours", run.max_hours,
          "stop cleanly (exit code 75) before this time is over; 0 = no limit",
          {.resume = Resume::allowed});
    v.key("peer_timeout", run.peer_timeout,
          "seconds without a sign of life of a rank that end the job; 0 = off",
          {.resume = Resume::allowed});
}

/// `recompute` of a pipeline or of replicas.
template <class V, class Parallel>
void recompute_key(V& v, Parallel& parallel, const char* help, const KeyInfo& info) {
    v.key("recompute",
          WordOrNumber{parallel.recompute, Recompute::layer, parallel.recomputed_layers, "layers",
                       "layers of each rank that are computed again",
                       "give the layers of each rank that are computed again"},
          recompute_words, help, info);
}

template <class V>
void keys(V& v, ReplicaJob& replica) {
    v.key("tp", replica.tensor, "lanes that share a stage (tensor parallelism)",
          {.range = at_least(1)});
    v.key("pp", replica.stages, "stages", {.range = at_least(1)});
    v.key("count", replica.count, "replicas that are cut alike", {.range = at_least(1)});
    v.key("microbatch_tokens", replica.microbatch_tokens,
          "tokens of their microbatches, and of their longest sample; `auto`: as above",
          {.range = at_least(1)});
    recompute_key(v, replica, "theirs alone; `auto`: as above", {});
}

template <class V>
void keys(V& v, ParallelJob& parallel) {
    v.key("pipeline_stages", parallel.pipeline_stages, "of one pipeline; `auto`: all ranks",
          {.range = at_least(1)});
    v.own("deployment", parallel, deployment_key,
          "`pipeline`: one, as above; `auto`: what is found to be fastest; or replicas and how "
          "they are cut over ranks: `[{tp: 2, pp: 2}]`; without the key `auto` where that gains "
          "3% on GPUs",
          {.usual = "auto",
           .written = !parallel.deployment_open || !parallel.deployment.empty(),
           .inside = "parallel.deployment[0]"});
    v.key("microbatch_tokens", parallel.microbatch_tokens,
          "tokens of a microbatch; `auto`: the fastest that fits", {.range = at_least(1)});
    recompute_key(v, parallel,
                  "`auto`, `none`, `layer` (keep only the layers' inputs), `{layers: N}` (of N "
                  "layers of each rank); auto: where memory is short, of as few layers as it asks",
                  {.inside = "parallel.recompute"});
    v.key(
        "offload",
        WordOrNumber{parallel.offload.kind, Offload::Kind::some, parallel.offload.layers, "layers",
                     "layers of each rank whose activations go to the host, spread evenly",
                     "give the layers of each rank whose activations go to the host"},
        offload_words,
        "of the layers that `recompute` is of, whose activations go to pinned host memory and "
        "back instead: `none`, `{layers: N}` (at most N of each rank), `auto`: on GPUs with a "
        "known link as many as are fastest by costs, else none",
        {.inside = "parallel.offload"});
    v.key("dispatch", parallel.dispatch, dispatch_words,
          "samples to replicas: `balanced` (all end together), `length` (each to the kind that "
          "takes the fewest GPU-seconds for it), `uniform` (as many to each)");
    v.key(
        "assignment", parallel.assignment, assignment_words,
        "`joint`: every adapter trains on all ranks; `each`: on one worker, cut as "
        "pipeline_stages or deployment say, else one rank; `auto`: so too, cut by simulation; "
        "`plora`: as `each`, in the packed jobs of PLoRA; without this key and those `auto` where "
        "that gains 3% on GPUs",
        {.usual = "auto", .written = !parallel.assignment_open});
    v.key("redeploy", parallel.redeploy, redeploy_words,
          "`auto`: where `deployment: auto` finds a faster one for what is left, as adapters end "
          "or come, and that pays, the run goes on in it; `never`");
}

template <class V>
void keys(V& v, LinkJob& link) {
    v.key("gigabytes_per_second", link.gigabytes_per_second,
          "from one rank to another, 10^9 bytes each", {.range = above(0.0), .usual = "built in"});
    v.key("microseconds", link.microseconds, "latency of a message", {.usual = "built in"});
}

template <class V>
void keys(V& v, ClusterJob& cluster) {
    v.section("between_hosts", cluster.between_hosts,
              "what messages between ranks of two hosts take; a run on several measures it, for "
              "its predictions",
              {.usual = "built in", .inside = "cluster.between_hosts"});
}

template <class V>
void keys(V& v, ScheduleJob& schedule) {
    v.key("policy", schedule.policy, schedule_policy_words,
          "`sequential`, `1f1b`, `mlora`, `balanced`");
    v.key("packing", schedule.packing, packing_words,
          "how microbatches are filled: `milp`, `greedy`, `bucketed`");
    v.key("max_adapters", schedule.max_adapters,
          "adapters that train at the same time; `auto`: what memory allows",
          {.range = at_least(1)});
    v.key("solver_seconds", schedule.solver_seconds, "limit of one MILP; greedy packing stands in",
          {.range = above(0.0)});
    v.key("costs", schedule.costs, cost_source_words,
          "`auto`: measured on this hardware; `built-in`");
}

template <class V>
void keys(V& v, DataFile& file) {
    v.path("path", file.path, "as above", {.required = "give a .jsonl or .h5 file"});
    v.key("name", file.name, "in metrics", {.usual = "of the path"});
    v.key("weight", file.weight,
          "how often an epoch has its samples: 2 = twice each, 0.25 = a quarter of them, in the "
          "next epoch the next quarter",
          {.range = above(0.0)});
}

template <class V>
void keys(V& v, DatasetJob& dataset) {
    v.own("path", dataset, train_files_key, "`.jsonl` or `.h5`; a list of several is mixed",
          {.usual = "required"});
    v.own("files", dataset, OwnKey<DatasetJob, DataFile>{},
          "in place of `path` a list, as in [{path: a.jsonl, weight: 2}, b.jsonl]; metrics have "
          "their losses as loss/NAME and eval_loss/NAME",
          {.usual = "none", .inside = "datasets.NAME.files[0]"});
    v.own("eval_path", dataset, eval_files_key, "data for evaluation, or a list of files",
          {.usual = "none"});
    v.key("tokenizer", dataset.tokenizer, tokenizer_words,
          "`none`: tokens; `bytes`: text for a byte-level model");
    v.key("max_seq_len", dataset.max_seq_len, "tokens of the longest sample",
          {.range = at_least(1)});
    v.key("over_length", dataset.over_length, over_length_words,
          "longer samples: `error`, `truncate`, `drop`");
    v.key("shuffle", dataset.shuffle, "a new order in every epoch");
    v.key("kl_batch_size", dataset.kl_batch_size,
          "of `kto`: neighbours whose completions are swapped to estimate KL, TRL's "
          "per_device_train_batch_size",
          {.range = at_least(2), .written = dataset.kl_batch_size != usual_kl_batch_size});
    v.key("eval_split", dataset.eval_split,
          "samples held out for evaluation: 200, or a fraction as 0.05", {.usual = "`eval.split`"});
}

template <class V>
void keys(V& v, CheckpointJob& checkpoint) {
    v.key("every_steps", checkpoint.every_steps, "0 = not by steps");
    v.key("every_minutes", checkpoint.every_minutes, "0 = not by time");
    v.key("keep", checkpoint.keep, "the newest so many", {.range = at_least(1)});
}

template <class V>
void keys(V& v, GenerateJob& generate) {
    constexpr int most_new_tokens = 1'000'000;
    v.key("samples", generate.samples,
          "prompts of the evaluation data, from its first on, that a text is written behind",
          {.range = at_least(1), .required = "as in generate: {samples: 64, max_new_tokens: 256}"});
    v.key("max_new_tokens", generate.max_new_tokens,
          "where a text ends that has come to no stop token",
          {.range = from_to(1, most_new_tokens)});
    v.own("stop_tokens", generate, stop_tokens_key,
          "ids that end a text beside the `eos_token_id` of the base", {.usual = "none"});
}

template <class V>
void keys(V& v, EvalJob& eval) {
    v.key("every_steps", eval.every_steps, "0 = only before the first and after the last step");
    v.key("keep_best", eval.keep_best, "export the state of lowest eval loss as `best/` too");
    v.key("early_stopping_patience", eval.early_stopping_patience,
          "evaluations without improvement that end an adapter; 0 = none do");
    v.key("early_stopping_threshold", eval.early_stopping_threshold,
          "a smaller decrease is no improvement");
    v.key("split", eval.split, "`eval_split` of datasets without that and without `eval_path`",
          {.usual = "none"});
    v.section("generate", eval.generate, "texts that adapters write when they end: below",
              {.usual = "none", .written = eval.generate.wanted(), .inside = "eval.generate"});
}

template <class V>
void keys(V& v, ExportJob& exports) {
    v.key("scaling", exports.scaling, export_scaling_words,
          "`peft`: use_rslora, ranks and alphas as in the job; `plain`: all in lora_alpha, r and "
          "B, for programs that know no more (not VeRA)");
    v.key("dtype", exports.dtype, export_dtype_words,
          "of the tensors: `fp32`, or `bf16` for half the size");
    v.key("tokenizer", exports.tokenizer,
          "with the tokenizer files and chat template of the base's folder, where that is here");
}

template <class V>
void keys(V& v, LoggingJob& logging) {
    v.key("every_steps", logging.every_steps, "steps from one progress line to the next",
          {.range = at_least(1)});
    v.key("live", logging.live, live_table_words,
          "`auto`: on a terminal a table drawn in place; `never`");
    v.key("tensorboard", logging.tensorboard, "event files in `<run.dir>/tensorboard`");
    v.key("trace", logging.trace, "`<run.dir>/trace.json`: what every rank did when");
}

/// Of a key in a sweep's space.
template <class V>
void keys(V& v, SweepRange& range) {
    v.key("min", range.min, "of a range, for `method: random`",
          {.range = any_number, .required = "give the smallest value"});
    v.key("max", range.max, "of a range",
          {.range = any_number, .required = "give the largest value"});
    v.key("scale", range.logarithm, range_scale_words, "of a range: `linear`, `log`");
    v.mention("times_r", "values as multiples of the trial's r", {.usual = "none"});
}

/// Those that make trials; the resolved job has these in their place.
template <class V>
void keys(V& v, SweepSpace& space) {
    v.key("method", space.method, sweep_method_words,
          "`grid`: every combination; `random`; `list`");
    v.own("space", space, OwnKey<SweepSpace, SweepRange>{},
          "keys of an adapter with lists of values, `{min, max, scale}` or `{times_r: [...]}`; "
          "`together`: a list of what goes together",
          {.usual = "required, but with list", .inside = "sweep.space.KEY"});
    v.mention("configurations", "random: how many; list: the trials, each as its keys",
              {.usual = "none"});
    v.key("name", space.name, "what the names of trials begin with", {.usual = "none"});
    v.key("seed", space.seed, "of random draws", {.usual = "`run.seed`"});
    v.own("shard", space, shard_key,
          "`0/4`: the first of four parts of the trials, for arrays of jobs", {.usual = "none"});
}

template <class V>
void keys(V& v, SweepJob& sweep) {
    constexpr int most_rungs = 30;  // beyond these all but the last are at the first step
    constexpr int most_reduction = 1000;
    v.key("objective", sweep.objective, sweep_objective_words,
          "`eval_loss`, `exact_match`: what trials of one dataset are ranked by");
    v.key("top_k", sweep.top_k, "places shown, and kept with `export: best`",
          {.range = at_least(1), .resume = Resume::allowed});
    v.key("export", sweep.exports, sweep_export_words,
          "`best`: the best `top_k` of each dataset; `all`; `none`", {.resume = Resume::allowed});
    v.key("reference", sweep.reference, "adapter that the best is compared with",
          {.usual = "none"});
    v.key("scheduler", sweep.scheduler, trial_scheduler_words,
          "what ends trials early: `none`, `halving`, `asha`, `median`");
    v.key("rungs", sweep.rungs, "evaluations that decide it, each trial's end included",
          {.range = from_to(1, most_rungs)});
    v.key("reduction_factor", sweep.reduction_factor,
          "from one rung to the next: one of so many goes on",
          {.range = from_to(2, most_reduction)});
    v.key("rung_eval_samples", sweep.rung_eval_samples, "at rungs before the end; 0 = all");
    v.key("speculate", sweep.speculate, speculation_words,
          "halving: trials at a rung train on: `auto`, where it costs little; `always`; `never`",
          {.resume = Resume::allowed});
    v.key("budget_hours", sweep.budget_hours, "of training, that end the sweep; 0 = no limit",
          {.resume = Resume::allowed});
    v.key("wait_minutes", sweep.wait_minutes,
          "for more trials through the inbox, when none is left", {.resume = Resume::allowed});
}

/// Of the top level. What a section says of resuming holds for all of its keys.
template <class V>
void keys(V& v, Job& job) {
    SweepJob sweep = job.sweep.value_or(SweepJob{});
    v.section("model", job.model, "the base model");
    v.section("run", job.run, "where the run lives");
    v.section("parallel", job.parallel, "how the model is laid over ranks",
              {.resume = Resume::allowed});
    v.section("cluster", job.cluster, "the machine, for plans",
              {.written = job.cluster.any(), .resume = Resume::allowed});
    v.section("schedule", job.schedule, "how work is planned", {.resume = Resume::allowed});
    v.section("datasets", job.datasets, "name: dataset", {.inside = dataset_section});
    v.mention("defaults", "keys that all adapters share");
    v.section("adapters", job.adapters, "the list of adapters", {.inside = adapter_section});
    v.section("checkpoint", job.checkpoint, "when the run is saved", {.resume = Resume::allowed});
    v.section("eval", job.eval, "when adapters are evaluated", {.resume = Resume::allowed});
    v.section("export", job.exports, "how adapters are written", {.resume = Resume::allowed});
    v.section("logging", job.logging, "what is reported", {.resume = Resume::allowed});
    v.section("sweep", sweep, "adapters made of a space of keys, which compete",
              {.written = job.sweep.has_value()});
}

}  // namespace loratrain
