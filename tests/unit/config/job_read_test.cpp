#include <gtest/gtest.h>

#include <fstream>

#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class JobRead : public JobFiles {};

TEST_F(JobRead, MinimalJobHasTheDocumentedDefaults) {
    const Job job = read(minimal_job);

    EXPECT_EQ(job.path, job_path());
    EXPECT_EQ(job.model.weights, folder() + "/base.h5");
    EXPECT_EQ(job.model.base_model_name_or_path, "") << "the weights say it";
    EXPECT_EQ(job.model.precision, Precision::automatic);
    EXPECT_EQ(job.run.dir, folder() + "/out");
    EXPECT_EQ(job.run.seed, 42U);
    EXPECT_EQ(job.run.backend, BackendKind::automatic);
    EXPECT_FALSE(job.parallel.pipeline_stages);
    EXPECT_FALSE(job.parallel.microbatch_tokens);
    EXPECT_EQ(job.parallel.recompute, Recompute::automatic);
    EXPECT_EQ(job.parallel.offload, Offload{});
    ASSERT_EQ(job.datasets.size(), 1U);
    EXPECT_EQ(job.datasets[0].name, "math");
    EXPECT_EQ(job.datasets[0].path, folder() + "/math.jsonl");
    EXPECT_EQ(job.datasets[0].eval_path, "");
    EXPECT_EQ(job.datasets[0].max_seq_len, 2048);
    EXPECT_TRUE(job.datasets[0].shuffle);
    ASSERT_EQ(job.adapters.size(), 1U);
    const AdapterJob& adapter = job.adapters[0];
    EXPECT_EQ(adapter.name, "a");
    EXPECT_EQ(index(adapter.dataset), 0U);
    EXPECT_EQ(adapter.r, 16);
    EXPECT_EQ(adapter.lora_alpha, 32.0);
    EXPECT_EQ(adapter.learning_rate, 2.0e-4);
    EXPECT_EQ(adapter.num_train_epochs, 1.0);
    EXPECT_FALSE(adapter.max_steps);
    EXPECT_EQ(adapter.seed, 42U);
    for (const bool target : adapter.targets) EXPECT_TRUE(target);
    EXPECT_EQ(job.checkpoint.every_steps, 200);
    EXPECT_EQ(job.checkpoint.every_minutes, 30.0);
    EXPECT_EQ(job.checkpoint.keep, 2);
    EXPECT_EQ(job.eval.every_steps, 0);
    EXPECT_FALSE(job.eval.keep_best);
    EXPECT_EQ(job.eval.early_stopping_patience, 0);
    EXPECT_EQ(job.logging.every_steps, 1);
    EXPECT_EQ(job.logging.live, LiveTable::automatic);
    EXPECT_FALSE(job.logging.tensorboard);
    EXPECT_FALSE(job.logging.trace);
    EXPECT_EQ(job.schedule.policy, SchedulePolicy::balanced);
    EXPECT_EQ(job.schedule.packing, Packing::greedy);
    EXPECT_FALSE(job.schedule.max_adapters);
    EXPECT_EQ(job.schedule.costs, CostSource::automatic);
}

TEST_F(JobRead, EvalSplitIsAFractionOrANumberAndHasADefault) {
    const std::string datasets =
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets:\n"
        "  tenth: {path: a, eval_split: 0.1}\n"
        "  five: {path: a, eval_split: 5}\n"
        "  file: {path: a, eval_path: b}\n"
        "  plain: {path: a}\n"
        "defaults: {dataset: five}\n"
        "adapters: [{name: a}]\n";
    Job job = read(datasets);
    EXPECT_EQ(job.datasets[0].eval_split.fraction, 0.1);
    EXPECT_EQ(job.datasets[0].eval_split.samples, 0);
    EXPECT_EQ(job.datasets[1].eval_split.samples, 5);
    EXPECT_EQ(job.datasets[1].eval_split.fraction, 0.0);
    EXPECT_FALSE(job.datasets[3].has_eval());
    job = read(datasets + "eval: {split: 2.5e-2}\n");
    EXPECT_EQ(job.datasets[0].eval_split.fraction, 0.1);
    EXPECT_EQ(job.datasets[1].eval_split.samples, 5);
    EXPECT_FALSE(job.datasets[2].eval_split.any());
    EXPECT_EQ(job.datasets[3].eval_split.fraction, 0.025);
}

