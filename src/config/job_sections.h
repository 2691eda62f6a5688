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

/// The sections of a job and their keys, in the form of adapter_keys.h.

template <class V>
void keys(V& v, ModelJob& model) {
    Residency& residency = model.residency;
    v.path(
        "weights", model.weights,
        "HDF5 file made by `loratrain import-hf`; `synthetic` or `config` may stand in its place",
        {.usual = "required", .written = !model.has_random_weights()});
    v.key("synthetic", model.synthetic,
          "in place of `weights`: random weights of a preset such as `llama-3.1-8b`, to measure "
          "speed; `-nf4`, `-int8` or `-fp8` after the name quantises them",
          {.usual = "none", .written = !model.synthetic.empty()});
    v.path(
        "config", model.config,
        "in place of `weights`, for `--dry-run` alone: config.json of Hugging Face, or its folder",
        {.usual = "none", .written = !model.config.empty()});
    v.key("precision", model.precision, precision_words,
          "`fp32`; `bf16`; `auto`: bf16 on GPUs, fp32 on CPUs; `fp8`: linear layers in 8 bits, a "
          "faster approximation, on Hopper GPUs and later");
    v.key("residency",
          WordOrNumber{residency.kind, Residency::Kind::some, residency.layers, "resident_layers",
                       "layers that stay on each rank, spread evenly",
                       "give the layers that stay on each rank"},
          residency_words,
          "layers whose frozen weights stay in a rank's memory; a rank reads other layers from "
          "host memory at each use. `all`; `stream`: none; `{resident_layers: N}`: N of each rank; "
          "`auto`: as many as fit; `shared`: each layer lies on one of the equal replicas of a "
          "host, and the others read it over NVLink",
          {.resume = Resume::allowed, .inside = "model.residency"});
    v.key("base_model_name_or_path", model.base_model_name_or_path,
          "name of the base in exported adapters",
          {.usual = "as imported", .resume = Resume::allowed});
}

