#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "base/text.h"
#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class JobWrite : public JobFiles {
  protected:
    /// Reads what to_yaml wrote, from another folder than the first job file.
    Job again(const Job& job) const { return read(to_yaml(job)); }
};

void expect_same(const AdapterJob& a, const AdapterJob& b) {
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dataset, b.dataset);
    EXPECT_EQ(a.r, b.r);
    EXPECT_EQ(a.lora_alpha, b.lora_alpha);
    EXPECT_EQ(a.lora_dropout, b.lora_dropout);
    EXPECT_EQ(a.targets, b.targets);
    EXPECT_EQ(a.use_rslora, b.use_rslora);
    EXPECT_EQ(a.init_from, b.init_from);
    EXPECT_TRUE(a.loss == b.loss);
    EXPECT_EQ(a.learning_rate, b.learning_rate);
    EXPECT_EQ(a.lr_scheduler_type, b.lr_scheduler_type);
    EXPECT_EQ(a.lr_scheduler_kwargs, b.lr_scheduler_kwargs);
    EXPECT_EQ(a.warmup_steps, b.warmup_steps);
    EXPECT_EQ(a.weight_decay, b.weight_decay);
    EXPECT_EQ(a.adam_beta1, b.adam_beta1);
    EXPECT_EQ(a.adam_beta2, b.adam_beta2);
    EXPECT_EQ(a.adam_epsilon, b.adam_epsilon);
    EXPECT_EQ(a.max_grad_norm, b.max_grad_norm);
    EXPECT_EQ(a.global_batch_size, b.global_batch_size);
    EXPECT_EQ(a.num_train_epochs, b.num_train_epochs);
    EXPECT_EQ(a.max_steps, b.max_steps);
    EXPECT_EQ(a.seed, b.seed);
    EXPECT_EQ(a.priority, b.priority);
}

void expect_same(const EvalSplit& a, const EvalSplit& b) {
    EXPECT_EQ(a.samples, b.samples);
    EXPECT_EQ(a.fraction, b.fraction);
}

void expect_same(const DatasetJob& a, const DatasetJob& b) {
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.eval_path, b.eval_path);
    expect_same(a.eval_split, b.eval_split);
    EXPECT_EQ(a.tokenizer, b.tokenizer);
    EXPECT_EQ(a.max_seq_len, b.max_seq_len);
    EXPECT_EQ(a.kl_batch_size, b.kl_batch_size);
    EXPECT_EQ(a.over_length, b.over_length);
    EXPECT_EQ(a.shuffle, b.shuffle);
}