TEST_F(JobRead, Residency) {
    const auto residency = [&](const std::string& value) {
        return read("model: {weights: base.h5" + value +
                    "}\nrun: {dir: out}\ndatasets: {a: {path: a}}\nadapters: [{name: a}]\n")
            .model.residency;
    };
    using Kind = Residency::Kind;
    EXPECT_EQ(residency(""), Residency{});
    EXPECT_EQ(residency(", residency: auto").kind, Kind::automatic);
    EXPECT_EQ(residency(", residency: all").kind, Kind::all);
    EXPECT_EQ(residency(", residency: stream").kind, Kind::stream);
    EXPECT_EQ(residency(", residency: {resident_layers: 8}"), (Residency{Kind::some, 8}));
    EXPECT_EQ(residency(", residency: {resident_layers: 0}"), (Residency{Kind::some, 0}));
}

TEST_F(JobRead, Recompute) {
    const auto parallel = [&](const std::string& value) {
        return read(cat(minimal_job, "parallel: ", value, "\n")).parallel;
    };
    EXPECT_EQ(parallel("{recompute: layer}").recompute, Recompute::layer);
    EXPECT_FALSE(parallel("{recompute: layer}").recomputed_layers);
    const ParallelJob some = parallel("{recompute: {layers: 7}}");
    EXPECT_EQ(some.recompute, Recompute::layer);
    EXPECT_EQ(some.recomputed_layers, 7);
    EXPECT_FALSE(some.recomputes_least);
    const ParallelJob unlike = parallel(
        "{recompute: {layers: 7}, deployment: [{count: 1}, {tp: 2, recompute: {layers: 3}}]}");
    EXPECT_FALSE(unlike.deployment[0].recomputed_layers);
    EXPECT_EQ(unlike.deployment[1].recomputed_layers, 3);
    EXPECT_EQ(unlike.deployment[1].recompute, Recompute::layer);
}

TEST_F(JobRead, EveryKeyOfTheSectionsIsRead) {
    const Job job = read(
        "model: {weights: base.h5, precision: bf16, base_model_name_or_path: org/model}\n"
        "run: {dir: /abs/out, seed: 18446744073709551615, backend: cuda, peer_timeout: 0,\n"
        "      max_hours: 7.5}\n"
        "parallel: {pipeline_stages: 3, microbatch_tokens: 4096, recompute: layer}\n"
        "datasets:\n"
        "  math: {path: math.jsonl, eval_path: sub/eval.h5, tokenizer: bytes, max_seq_len: 1024,\n"
        "         over_length: truncate, shuffle: false}\n"
        "adapters: [{name: a}]\n"
        "checkpoint: {every_steps: 0, every_minutes: 2.5, keep: 7}\n"
        "eval: {every_steps: 11, keep_best: true, early_stopping_patience: 3,\n"
        "       early_stopping_threshold: 0.01, split: 20}\n"
        "logging: {every_steps: 12, live: never, tensorboard: true, trace: true}\n"
        "schedule: {policy: 1f1b, packing: milp, max_adapters: 3, solver_seconds: 0.5, "
        "costs: built-in}\n");

    EXPECT_EQ(job.model.precision, Precision::bf16);
    EXPECT_EQ(job.model.base_model_name_or_path, "org/model");
    EXPECT_EQ(job.run.dir, "/abs/out");
    EXPECT_EQ(job.run.seed, 18446744073709551615ULL);
    EXPECT_EQ(job.run.backend, BackendKind::cuda);
    EXPECT_EQ(job.run.peer_timeout, 0);
    EXPECT_EQ(job.run.max_hours, 7.5);
    EXPECT_EQ(job.parallel.pipeline_stages, 3);
    EXPECT_EQ(job.parallel.microbatch_tokens, 4096);
    EXPECT_EQ(job.parallel.recompute, Recompute::layer);
    EXPECT_EQ(job.datasets[0].eval_path, folder() + "/sub/eval.h5");
    EXPECT_EQ(job.datasets[0].tokenizer, Tokenizer::bytes);
    EXPECT_EQ(job.datasets[0].max_seq_len, 1024);
    EXPECT_EQ(job.datasets[0].over_length, OverLength::truncate);
    EXPECT_FALSE(job.datasets[0].shuffle);
    EXPECT_EQ(job.checkpoint.every_steps, 0);
    EXPECT_EQ(job.checkpoint.every_minutes, 2.5);
    EXPECT_EQ(job.checkpoint.keep, 7);
    EXPECT_EQ(job.eval.every_steps, 11);
    EXPECT_TRUE(job.eval.keep_best);
    EXPECT_EQ(job.eval.early_stopping_patience, 3);
    EXPECT_EQ(job.eval.early_stopping_threshold, 0.01);
    EXPECT_EQ(job.eval.split.samples, 20);
    EXPECT_FALSE(job.datasets[0].eval_split.any()) << "it has an eval_path";
    EXPECT_EQ(job.logging.every_steps, 12);
    EXPECT_EQ(job.logging.live, LiveTable::never);
    EXPECT_TRUE(job.logging.tensorboard);
    EXPECT_TRUE(job.logging.trace);
    EXPECT_EQ(job.schedule.policy, SchedulePolicy::one_f_one_b);
    EXPECT_EQ(job.schedule.packing, Packing::milp);
    EXPECT_EQ(job.schedule.max_adapters, 3);
    EXPECT_EQ(job.schedule.solver_seconds, 0.5);
    EXPECT_EQ(job.schedule.costs, CostSource::built_in);
}