template <class V>
void keys(V& v, RunJob& run) {
    v.path("dir", run.dir, "folder of everything that the run writes",
           {.required = "give the folder for results, as in run: {dir: runs/first}",
            .resume = Resume::allowed});
    v.key("seed", run.seed, "seed of adapters that have none, and of eval splits");
    v.key("backend", run.backend, backend_words,
          "device of the run: `cpu`; `cuda`; `auto`: GPUs if every rank sees one, else CPUs",
          {.resume = Resume::same_backend});
    v.key("max_hours", run.max_hours,
          "hours from each start within which the run stops cleanly (exit code 75); the same "
          "command continues it; 0 = no limit",
          {.resume = Resume::allowed});
    v.key("peer_timeout", run.peer_timeout,
          "seconds without a heartbeat of a rank after which the job ends; 0 = never",
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
    v.key("tp", replica.tensor, "ranks that share a stage (tensor parallelism)",
          {.range = at_least(1)});
    v.key("pp", replica.stages, "stages (pipeline parallelism)", {.range = at_least(1)});
    v.key("count", replica.count, "number of such replicas", {.range = at_least(1)});
    v.key("microbatch_tokens", replica.microbatch_tokens,
          "most tokens of a microbatch, and of a sample, on these replicas; `auto`: as "
          "parallel.microbatch_tokens",
          {.range = at_least(1)});
    recompute_key(v, replica, "recomputation on these replicas; `auto`: as parallel.recompute", {});
}

template <class V>
void keys(V& v, ParallelJob& parallel) {
    v.key("pipeline_stages", parallel.pipeline_stages,
          "stages of a single pipeline; `auto`: as many as ranks", {.range = at_least(1)});
    v.own("deployment", parallel, deployment_key,
          "how ranks share the model: `pipeline`: one pipeline; a list of replicas, as in "
          "`[{tp: 2, pp: 2}, {count: 4}]`; `auto`: the fastest by simulation. Without the key "
          "loratrain takes `pipeline`, or on GPUs what `auto` finds if it is faster (planning.md)",
          {.usual = "none",
           .written = !parallel.deployment_open || !parallel.deployment.empty(),
           .inside = "parallel.deployment[0]"});
    v.key("microbatch_tokens", parallel.microbatch_tokens,
          "most tokens of a microbatch; `auto`: the fastest size that fits",
          {.range = at_least(1)});
    recompute_key(
        v, parallel,
        "layers whose activations are computed again in the backward pass, from the layer's "
        "input: `none`; `layer`: all layers; `{layers: N}`: N layers of each rank; `auto`: as few "
        "layers as memory allows",
        {.inside = "parallel.recompute"});
    v.key(
        "offload",
        WordOrNumber{parallel.offload.kind, Offload::Kind::some, parallel.offload.layers, "layers",
                     "layers of each rank whose activations go to the host, spread evenly",
                     "give the layers of each rank whose activations go to the host"},
        offload_words,
        "which of the layers of `recompute` move their activations to pinned host memory, in place "
        "of computing them again: `none`; `{layers: N}`: at most N of each rank; "
        "`auto`: the fastest number, on GPUs whose link to the host is known",
        {.inside = "parallel.offload"});
    v.key("experts", parallel.experts, expert_cut_words,
          "how the `tp` ranks of a stage share a mixture of experts: `columns`: each has a part of "
          "every expert; `whole`: each has some whole ones, and computes what tokens choose of "
          "these");
    v.key("dispatch", parallel.dispatch, dispatch_words,
          "how samples are distributed to replicas: `balanced`: all end together; `length`: each "
          "sample goes to the kind of replica that needs the fewest GPU-seconds; `uniform`: all "
          "get equal numbers");
    v.key("assignment", parallel.assignment, assignment_words,
          "where an adapter trains: `joint`: on all ranks; `each`: on one worker, of one rank or "
          "of as many as pipeline_stages or deployment say; `auto`: on one worker, whose size "
          "simulation chooses; `plora`: on one worker, in PLoRA's packed jobs. Without the key "
          "loratrain takes `joint`, or on GPUs `auto` if it is faster (planning.md)",
          {.usual = "none", .written = !parallel.assignment_open});
    v.key(
        "redeploy", parallel.redeploy, redeploy_words,
        "what happens to the deployment when adapters end or are added. `never`: the run keeps it; "
        "`auto`: the run moves to a faster one, if loratrain chose the first one and the move "
        "saves enough time (planning.md)");
}

template <class V>
void keys(V& v, LinkJob& link) {
    v.key("gigabytes_per_second", link.gigabytes_per_second,
          "rate from one rank to another, in 10^9 bytes per second",
          {.range = above(0.0), .usual = "built in"});
    v.key("microseconds", link.microseconds, "latency of a message", {.usual = "built in"});
}

template <class V>
void keys(V& v, ClusterJob& cluster) {
    v.section(
        "between_hosts", cluster.between_hosts,
        "speed of the network between hosts, for predictions until a run has measured it, as in "
        "`{gigabytes_per_second: 20, microseconds: 10}`",
        {.usual = "built in", .inside = "cluster.between_hosts"});
}

template <class V>
void keys(V& v, ScheduleJob& schedule) {
    v.key("policy", schedule.policy, schedule_policy_words,
          "order of work: `balanced`: adapters share microbatches; `mlora`: adapters take turns; "
          "`sequential`, `1f1b`: one adapter after another");
    v.key("packing", schedule.packing, packing_words,
          "how `balanced` fills microbatches: `greedy`; `milp`: improves that by small changes and "
          "an integer program; "
          "`bucketed`: pads samples to a few lengths");
    v.key("max_adapters", schedule.max_adapters,
          "most adapters that train at the same time; `auto`: as many as memory allows",
          {.range = at_least(1)});
    v.key("solver_seconds", schedule.solver_seconds,
          "seconds that one integer program of `packing: milp` may take; then the best packing so "
          "far "
          "is used",
          {.range = above(0.0)});
    v.key("costs", schedule.costs, cost_source_words,
          "costs that plans are made with: `built-in`: tables of the program; `auto`: measured on "
          "this hardware, but built-in with tp or replicas");
}

template <class V>
void keys(V& v, DataFile& file) {
    v.path("path", file.path, "`.jsonl` or `.h5`", {.required = "give a .jsonl or .h5 file"});
    v.key("name", file.name, "name in metrics", {.usual = "the file's name"});
    v.key("weight", file.weight,
          "how many times an epoch has each sample of the file: 2 = twice; 0.25 = a quarter of the "
          "samples, and another quarter in the next epoch",
          {.range = above(0.0)});
}

template <class V>
void keys(V& v, DatasetJob& dataset) {
    v.own("path", dataset, train_files_key,
          "`.jsonl` or `.h5` file; a list of files that are mixed; or a folder into which "
          "rollouts come while the job runs, such as `rollouts/`",
          {.usual = "required"});
    v.own("files", dataset, OwnKey<DatasetJob, DataFile>{},
          "in place of `path`: a list of files, as in `[{path: a.jsonl, weight: 2}, b.jsonl]`. "
          "Metrics then also have the loss of each file: loss/NAME and eval_loss/NAME",
          {.usual = "none", .inside = "datasets.NAME.files[0]"});
    v.own("eval_path", dataset, eval_files_key, "file to evaluate on, or a list of files",
          {.usual = "none"});
    v.key("tokenizer", dataset.tokenizer, tokenizer_words,
          "`none`: the file has tokens; `bytes`: it has text, for a byte-level model");
    v.key("max_seq_len", dataset.max_seq_len, "most tokens of a sample", {.range = at_least(1)});
    v.key("over_length", dataset.over_length, over_length_words,
          "what to do with longer samples: `error`, `truncate`, `drop`");
    v.key("shuffle", dataset.shuffle, "each epoch has a new order");
    v.key("kl_batch_size", dataset.kl_batch_size,
          "for `kto`: samples in a row that form a group; TRL's per_device_train_batch_size. KL is "
          "estimated by scoring each prompt of a group also with the completion before it",
          {.range = at_least(2), .written = dataset.kl_batch_size != usual_kl_batch_size});
    v.key("eval_split", dataset.eval_split,
          "samples held out for evaluation: a number such as 200, or a share such as 0.05",
          {.usual = "`eval.split`"});
}

template <class V>
void keys(V& v, CheckpointJob& checkpoint) {
    v.key("every_steps", checkpoint.every_steps, "rounds between checkpoints; 0 = not by rounds");
    v.key("every_minutes", checkpoint.every_minutes,
          "minutes between checkpoints; 0 = not by time");
    v.key("keep", checkpoint.keep, "number of newest checkpoints that are kept",
          {.range = at_least(1)});
}

template <class V>
void keys(V& v, GenerateJob& generate) {
    v.key("samples", generate.samples,
          "number of evaluation prompts that the adapter answers, from the first on",
          {.range = at_least(1), .required = "as in generate: {samples: 64, max_new_tokens: 256}"});
    v.key("max_new_tokens", generate.max_new_tokens, "most tokens of a generation",
          {.range = from_to(1, most_new_tokens)});
    v.own("stop_tokens", generate, stop_tokens_key,
          "token ids that end a generation, in addition to the base's `eos_token_id`, as in `[2, "
          "32000]`",
          {.usual = "none"});
}

template <class V>
void keys(V& v, EvalJob& eval) {
    v.key("every_steps", eval.every_steps,
          "rounds between evaluations; 0 = only before the first and after the last step");
    v.key("keep_best", eval.keep_best, "also export the state of lowest eval loss, as `best/`");
    v.key("early_stopping_patience", eval.early_stopping_patience,
          "evaluations without improvement after which an adapter ends; 0 = never");
    v.key("early_stopping_threshold", eval.early_stopping_threshold,
          "the eval loss has to fall by more than this to count as an improvement");
    v.key("split", eval.split,
          "`eval_split` for datasets that have neither `eval_split` nor `eval_path`",
          {.usual = "none"});
    v.section("generate", eval.generate,
              "generations of each adapter when it ends, as in `{samples: 64}`: the section "
              "eval.generate",
              {.usual = "none", .written = eval.generate.wanted(), .inside = "eval.generate"});
}

template <class V>
void keys(V& v, ExportJob& exports) {
    v.key("scaling", exports.scaling, export_scaling_words,
          "`peft`: adapter_config.json has use_rslora, ranks and alphas as in the job; `plain`: it "
          "has one r and one lora_alpha for all modules, and B contains the rest of the scaling. "
          "Some programs read only `plain`. Not for VeRA");
    v.key("dtype", exports.dtype, export_dtype_words,
          "type of exported tensors: `fp32`, or `bf16` for half the size");
    v.key("tokenizer", exports.tokenizer,
          "also export the tokenizer files and chat template of the base's folder, if that is on "
          "this machine");
    v.key("every_steps", exports.every_steps,
          "steps between two exports of an adapter or trial to `exports/NAME/step-N`; 0 = no such "
          "exports");
    v.key("keep", exports.keep, "number of newest `exports/NAME/step-N` that are kept",
          {.range = at_least(1)});
}

template <class V>
void keys(V& v, LoggingJob& logging) {
    v.key("every_steps", logging.every_steps, "rounds between progress lines",
          {.range = at_least(1)});
    v.key("live", logging.live, live_table_words,
          "`auto`: a terminal shows a table that is updated in place; `never`");
    v.key("tensorboard", logging.tensorboard, "write event files to `<run.dir>/tensorboard`");
    v.key("trace", logging.trace, "write `<run.dir>/trace.json`: what every rank did when");
}

/// A range of values for a key in a sweep's space.
template <class V>
void keys(V& v, SweepRange& range) {
    v.key("min", range.min,
          "smallest value of a range, as in `learning_rate: {min: 1.0e-5, max: 1.0e-3, scale: "
          "log}`; for `method: random`",
          {.range = any_number, .required = "give the smallest value"});
    v.key("max", range.max, "largest value of a range",
          {.range = any_number, .required = "give the largest value"});
    v.key(
        "scale", range.logarithm, range_scale_words,
        "how values of a range are drawn: evenly (`linear`), or evenly in their logarithm (`log`)");
    v.mention("times_r",
              "values as multiples of the trial's r, as in `lora_alpha: {times_r: [1, 2]}`",
              {.usual = "none"});
}

/// Keys that make trials; the resolved job has the trials instead.
template <class V>
void keys(V& v, SweepSpace& space) {
    v.key("method", space.method, sweep_method_words,
          "which trials there are: `grid`: every combination of the space; `random`: some drawn at "
          "random; `list`: those of configurations");
    v.own(
        "space", space, OwnKey<SweepSpace, SweepRange>{},
        "keys of an adapter that vary. A key has a list of values, as in `{r: [8, 16]}`, or a "
        "range, or multiples of r (the section sweep.space.KEY). Keys that change together stand "
        "under `together`, as in `{together: [{r: 8, lora_alpha: 16}, {r: 32, lora_alpha: 32}]}`: "
        "a trial takes one of these mappings",
        {.usual = "required, except with method: list", .inside = "sweep.space.KEY"});
    v.mention("configurations",
              "with `method: random` the number of trials; with `method: list` the trials, as in "
              "`[{r: 8}, {r: 16}]`",
              {.usual = "none"});
    v.key("name", space.name, "prefix of the names of trials", {.usual = "none"});
    v.key("seed", space.seed, "seed of random draws", {.usual = "`run.seed`"});
    v.own("shard", space, shard_key,
          "part of the trials for one job of an array: `0/4` is the first of four",
          {.usual = "none"});
}

template <class V>
void keys(V& v, SweepJob& sweep) {
    constexpr int most_rungs = 30;  // beyond these all but the last are at the first step
    constexpr int most_reduction = 1000;
    v.key("objective", sweep.objective, sweep_objective_words,
          "what ranks the trials of a dataset: `eval_loss`; `exact_match`, for losses of pairs "
          "the reward accuracy");
    v.key("top_k", sweep.top_k, "trials that are shown, and exported with `export: best`",
          {.range = at_least(1), .resume = Resume::allowed});
    v.key("export", sweep.exports, sweep_export_words,
          "trials that are exported: `best`: the best `top_k` of each dataset; `all`; `none`",
          {.resume = Resume::allowed});
    v.key("reference", sweep.reference, "name of an adapter that the best trial is compared with",
          {.usual = "none"});
    v.key("scheduler", sweep.scheduler, trial_scheduler_words,
          "what ends trials early: `none`, `halving`, `asha`, `median`");
    v.key("rungs", sweep.rungs,
          "number of steps at which trials are compared; the last one is the end of a trial",
          {.range = from_to(1, most_rungs)});
    v.key("reduction_factor", sweep.reduction_factor,
          "trials at a rung for each one that goes on: 3 = the best third goes on",
          {.range = from_to(2, most_reduction)});
    v.key("rung_eval_samples", sweep.rung_eval_samples,
          "evaluation samples used at rungs before the last; 0 = all");
    v.key("speculate", sweep.speculate, speculation_words,
          "whether trials that wait at a rung of `halving` train on: `always`; `never`; `auto`: if "
          "that costs other trials little",
          {.resume = Resume::allowed});
    v.key("budget_hours", sweep.budget_hours,
          "hours of training after which the sweep ends; 0 = no limit",
          {.resume = Resume::allowed});
    v.key("wait_minutes", sweep.wait_minutes,
          "minutes that the job waits for more trials in the inbox after all trials have ended",
          {.resume = Resume::allowed});
}

/// Keys of the top level. KeyInfo::resume of a section holds for all of its keys.
template <class V>
void keys(V& v, Job& job) {
    SweepJob sweep = job.sweep.value_or(SweepJob{});
    v.section("model", job.model, "the base model");
    v.section("run", job.run, "where the run lives");
    v.section("parallel", job.parallel, "how ranks share the model", {.resume = Resume::allowed});
    v.section("cluster", job.cluster, "the machine, for plans",
              {.written = job.cluster.any(), .resume = Resume::allowed});
    v.section("schedule", job.schedule, "how work is planned", {.resume = Resume::allowed});
    v.section("datasets", job.datasets, "data, as in `{math: {path: math.jsonl}}`",
              {.inside = dataset_section});
    v.mention("defaults", "keys that all adapters share");
    v.section("adapters", job.adapters, "list of adapters, as in `[{name: a, r: 8}]`",
              {.inside = adapter_section});
    v.section("checkpoint", job.checkpoint, "when the run is saved", {.resume = Resume::allowed});
    v.section("eval", job.eval, "when adapters are evaluated", {.resume = Resume::allowed});
    v.section("export", job.exports, "how adapters are written", {.resume = Resume::allowed});
    v.section("logging", job.logging, "what is reported", {.resume = Resume::allowed});
    v.section("sweep", sweep, "adapters made from a space of keys; the best are kept",
              {.written = job.sweep.has_value()});
}

}  // namespace loratrain