void expect_same(const Job& a, const Job& b) {
    EXPECT_EQ(a.model.weights, b.model.weights);
    EXPECT_EQ(a.model.precision, b.model.precision);
    EXPECT_EQ(a.model.residency, b.model.residency);
    EXPECT_EQ(a.model.base_model_name_or_path, b.model.base_model_name_or_path);
    EXPECT_EQ(a.run.dir, b.run.dir);
    EXPECT_EQ(a.run.seed, b.run.seed);
    EXPECT_EQ(a.run.backend, b.run.backend);
    EXPECT_EQ(a.run.max_hours, b.run.max_hours);
    EXPECT_EQ(a.parallel.pipeline_stages, b.parallel.pipeline_stages);
    EXPECT_EQ(a.parallel.microbatch_tokens, b.parallel.microbatch_tokens);
    EXPECT_EQ(a.parallel.recompute, b.parallel.recompute);
    ASSERT_EQ(a.datasets.size(), b.datasets.size());
    for (std::size_t i = 0; i < a.datasets.size(); ++i) expect_same(a.datasets[i], b.datasets[i]);
    ASSERT_EQ(a.adapters.size(), b.adapters.size());
    for (std::size_t i = 0; i < a.adapters.size(); ++i) expect_same(a.adapters[i], b.adapters[i]);
    EXPECT_EQ(a.checkpoint.every_steps, b.checkpoint.every_steps);
    EXPECT_EQ(a.checkpoint.every_minutes, b.checkpoint.every_minutes);
    EXPECT_EQ(a.checkpoint.keep, b.checkpoint.keep);
    EXPECT_EQ(a.eval.every_steps, b.eval.every_steps);
    EXPECT_EQ(a.eval.keep_best, b.eval.keep_best);
    EXPECT_EQ(a.eval.early_stopping_patience, b.eval.early_stopping_patience);
    EXPECT_EQ(a.eval.early_stopping_threshold, b.eval.early_stopping_threshold);
    expect_same(a.eval.split, b.eval.split);
    EXPECT_EQ(a.eval.generate.samples, b.eval.generate.samples);
    EXPECT_EQ(a.eval.generate.max_new_tokens, b.eval.generate.max_new_tokens);
    EXPECT_EQ(a.eval.generate.stop_tokens, b.eval.generate.stop_tokens);
    EXPECT_EQ(a.logging.every_steps, b.logging.every_steps);
    EXPECT_EQ(a.logging.live, b.logging.live);
    EXPECT_EQ(a.logging.tensorboard, b.logging.tensorboard);
    EXPECT_EQ(a.logging.trace, b.logging.trace);
    EXPECT_EQ(a.schedule.policy, b.schedule.policy);
    EXPECT_EQ(a.schedule.packing, b.schedule.packing);
    EXPECT_EQ(a.schedule.max_adapters, b.schedule.max_adapters);
    EXPECT_EQ(a.schedule.solver_seconds, b.schedule.solver_seconds);
    EXPECT_EQ(a.schedule.costs, b.schedule.costs);
}

/// A job in which every field differs from its default.
Job unusual_job() {
    Job job;
    job.model = {.weights = "/w/base model.h5",
                 .precision = Precision::fp32,
                 .base_model_name_or_path = "org/model: the #1 \"best\""};
    job.run = {"/out/ü", 18446744073709551615ULL, BackendKind::cpu};
    job.parallel = {3, 1234567890, Recompute::layer, {}};
    DatasetJob odd{
        "null", "/d/a.jsonl", "/d/e.h5", Tokenizer::bytes, 77, OverLength::drop, false, 4, {}};
    job.datasets = {odd, odd};
    job.datasets[1].name = "org/data set: v1.0";
    job.datasets[1].over_length = OverLength::truncate;
    AdapterJob adapter;
    adapter.name = "null";
    adapter.dataset = DatasetId{1};
    adapter.r = 3;
    adapter.lora_alpha = 0.1;
    adapter.lora_dropout = 1.0 / 3.0;
    adapter.targets = {true, false, true, false, false, true, false};
    adapter.targets[static_cast<std::size_t>(Linear::shared_up)] = true;
    adapter.use_rslora = true;
    adapter.init_from = "/p/'quoted'";
    adapter.loss = {Loss::dpo, LossType::sigmoid, 0.3, 1.0 / 3.0};
    adapter.learning_rate = 2.0e-4 / 3.0;
    adapter.lr_scheduler_type = LrSchedule::constant_with_warmup;
    adapter.warmup_steps = 0.1;
    adapter.weight_decay = 5e-324;
    adapter.adam_beta1 = 0.1 + 0.2;
    adapter.adam_beta2 = 0.9999999999999999;
    adapter.adam_epsilon = 1e-30;
    adapter.max_grad_norm = std::numeric_limits<double>::max();
    adapter.global_batch_size = 1;
    adapter.num_train_epochs = 1e22;
    adapter.seed = 9007199254740993ULL;
    adapter.priority = std::numeric_limits<int>::min();
    job.adapters = {adapter, adapter};
    job.adapters[1].name = "1e5";
    job.adapters[1].num_train_epochs = 1.0;
    job.adapters[1].lr_scheduler_type = LrSchedule::warmup_stable_decay;
    LrSchedulerKwargs& kwargs = job.adapters[1].lr_scheduler_kwargs;
    kwargs.num_decay_steps = 7.0;
    kwargs.num_cycles = 1.0 / 3.0;
    kwargs.warmup_type = LrRamp::cosine;
    kwargs.decay_type = LrRamp::one_minus_sqrt;
    job.adapters[1].max_steps = 17;
    job.checkpoint = {0, 0.7, 1};
    job.datasets[1].eval_path = "";
    job.datasets[1].eval_split.fraction = 1e-3;
    job.eval = {13, true, 4, 0.125, {7, 0.0}, {64, 99, {2, 32000}}};
    job.logging = {14, LiveTable::never, true};
    return job;
}