TEST_F(JobRead, ADatasetOfSeveralFiles) {
    const Job job = read(
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets:\n"
        "  listed: {path: [x/a.jsonl, /b.jsonl], eval_path: [x/e.jsonl, y/e.jsonl]}\n"
        "  weighted: {files: [{path: x/a.jsonl, weight: 0.25}, y/a.jsonl, {path: c, name: d}]}\n"
        "  one: {files: [{path: a.jsonl}]}\n"
        "adapters: [{name: a, dataset: one}]\n");
    const DatasetJob& listed = job.datasets[0];
    EXPECT_EQ(listed.files,
              (std::vector<DataFile>{{folder() + "/x/a.jsonl", "a", 1.0}, {"/b.jsonl", "b", 1.0}}));
    EXPECT_EQ(listed.path, folder() + "/x/a.jsonl");
    EXPECT_EQ(listed.evaluated_files()[1].name, "y/e");
    const DatasetJob& weighted = job.datasets[1];
    EXPECT_EQ(weighted.files[0], (DataFile{folder() + "/x/a.jsonl", "x/a", 0.25}));
    EXPECT_EQ(weighted.files[1].name, "y/a");
    EXPECT_EQ(weighted.files[2], (DataFile{folder() + "/c", "d", 1.0}));
    EXPECT_TRUE(job.datasets[2].files.empty());
    const Job again = read(to_yaml(job));
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(again.datasets[i].files, job.datasets[i].files);
        EXPECT_EQ(again.datasets[i].eval_files, job.datasets[i].eval_files);
        EXPECT_EQ(again.datasets[i].paths(), job.datasets[i].paths());
    }
}

TEST_F(JobRead, WhatAReferenceIs) {
    const Job job = read(
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets: {d: {path: a.jsonl}}\n"
        "defaults: {loss: dpo, ref_adapter: init_from}\n"
        "adapters:\n"
        "  - {name: own, init_from: peft}\n"
        "  - {name: fresh}\n"
        "  - {name: other, init_from: peft, ref_adapter: sft}\n"
        "  - {name: base, init_from: peft, ref_adapter: null}\n"
        "  - {name: plain, init_from: peft, loss: sft}\n");
    const auto reference = [&](std::size_t i) { return job.adapters[i].ref_adapter; };
    EXPECT_EQ(reference(0), folder() + "/peft");
    EXPECT_EQ(reference(1), "");
    EXPECT_EQ(reference(2), folder() + "/sft");
    EXPECT_EQ(reference(3), "");
    EXPECT_EQ(reference(4), "");
    EXPECT_EQ(job.adapters[0].directories(), (std::vector<std::string>{folder() + "/peft"}));
    EXPECT_EQ(job.adapters[2].directories().size(), 2U);
    EXPECT_EQ(read(to_yaml(job)).adapters[0].ref_adapter, folder() + "/peft");
}