TEST_F(JobWrite, MinimalJobComesBack) {
    const Job job = read(minimal_job);
    expect_same(again(job), job);
}

TEST_F(JobWrite, EveryFieldComesBackExactly) {
    const Job job = unusual_job();
    expect_same(again(job), job);
}

TEST_F(JobWrite, LossesComeBack) {
    for (const std::string loss :
         {"sft", "sft, label_smoothing_factor: 0.1, z_loss: 1.0e-4", "sft, loss_type: dft",
          "cpo, loss_type: hinge, cpo_alpha: 0.5", "simpo, simpo_gamma: 1.5, beta: 2.0",
          "orpo, beta: 0.3", "kto, undesirable_weight: 1.3", "dpo, label_smoothing: 0.2",
          "cit, temperature: 0.07, lambda: 2.5", "importance_sampling, loss_aggregation: sequence",
          "grpo, clip_high: 1.28, loss_aggregation: constant, max_completion_length: 99",
          "cispo, clip_low: 0, beta: 0.04", "dro, max_staleness: 3", "ppo, clip_low: 0.7"}) {
        Job job = read(minimal_job + "defaults: {loss: " + loss + "}\n");
        const std::string text = to_yaml(job);
        EXPECT_EQ(to_yaml(read(text)), text);
        LossJob& written = job.adapters[0].loss;
        if (written.has_cpo_alpha()) written.cpo_alpha = written.nll_weight();
        if (written.has_beta()) written.beta = written.beta_or_usual();
        EXPECT_TRUE(read(text).adapters[0].loss == written) << loss;
    }
}

TEST_F(JobWrite, IsAFixedPoint) {
    const std::string text = to_yaml(unusual_job());
    EXPECT_EQ(to_yaml(read(text)), text);
}

TEST_F(JobWrite, AnyDoubleComesBackExactly) {
    Job job = read(minimal_job);
    for (std::uint32_t i = 0; i < 300; ++i) {
        const auto words = philox4x32({i, 0, 0, 0}, 5);
        const double mantissa = 1.0 + words[0] * 0x1p-32 + words[1] * 0x1p-52;
        job.adapters[0].learning_rate =
            std::ldexp(mantissa, static_cast<int>(words[2] % 600) - 300);
        ASSERT_EQ(again(job).adapters[0].learning_rate, job.adapters[0].learning_rate);
    }
}

/// What a job leaves open is not there until it is settled, and stays open.
TEST_F(JobWrite, WhatIsOpenStaysOpen) {
    Job job = read(minimal_job);
    EXPECT_TRUE(job.parallel.deployment_open && job.parallel.assignment_open);
    for (const char* key : {"deployment:", "assignment:"}) {
        EXPECT_EQ(to_yaml(job).find(key), std::string::npos);
    }
    EXPECT_TRUE(again(job).parallel.deployment_open && again(job).parallel.assignment_open);
    job.parallel.deployment_open = job.parallel.assignment_open = false;
    EXPECT_NE(to_yaml(job).find("deployment: pipeline"), std::string::npos);
    EXPECT_NE(to_yaml(job).find("assignment: joint"), std::string::npos);
    for (const char* given :
         {"deployment: pipeline", "deployment: auto", "pipeline_stages: 2", "assignment: each"}) {
        const ParallelJob parallel = read(cat(minimal_job, "parallel: {", given, "}\n")).parallel;
        EXPECT_FALSE(parallel.deployment_open || parallel.assignment_open) << given;
    }
    const ParallelJob joint = read(minimal_job + "parallel: {assignment: joint}\n").parallel;
    EXPECT_TRUE(joint.deployment_open && !joint.assignment_open);
}

TEST_F(JobWrite, LinksBetweenHosts) {
    EXPECT_EQ(to_yaml(read(minimal_job)).find("cluster:"), std::string::npos);
    const Job job = read(minimal_job + "cluster: {between_hosts: {gigabytes_per_second: 12.5}}\n");
    EXPECT_EQ(job.cluster.between_hosts.gigabytes_per_second, 12.5);
    EXPECT_FALSE(job.cluster.between_hosts.microseconds);
    EXPECT_EQ(again(job).cluster.between_hosts.gigabytes_per_second, 12.5);
    EXPECT_EQ(to_yaml(again(job)), to_yaml(job));
}

/// What is found for it is the plan's, not the job's.
TEST_F(JobWrite, AutoDeploymentsStayAuto) {
    Job job = read(minimal_job + "parallel: {deployment: auto, dispatch: length}\n");
    EXPECT_TRUE(job.parallel.find_deployment);
    EXPECT_TRUE(job.parallel.deployment.empty());
    job.parallel.deployment = {{2, 1, 1, {}}};
    EXPECT_NE(to_yaml(job).find("deployment: auto"), std::string::npos);
    const Job same = again(job);
    EXPECT_TRUE(same.parallel.find_deployment);
    EXPECT_EQ(same.parallel.dispatch, DispatchRule::length);
    for (const std::string text : {"", "parallel: {deployment: pipeline}\n"}) {
        EXPECT_FALSE(read(minimal_job + text).parallel.find_deployment);
        EXPECT_TRUE(read(minimal_job + text).parallel.deployment.empty());
    }
}

TEST_F(JobWrite, Deployments) {
    Job job = read(minimal_job);
    job.parallel.deployment = {{4, 2, 1, {}}, {1, 1, 3, 512, Recompute::layer}};
    job.parallel.redeploy = Redeploy::never;
    EXPECT_NE(
        to_yaml(job).find(
            "deployment: [{tp: 4, pp: 2, count: 1, microbatch_tokens: auto, recompute: auto}, "
            "{tp: 1, pp: 1, count: 3, microbatch_tokens: 512, recompute: layer}]"),
        std::string::npos)
        << to_yaml(job);
    const Job same = again(job);
    ASSERT_EQ(same.parallel.deployment.size(), 2U);
    EXPECT_EQ(same.parallel.deployment[0].tensor, 4);
    EXPECT_EQ(same.parallel.deployment[0].stages, 2);
    EXPECT_EQ(same.parallel.deployment[0].microbatch_tokens, std::nullopt);
    EXPECT_EQ(same.parallel.deployment[1].count, 3);
    EXPECT_EQ(same.parallel.deployment[1].microbatch_tokens, 512);
    EXPECT_EQ(same.parallel.deployment[0].recompute, Recompute::automatic);
    EXPECT_EQ(same.parallel.deployment[1].recompute, Recompute::layer);
    EXPECT_EQ(same.parallel.redeploy, Redeploy::never);
}

TEST_F(JobWrite, RecomputedLayers) {
    Job job = read(minimal_job);
    job.parallel.recompute = Recompute::layer;
    job.parallel.recomputed_layers = 12;
    EXPECT_NE(to_yaml(job).find("recompute: {layers: 12}"), std::string::npos);
    EXPECT_EQ(again(job).parallel.recomputed_layers, 12);
    job.parallel.recomputed_layers.reset();
    job.parallel.offload = {Offload::Kind::some, 5};
    EXPECT_NE(to_yaml(job).find("offload: {layers: 5}"), std::string::npos);
    EXPECT_EQ(again(job).parallel.offload, job.parallel.offload);
    job.parallel.offload.kind = Offload::Kind::automatic;
    EXPECT_NE(to_yaml(job).find("offload: auto"), std::string::npos);
    job.parallel.offload = {};
    EXPECT_NE(to_yaml(job).find("recompute: layer\n"), std::string::npos);
}