TEST_F(JobRead, EveryKeyOfAnAdapterIsRead) {
    const Job job = read(
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets: {math: {path: a.jsonl}, code: {path: b.jsonl}}\n"
        "adapters:\n"
        "  - {name: x.Y_z-1, dataset: code, r: 3, lora_alpha: 0.5, lora_dropout: 0.05,\n"
        "     target_modules: [down_proj, q_proj], use_rslora: true, init_from: peft,\n"
        "     learning_rate: 1e-4, lr_scheduler_type: constant_with_warmup, warmup_steps: 5,\n"
        "     weight_decay: .01, adam_beta1: 0, adam_beta2: 0.95, adam_epsilon: 1.0e-6,\n"
        "     max_grad_norm: 0, global_batch_size: 2, max_steps: 9, seed: 7, priority: -3}\n");

    const AdapterJob& adapter = job.adapters.at(0);
    EXPECT_EQ(adapter.name, "x.Y_z-1");
    EXPECT_EQ(index(adapter.dataset), 1U);
    EXPECT_EQ(adapter.r, 3);
    EXPECT_EQ(adapter.lora_alpha, 0.5);
    EXPECT_EQ(adapter.lora_dropout, 0.05);
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        const bool named = linear == Linear::q || module_name(linear) == std::string("down_proj");
        EXPECT_EQ(adapter.targets_linear(linear), named);
    }
    EXPECT_TRUE(adapter.use_rslora);
    EXPECT_EQ(adapter.init_from, folder() + "/peft");
    EXPECT_EQ(adapter.learning_rate, 1e-4);
    EXPECT_EQ(adapter.lr_scheduler_type, LrSchedule::constant_with_warmup);
    EXPECT_EQ(adapter.warmup_steps, 5);
    EXPECT_EQ(adapter.weight_decay, 0.01);
    EXPECT_EQ(adapter.adam_beta1, 0.0);
    EXPECT_EQ(adapter.adam_beta2, 0.95);
    EXPECT_EQ(adapter.adam_epsilon, 1e-6);
    EXPECT_EQ(adapter.max_grad_norm, 0.0);
    EXPECT_EQ(adapter.global_batch_size, 2);
    EXPECT_EQ(adapter.max_steps, 9);
    EXPECT_EQ(adapter.seed, 7U);
    EXPECT_EQ(adapter.priority, -3);
}

TEST_F(JobRead, NumbersMayStandInQuotes) {
    const Job job = read(minimal_job +
                         "defaults: {r: '8', learning_rate: \"1e-4\", max_steps: '7'}\n"
                         "eval: {split: '0.1'}\nparallel: {pipeline_stages: '2'}\n");
    EXPECT_EQ(job.adapters[0].r, 8);
    EXPECT_EQ(job.adapters[0].learning_rate, 1e-4);
    EXPECT_EQ(job.adapters[0].max_steps, 7);
    EXPECT_EQ(job.datasets[0].eval_split.fraction, 0.1);
    EXPECT_EQ(job.parallel.pipeline_stages, 2);
}

TEST_F(JobRead, WarmupMayBeAFractionOfTheSteps) {
    EXPECT_EQ(read(minimal_job + "defaults: {warmup_steps: 0.1}\n").adapters[0].warmup_steps, 0.1);
    EXPECT_EQ(read(minimal_job + "defaults: {warmup_steps: 1e3}\n").adapters[0].warmup_steps, 1e3);
}

TEST_F(JobRead, StepsOfMinusOneAreNotGiven) {
    const Job job = read(minimal_job + "defaults: {num_train_epochs: 2, max_steps: -1}\n");
    EXPECT_FALSE(job.adapters[0].max_steps);
    EXPECT_EQ(job.adapters[0].num_train_epochs, 2.0);
}

TEST_F(JobRead, KeysOfOthersThatAskForWhatIsDoneAnywayAreTaken) {
    const Job job = read(minimal_job +
                         "defaults: {bias: none, init_lora_weights: true, use_dora: false,\n"
                         "           modules_to_save: null, rank_pattern: {}, peft_type: LORA,\n"
                         "           task_type: CAUSAL_LM, optim: adamw_torch, packing: true,\n"
                         "           gradient_accumulation_steps: 1, r: 3}\n");
    EXPECT_EQ(job.adapters[0].r, 3);
}

TEST_F(JobRead, AutoIsAcceptedForTheLayout) {
    const Job job =
        read(minimal_job + "parallel: {pipeline_stages: auto, microbatch_tokens: auto}\n");
    EXPECT_FALSE(job.parallel.pipeline_stages);
    EXPECT_FALSE(job.parallel.microbatch_tokens);
}

TEST_F(JobRead, EmptyOptionalSectionsAreAccepted) {
    const Job job = read(minimal_job + "defaults:\ncheckpoint:\neval: {}\n");
    EXPECT_EQ(job.adapters[0].r, 16);
    EXPECT_EQ(job.checkpoint.keep, 2);
}