TEST_F(JobWrite, Residency) {
    Job job = read(minimal_job);
    job.model.residency = {Residency::Kind::some, 12};
    EXPECT_NE(to_yaml(job).find("residency: {resident_layers: 12}"), std::string::npos);
    EXPECT_EQ(again(job).model.residency, job.model.residency);
    job.model.residency = {Residency::Kind::stream, 0};
    EXPECT_EQ(again(job).model.residency, job.model.residency);
}

TEST_F(JobWrite, RelativePathsAreWrittenAbsolute) {
    Job job = read(minimal_job);
    job.model.weights = "base.h5";
    EXPECT_EQ(again(job).model.weights, (std::filesystem::current_path() / "base.h5").string());
}

TEST_F(JobWrite, DefaultsAreMergedAndEveryKeyIsWritten) {
    const std::string text = to_yaml(read(minimal_job + "defaults: {r: 5}\n"));
    EXPECT_EQ(text.find("defaults"), std::string::npos);
    for (const std::string key : {"weights: ",
                                  "precision: auto",
                                  "residency: auto",
                                  "base_model_name_or_path: ",
                                  "dir: ",
                                  "seed: 42",
                                  "backend: auto",
                                  "max_hours: 0",
                                  "peer_timeout: 30",
                                  "pipeline_stages: auto",
                                  "microbatch_tokens: auto",
                                  "recompute: auto",
                                  "experts: columns",
                                  "dispatch: balanced",
                                  "math:",
                                  "path: ",
                                  "eval_path: \"\"",
                                  "tokenizer: none",
                                  "max_seq_len: 2048",
                                  "over_length: error",
                                  "shuffle: true",
                                  "name: a",
                                  "dataset: math",
                                  "r: 5",
                                  "lora_alpha: 32",
                                  "lora_dropout: 0",
                                  "target_modules: all-linear",
                                  "use_rslora: false",
                                  "init_from: \"\"",
                                  "learning_rate: 2.0e-04",
                                  "lr_scheduler_type: cosine",
                                  "warmup_steps: 0",
                                  "weight_decay: 0",
                                  "adam_beta1: 0.9",
                                  "adam_beta2: 0.999",
                                  "adam_epsilon: 1.0e-08",
                                  "max_grad_norm: 1",
                                  "global_batch_size: 8",
                                  "num_train_epochs: 1",
                                  "priority: 0",
                                  "every_steps: 200",
                                  "every_minutes: 30",
                                  "keep: 2"}) {
        EXPECT_NE(text.find(key), std::string::npos) << key << " is missing in\n" << text;
    }
}

TEST_F(JobWrite, SyntheticModel) {
    const Job job = read(
        "model: {synthetic: tinyllama-1.1b}\nrun: {dir: o}\n"
        "datasets: {d: {path: p}}\nadapters: [{name: a}]\n");
    EXPECT_EQ(job.model.weights, "");
    const Job same = again(job);
    EXPECT_EQ(same.model.synthetic, "tinyllama-1.1b");
    EXPECT_EQ(to_yaml(same), to_yaml(job));
}

TEST_F(JobWrite, ControlCharactersStayInTheirPlaces) {
    Job job = read(minimal_job);
    job.run.dir = "/runs/a\r\n\t\x1b z\r";
    EXPECT_EQ(again(job).run.dir, job.run.dir);
    EXPECT_EQ(to_yaml(again(job)), to_yaml(job));
}

}  // namespace
}  // namespace loratrain