TEST_F(JobRead, DefaultsReachEveryAdapterThatDoesNotSayOtherwise) {
    const Job job = read(
        "model: {weights: base.h5}\n"
        "run: {dir: out, seed: 5}\n"
        "datasets: {math: {path: a.jsonl}, code: {path: b.jsonl}}\n"
        "defaults: {dataset: code, r: 4, target_modules: [v_proj], learning_rate: 3e-4,\n"
        "           init_from: peft, priority: 2}\n"
        "adapters:\n"
        "  - {name: a}\n"
        "  - {name: b, dataset: math, r: 8, target_modules: all-linear, seed: 6, init_from: ''}\n");

    const AdapterJob& a = job.adapters.at(0);
    EXPECT_EQ(index(a.dataset), 1U);
    EXPECT_EQ(a.r, 4);
    EXPECT_TRUE(a.targets_linear(Linear::v));
    EXPECT_FALSE(a.targets_linear(Linear::q));
    EXPECT_EQ(a.learning_rate, 3e-4);
    EXPECT_EQ(a.init_from, folder() + "/peft");
    EXPECT_EQ(a.priority, 2);
    EXPECT_EQ(a.seed, 5U);
    const AdapterJob& b = job.adapters.at(1);
    EXPECT_EQ(index(b.dataset), 0U);
    EXPECT_EQ(b.r, 8);
    EXPECT_TRUE(b.targets_linear(Linear::q));
    EXPECT_EQ(b.learning_rate, 3e-4);
    EXPECT_EQ(b.init_from, "");
    EXPECT_EQ(b.seed, 6U);
}

TEST_F(JobRead, SeedOfDefaultsPrecedesSeedOfTheRun) {
    EXPECT_EQ(read(minimal_job + "defaults: {seed: 9}\n").adapters[0].seed, 9U);
}

TEST_F(JobRead, LengthOfAnAdapterReplacesTheOtherKindOfTheDefaults) {
    const std::string two =
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets: {math: {path: a.jsonl}}\n"
        "adapters: [{name: a}, {name: s, max_steps: 5}, {name: e, num_train_epochs: 0.5}]\n";

    const Job by_epochs = read(two + "defaults: {num_train_epochs: 3}\n");
    EXPECT_EQ(by_epochs.adapters[0].num_train_epochs, 3.0);
    EXPECT_FALSE(by_epochs.adapters[0].max_steps);
    EXPECT_EQ(by_epochs.adapters[1].max_steps, 5);
    EXPECT_EQ(by_epochs.adapters[1].num_train_epochs, 1.0);
    EXPECT_EQ(by_epochs.adapters[2].num_train_epochs, 0.5);

    const Job by_steps = read(two + "defaults: {max_steps: 7}\n");
    EXPECT_EQ(by_steps.adapters[0].max_steps, 7);
    EXPECT_EQ(by_steps.adapters[1].max_steps, 5);
    EXPECT_FALSE(by_steps.adapters[2].max_steps);
    EXPECT_EQ(by_steps.adapters[2].num_train_epochs, 0.5);
}

TEST_F(JobRead, AnchorsOfYamlAreExpanded) {
    const Job job = read(
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets: {math: {path: a.jsonl}}\n"
        "adapters:\n"
        "  - {name: a, target_modules: &some [k_proj]}\n"
        "  - {name: b, target_modules: *some}\n");
    EXPECT_TRUE(job.adapters[1].targets_linear(Linear::k));
    EXPECT_FALSE(job.adapters[1].targets_linear(Linear::q));
}

TEST_F(JobRead, PathsAreMadeAbsoluteAndPlain) {
    const Job job = read(
        "model: {weights: ../w/base.h5}\n"
        "run: {dir: ./runs/../out}\n"
        "datasets: {math: {path: /data/a.jsonl}}\n"
        "adapters: [{name: a}]\n");
    const std::string parent = std::filesystem::path(folder()).parent_path();
    EXPECT_EQ(job.model.weights, (std::filesystem::path(parent) / "w/base.h5").string());
    EXPECT_EQ(job.run.dir, folder() + "/out");
    EXPECT_EQ(job.datasets[0].path, "/data/a.jsonl");
}

TEST_F(JobRead, FolderOfTheJobFileMayBeALink) {
    write(minimal_job);
    const std::string link = folder() + "/link";
    std::filesystem::create_directory(folder() + "/deep");
    std::filesystem::create_directory(folder() + "/deep/jobs");
    std::ofstream(folder() + "/deep/jobs/tune.yaml")
        << "model: {weights: ../base.h5}\nrun: {dir: out}\n"
           "datasets: {math: {path: a.jsonl}}\nadapters: [{name: a}]\n";
    std::filesystem::create_directory_symlink(folder() + "/deep/jobs", link);
    EXPECT_EQ(read_job(link + "/tune.yaml", {}).model.weights, folder() + "/deep/base.h5");
}

TEST_F(JobRead, ScalingFollowsPeft) {
    AdapterJob adapter;
    adapter.r = 16;
    adapter.lora_alpha = 24.0;
    EXPECT_EQ(adapter.scaling(0, Linear::q), 1.5);
    adapter.use_rslora = true;
    EXPECT_EQ(adapter.scaling(0, Linear::q), 6.0);
}

}  // namespace
}  // namespace loratrain
