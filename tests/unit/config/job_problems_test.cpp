#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <ostream>

#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class JobProblems : public JobFiles {};

struct BadValue {
    const char* name;  ///< of the case
    const char* section;
    const char* entry;  ///< "key: value"
    const char* what;
    const char* hint;
};

std::ostream& operator<<(std::ostream& out, const BadValue& bad) {
    return out << bad.section << ": {" << bad.entry << "}";
}

class BadValues : public JobFiles, public ::testing::WithParamInterface<BadValue> {};

/// The section stands in line 7, behind the minimal job, and has this one fault.
TEST_P(BadValues, AreReportedWithPlaceValueAndHint) {
    const BadValue& bad = GetParam();
    const std::string section = std::string(bad.section) + ": {" + bad.entry + "}\n";
    expect_only(problems(minimal_job + section), at(7), bad.what, bad.hint);
}

constexpr const char* whole1 = "give a whole number, at least 1";
constexpr const char* whole0 = "give a whole number, at least 0";
constexpr const char* below1 = "give a number, at least 0 and less than 1";
constexpr const char* number0 = "give a number, at least 0";
constexpr const char* split =
    "give a fraction, greater than 0 and less than 1, or a number of samples, at least 1";
constexpr const char* above0 = "give a number, greater than 0";

const BadValue bad_values[] = {
    {"RankFraction", "defaults", "r: 8.5", "defaults.r: '8.5' is not a whole number", whole1},
    {"RankZero", "defaults", "r: 0", "defaults.r: 0 is out of range", whole1},
    {"RankQuotedWord", "defaults", "r: 'x8'", "defaults.r: 'x8' is not a whole number", whole1},
    {"RankWord", "defaults", "r: many", "defaults.r: 'many' is not a whole number", whole1},
    {"RankExponent", "defaults", "r: 1e3", "defaults.r: '1e3' is not a whole number", whole1},
    {"RankHuge", "defaults", "r: 99999999999", "defaults.r: 99999999999 is out of range",
     "at least 1, up to 999999"},
    {"RankLarge", "defaults", "r: 1000000", "defaults.r: 1000000 is out of range",
     "at least 1, up to 999999"},
    {"StepsLarge", "defaults", "max_steps: 2147483647",
     "defaults.max_steps: 2147483647 is out of range", "at least 1, up to 1000000000"},
    {"IterationsMany", "defaults", "init_lora_weights: pissa_niter_1001",
     "defaults.init_lora_weights: 'pissa_niter_1001' has no number of iterations", "at most 1000"},
    {"RankList", "defaults", "r: [8]", "defaults.r: is a list", whole1},
    {"RankMap", "defaults", "r: {a: 8}", "defaults.r: is a mapping", whole1},
    {"RankEmpty", "defaults", "r: ", "defaults.r: has no value", whole1},
    {"RankNull", "defaults", "r: null", "defaults.r: has no value", whole1},
    {"Alpha", "defaults", "lora_alpha: 0", "defaults.lora_alpha: 0 is out of range", above0},
    {"DropoutOne", "defaults", "lora_dropout: 1.0", "defaults.lora_dropout: 1.0 is out of range",
     below1},
    {"DropoutNearlyOne", "defaults", "lora_dropout: 0.999999",
     "defaults.lora_dropout: 0.999999 drops nearly everything", "0.96875"},
    {"DropoutNegative", "defaults", "lora_dropout: -0.1",
     "defaults.lora_dropout: -0.1 is out of range", below1},
    {"Rate", "defaults", "learning_rate: -1e-4", "defaults.learning_rate: -1e-4 is out of range",
     number0},
    {"RateWord", "defaults", "learning_rate: 1e-4x",
     "defaults.learning_rate: '1e-4x' is not a number", number0},
    {"RateNan", "defaults", "learning_rate: nan", "defaults.learning_rate: nan is out of range",
     number0},
    {"RateInfinite", "defaults", "learning_rate: inf",
     "defaults.learning_rate: inf is out of range", number0},
    {"RateOverflow", "defaults", "learning_rate: 1e999",
     "defaults.learning_rate: 1e999 is out of range", number0},
    {"Scheduler", "defaults", "lr_scheduler_type: cosinus",
     "defaults.lr_scheduler_type: 'cosinus' is not known here",
     "give one of: constant, constant_with_warmup, linear, cosine"},
    {"Warmup", "defaults", "warmup_steps: -1", "defaults.warmup_steps: -1 is out of range",
     number0},
    {"WarmupMixed", "defaults", "warmup_steps: 1.5",
     "defaults.warmup_steps: 1.5 is neither a number of steps nor a fraction", "below 1"},
    {"WarmupHuge", "defaults", "warmup_steps: 1e10",
     "defaults.warmup_steps: 1e+10 is neither a number of steps nor a fraction", "below 1"},
    {"Decay", "defaults", "weight_decay: -1", "defaults.weight_decay: -1 is out of range", number0},
    {"Beta1", "defaults", "adam_beta1: 1", "defaults.adam_beta1: 1 is out of range", below1},
    {"Beta2", "defaults", "adam_beta2: 1.5", "defaults.adam_beta2: 1.5 is out of range", below1},
    {"Epsilon", "defaults", "adam_epsilon: 0", "defaults.adam_epsilon: 0 is out of range", above0},
    {"GradNorm", "defaults", "max_grad_norm: -1", "defaults.max_grad_norm: -1 is out of range",
     number0},
    {"Batch", "defaults", "global_batch_size: 0", "defaults.global_batch_size: 0 is out of range",
     whole1},
    {"Epochs", "defaults", "num_train_epochs: 0", "defaults.num_train_epochs: 0 is out of range",
     above0},
    {"Steps", "defaults", "max_steps: 0", "defaults.max_steps: 0 is out of range", whole1},
    {"Priority", "defaults", "priority: high", "defaults.priority: 'high' is not a whole number",
     "give a whole number"},
    {"AdapterSeed", "defaults", "seed: -1", "defaults.seed: -1 is out of range", whole0},
    {"SeedTooLarge", "defaults", "seed: 18446744073709551616",
     "defaults.seed: 18446744073709551616 is out of range", "up to 18446744073709551615"},
    {"Rslora", "defaults", "use_rslora: yes", "defaults.use_rslora: 'yes' is not true or false",
     "write true or false"},
    {"RsloraQuoted", "defaults", "use_rslora: 'true'",
     "defaults.use_rslora: 'true' is not true or false", "without quotes"},
    {"Dataset", "defaults", "dataset: mth", "defaults.dataset: 'mth' is not in datasets",
     "did you mean 'math'?"},
    {"NameInDefaults", "defaults", "name: a", "defaults.name: cannot be shared by adapters",
     "name each adapter"},
    {"TargetWord", "defaults", "target_modules: all",
     "defaults.target_modules: 'all' is neither all-linear nor a list, and as a regular expression "
     "it matches no module",
     "write all-linear"},
    {"TargetUnknown", "defaults", "target_modules: [q_proj, k_porj]",
     "defaults.target_modules: 'k_porj' is not a target", "did you mean 'k_proj'?"},
    {"TargetTwice", "defaults", "target_modules: [q_proj, q_proj]",
     "defaults.target_modules: 'q_proj' is given twice", "once"},
    {"TargetsEmpty", "defaults", "target_modules: []",
     "defaults.target_modules: is neither all-linear nor a list of targets", "q_proj, k_proj"},
    {"BothLengths", "defaults", "max_steps: 3, num_train_epochs: 1",
     "defaults.max_steps: is given together with num_train_epochs", "keep one of the two"},
    {"UnknownNear", "defaults", "learning_rat: 1", "unknown key 'defaults.learning_rat'",
     "did you mean 'learning_rate'?"},
    {"UnknownForeign", "defaults", "lr: 1", "unknown key 'defaults.lr'",
     "did you mean 'learning_rate'?"},
    {"UnknownForeignRank", "defaults", "lora_r: 1", "unknown key 'defaults.lora_r'",
     "did you mean 'r'?"},
    {"MergeKey", "defaults", "<<: 1", "unknown key 'defaults.<<'", "defaults"},
    {"UnknownFar", "eval", "colour: red", "unknown key 'eval.colour'", "one of: every_steps"},
    {"OfAnotherSection", "logging", "max_seq_len: 3", "unknown key 'logging.max_seq_len'",
     "it belongs elsewhere: datasets.NAME.max_seq_len"},
    {"OfAdapters", "eval", "lr_scheduler_type: linear", "unknown key 'eval.lr_scheduler_type'",
     "it belongs elsewhere: lr_scheduler_type of an adapter or of defaults"},
    {"OfFourSections", "parallel", "every_steps: 3", "unknown key 'parallel.every_steps'",
     "checkpoint.every_steps, eval.every_steps, export.every_steps, logging.every_steps"},
    {"ForeignScheduler", "defaults", "lr_scheduler: cosine", "unknown key 'defaults.lr_scheduler'",
     "did you mean 'lr_scheduler_type'?"},
    {"ForeignBatch", "defaults", "per_device_train_batch_size: 2",
     "unknown key 'defaults.per_device_train_batch_size'",
     "did you mean 'global_batch_size'? samples of one optimizer step"},
    {"ForeignAccumulation", "defaults", "gradient_accumulation_steps: 4",
     "unknown key 'defaults.gradient_accumulation_steps'", "'global_batch_size'? samples"},
    {"BothWarmups", "defaults", "warmup_ratio: 0.1, warmup_steps: 5",
     "defaults.warmup_ratio: is given together with warmup_steps", "keep one of the two"},
    {"WholeRatio", "defaults", "warmup_ratio: 1.0", "defaults.warmup_ratio: 1.0 is out of range",
     below1},
    {"UnknownKwargs", "defaults", "lr_scheduler_kwargs: {powr: 2}",
     "unknown key 'defaults.lr_scheduler_kwargs.powr'", "did you mean 'power'?"},
    {"HalfAStep", "defaults", "lr_scheduler_kwargs: {num_decay_steps: 2.5}",
     "defaults.lr_scheduler_kwargs.num_decay_steps: 2.5 is not a whole number",
     "a number of steps"},
    {"NoTimescale", "defaults",
     "lr_scheduler_type: inverse_sqrt, lr_scheduler_kwargs: {timescale: 0}",
     "defaults.lr_scheduler_kwargs.timescale: 0 is out of range", "give a number, at least 1"},
    {"ForeignSave", "defaults", "save_steps: 5", "unknown key 'defaults.save_steps'",
     "here it is checkpoint.every_steps"},
    {"ForeignEval", "logging", "eval_steps: 5", "unknown key 'logging.eval_steps'",
     "here it is eval.every_steps"},
    {"ForeignLength", "defaults", "max_seq_length: 5", "unknown key 'defaults.max_seq_length'",
     "here it is datasets.NAME.max_seq_len"},
    {"ForeignBase", "parallel", "base_model: x", "unknown key 'parallel.base_model'",
     "here it is model.weights: an HDF5 file that loratrain import-hf makes"},
    {"ForeignPacking", "defaults", "packing: 1", "unknown key 'defaults.packing'",
     "samples are always packed"},
    {"Dora", "defaults", "use_dora: 1", "defaults.use_dora: '1' is not true or false",
     "write true or false"},
    {"ModulesToSave", "defaults", "modules_to_save: [lm_head]",
     "unknown key 'defaults.modules_to_save'", "whole modules stay frozen"},
    {"LoraBiases", "defaults", "lora_bias: true", "unknown key 'defaults.lora_bias'",
     "LoRA layers have no biases"},
    {"Biases", "defaults", "bias: all", "unknown key 'defaults.bias'", "biases stay frozen"},
    {"OtherStart", "defaults", "init_lora_weights: loftq",
     "defaults.init_lora_weights: 'loftq' changes the base, which other adapters share",
     "use true, gaussian, pissa or olora"},
    {"StartFromData", "defaults", "init_lora_weights: eva",
     "defaults.init_lora_weights: 'eva' needs a pass over the data before the adapter is made",
     "use true, gaussian, pissa or olora"},
    {"TemperatureOfNothing", "defaults", "temperature: 0",
     "defaults.temperature: 0 is out of range", above0},
    {"NegativeLambda", "defaults", "lambda: -1", "defaults.lambda: -1 is out of range",
     "at least 0"},
    {"OtherPooling", "defaults", "contrastive_pooling_method: average_all",
     "unknown key 'defaults.contrastive_pooling_method'", "at the last label of each sample"},
    {"OtherOptimizer", "defaults", "optim: sgd",
     "defaults.optim: 'sgd' is not one of the optimizers here", "write adamw_torch"},
    {"Muon", "defaults", "optim: muon", "defaults.optim: 'muon' is not one of the optimizers here",
     "or adamw_8bit"},
    {"PagedStates", "defaults", "optim: paged_adamw_8bit",
     "defaults.optim: 'paged_adamw_8bit' is not one of the optimizers here", "take turns"},
    {"CodedStates", "defaults", "optim: adamw_bnb_8bit",
     "defaults.optim: 'adamw_bnb_8bit' is not one of the optimizers here", "write adamw_8bit"},
    {"DatasetList", "defaults", "dataset: [math]",
     "defaults.dataset: is a list, but an adapter has one dataset", "path: [a.jsonl, b.jsonl]"},
    {"PathList", "defaults", "init_from: [x, y]", "defaults.init_from: is a list", "give one path"},
    {"Stages", "parallel", "pipeline_stages: 0", "parallel.pipeline_stages: 0 is out of range",
     "give auto, or a whole number, at least 1"},
    {"StagesWord", "parallel", "pipeline_stages: all",
     "parallel.pipeline_stages: 'all' is not a whole number", "give auto, or a whole number"},
    {"Tokens", "parallel", "microbatch_tokens: 0", "parallel.microbatch_tokens: 0 is out of range",
     "give auto, or a whole number, at least 1"},
    {"TokensHuge", "parallel", "microbatch_tokens: 2147483648",
     "parallel.microbatch_tokens: 2147483648 is out of range", "at least 1, up to 2147483647"},
    {"TokensOverflow", "parallel", "microbatch_tokens: 99999999999999999999",
     "parallel.microbatch_tokens: 99999999999999999999 is out of range", "up to 2147483647"},
    {"Recompute", "parallel", "recompute: full", "parallel.recompute: 'full' is not known here",
     "give one of: auto, none, layer"},
    {"DeploymentWord", "parallel", "deployment: all",
     "parallel.deployment: is neither pipeline, auto nor a list of replicas", "[{tp: 2, pp: 2}]"},
    {"DeploymentEmpty", "parallel", "deployment: []",
     "parallel.deployment: is neither pipeline, auto nor a list of replicas", "[{tp: 2, pp: 2}]"},
    {"DeploymentNumber", "parallel", "deployment: [{tp: 2}, {tp: 0}]",
     "parallel.deployment[1].tp: 0 is out of range", whole1},
    {"DeploymentKey", "parallel", "deployment: [{tp: 2, stages: 2}]",
     "unknown key 'parallel.deployment[0].stages'", "one of: tp, pp, count"},
    {"DeploymentItem", "parallel", "deployment: [2]", "parallel.deployment[0] must be a mapping",
     "{key: value}"},
    {"DeploymentAutoAndStages", "parallel", "deployment: auto, pipeline_stages: 2",
     "parallel.deployment: is given together with pipeline_stages", "keep one of the two"},
    {"Dispatch", "parallel", "dispatch: all", "parallel.dispatch: 'all' is not known here",
     "give one of: balanced, length, uniform"},
    {"AssignmentAuto", "parallel", "assignment: auto, pipeline_stages: 2",
     "parallel.assignment: auto does not go with pipeline_stages or deployment, which say how many "
     "ranks a worker has",
     "write each"},
    {"AssignmentEach", "parallel", "assignment: each, deployment: auto",
     "parallel.deployment: must have one entry with assignment: each, since all workers are split "
     "alike",
     "write for example [{tp: 1, pp: 2, count: 4}]"},
    {"AssignmentPlora", "parallel", "assignment: plora, deployment: auto",
     "parallel.deployment: must have one entry with assignment: plora, since all workers are split "
     "alike",
     "write for example [{tp: 1, pp: 2, count: 4}], or leave it out"},
    {"AssignmentPloraTwo", "parallel", "assignment: plora, deployment: [{tp: 2}, {pp: 2}]",
     "parallel.deployment: must have one entry with assignment: plora, since all workers are split "
     "alike",
     "or leave it out"},
    {"AssignmentAutoTwo", "parallel", "assignment: auto, deployment: [{tp: 2}, {pp: 2}]",
     "parallel.assignment: auto does not go with pipeline_stages or deployment, which say how many "
     "ranks a worker has",
     "leave out pipeline_stages and deployment"},
    {"AssignmentAutoAndAuto", "parallel", "assignment: auto, deployment: auto",
     "parallel.assignment: auto does not go with pipeline_stages or deployment, which say how many "
     "ranks a worker has",
     "leave out pipeline_stages and deployment"},
    {"BetweenHosts", "cluster", "between_hosts: {gigabytes_per_second: 0}",
     "cluster.between_hosts.gigabytes_per_second: 0 is out of range", "greater than 0"},
    {"BetweenHostsKey", "cluster", "between_hosts: {gbps: 5}",
     "unknown key 'cluster.between_hosts.gbps'", "one of: gigabytes_per_second, microseconds"},
    {"DeploymentAndStages", "parallel", "deployment: [{tp: 2}], pipeline_stages: 2",
     "parallel.deployment: is given together with pipeline_stages", "keep one of the two"},
    {"Keep", "checkpoint", "keep: 0", "checkpoint.keep: 0 is out of range", whole1},
    {"Minutes", "checkpoint", "every_minutes: -1", "checkpoint.every_minutes: -1 is out of range",
     number0},
    {"CheckpointSteps", "checkpoint", "every_steps: -1",
     "checkpoint.every_steps: -1 is out of range", whole0},
    {"Patience", "eval", "early_stopping_patience: -1",
     "eval.early_stopping_patience: -1 is out of range", whole0},
    {"SplitZero", "eval", "split: 0", "eval.split: 0 is out of range", split},
    {"SplitZeroFraction", "eval", "split: 0.0", "eval.split: 0.0 is out of range", split},
    {"SplitOne", "eval", "split: 1.0", "eval.split: 1.0 is out of range", split},
    {"SplitNegative", "eval", "split: -0.1", "eval.split: -0.1 is out of range", split},
    {"SplitNegativeNumber", "eval", "split: -3", "eval.split: -3 is out of range", split},
    {"SplitMoreThanOne", "eval", "split: 1.5", "eval.split: 1.5 is out of range", split},
    {"SplitNan", "eval", "split: nan", "eval.split: nan is out of range", split},
    {"SplitPercent", "eval", "split: 5%", "eval.split: '5%' is not a number", split},
    {"SplitOfAxolotl", "eval", "val_set_size: 0.1", "unknown key 'eval.val_set_size'",
     "did you mean 'split'?"},
    {"Threshold", "eval", "early_stopping_threshold: -1",
     "eval.early_stopping_threshold: -1 is out of range", number0},
    {"EvalSteps", "eval", "every_steps: -1", "eval.every_steps: -1 is out of range", whole0},
    {"LoggingSteps", "logging", "every_steps: 0", "logging.every_steps: 0 is out of range", whole1},
    {"UnknownSection", "loging", "every_steps: 1", "unknown key 'loging'",
     "did you mean 'logging'?"},
};

INSTANTIATE_TEST_SUITE_P(All, BadValues, ::testing::ValuesIn(bad_values),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(JobProblems, FilesOfADataset) {
    const auto found = [&](const std::string& keys) {
        const std::vector<Problem> all =
            problems(cat("model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {", keys,
                         "}}\nadapters: [{name: a}]\n"));
        return cat(all.size(), " ", all[0].what, "; ", all[0].hint);
    };
    EXPECT_EQ(found("files: []"), "1 datasets.d.files: is an empty list; give files");
    EXPECT_EQ(found("path: []"), "1 datasets.d.path: is an empty list; give files");
    EXPECT_EQ(found("path: a, files: [b]"),
              "1 datasets.d.files: is given together with path; keep one of the two");
    EXPECT_EQ(found("files: a.jsonl"),
              "1 datasets.d.files: is not a list; write files: [{path: a.jsonl, weight: 2}, {path: "
              "b.jsonl}]");
    EXPECT_EQ(found("files: [{weight: 2}]"),
              "1 datasets.d.files[0].path: is missing; give a .jsonl or .h5 file");
    EXPECT_EQ(found("files: [a, {path: b, weight: 0}]"),
              "1 datasets.d.files[1].weight: 0 is out of range; give a number, greater than 0");
    EXPECT_EQ(found("files: [{path: a, weight: 1e9}]"),
              "1 datasets.d.files[0].weight: 1e+09 is out of range; give at most 1000");
    EXPECT_EQ(found("files: [{path: a, probability: 0.5}]").substr(0, 55),
              "1 unknown key 'datasets.d.files[0].probability'; one of");
    EXPECT_EQ(found("files: [x/a.jsonl, x/a.jsonl]"),
              "1 datasets.d.files: has two files named 'x/a'; give them names: files: [{path: "
              "a.jsonl, name: a}, ...]");
    EXPECT_EQ(found("path: p, eval_path: [x/a, x/a]").substr(0, 59),
              "1 datasets.d.eval_path: has two files named 'x/a'; give the");
}

TEST_F(JobProblems, References) {
    const auto found = [&](const std::string& keys) {
        const std::vector<Problem> all =
            problems(cat("model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {path: p}}\n",
                         "adapters: [{name: a, ", keys, "}]\n"));
        return cat(all.size(), " ", all[0].what, "; ", all[0].hint);
    };
    EXPECT_EQ(
        found("ref_adapter: x"),
        "1 adapters.a.ref_adapter: has no meaning with loss: sft; leave it out; it belongs to "
        "loss: dpo, kto, or of rollouts with beta > 0");
    EXPECT_EQ(found("loss: simpo, ref_adapter: init_from").substr(0, 60),
              "1 adapters.a.ref_adapter: has no meaning with loss: simpo; l");
    EXPECT_EQ(found("loss: kto, init_lora_weights: pissa, ref_adapter: x"),
              "1 adapters.a.ref_adapter: does not go with init_lora_weights: pissa, with which "
              "A and B start as a part of W; leave one of the two out");
}

/// Schedules whose kwargs an adapter and its defaults have between them.
TEST_F(JobProblems, SchedulesTakeTheirOwnKwargs) {
    const auto text = [](const std::string& of_defaults, const std::string& of_adapter) {
        return cat("model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {path: p}}\ndefaults: {",
                   of_defaults, "}\nadapters: [{name: a", of_adapter, "}]\n");
    };
    const auto found = [&](const std::string& of_defaults, const std::string& of_adapter) {
        const std::vector<Problem> all = problems(text(of_defaults, of_adapter));
        return cat(all.size(), " ", all[0].what, "; ", all[0].hint);
    };
    EXPECT_EQ(found("lr_scheduler_kwargs: {power: 2}", ""),
              "1 adapters.a.lr_scheduler_kwargs.power: is not for lr_scheduler_type: cosine; it "
              "goes with polynomial");
    EXPECT_EQ(found("lr_scheduler_type: cosine_with_min_lr", ""),
              "1 adapters.a.lr_scheduler_kwargs: cosine_with_min_lr needs min_lr or min_lr_rate; "
              "give one, as in {min_lr_rate: 0.1}");
    EXPECT_EQ(found("lr_scheduler_type: warmup_stable_decay", ""),
              "1 adapters.a.lr_scheduler_kwargs: warmup_stable_decay needs num_decay_steps; give "
              "it, as in {num_decay_steps: 20}");
    EXPECT_EQ(found("lr_scheduler_type: polynomial", ", lr_scheduler_kwargs: {lr_end: 1}"),
              "1 adapters.a.lr_scheduler_kwargs: lr_end is 1, not below the learning rate of "
              "2e-04; give a smaller lr_end");
    EXPECT_EQ(found("lr_scheduler_type: cosine_with_restarts",
                    ", lr_scheduler_kwargs: {num_cycles: 1.5}"),
              "1 adapters.a.lr_scheduler_kwargs: num_cycles of cosine_with_restarts is not a whole "
              "number; give how often it restarts");
    const char* polynomial = "lr_scheduler_type: polynomial, lr_scheduler_kwargs: {power: 2}";
    EXPECT_EQ(read(text(polynomial, "")).adapters[0].lr_scheduler_kwargs.power, 2.0);
    EXPECT_EQ(read(text(polynomial, ", lr_scheduler_type: linear")).adapters[0].lr_scheduler_kwargs,
              LrSchedulerKwargs{});
    EXPECT_EQ(read(text("warmup_ratio: 0.125", "")).adapters[0].warmup_steps, 0.125);
    EXPECT_EQ(read(text("warmup_ratio: 0.125, warmup_steps: 0", "")).adapters[0].warmup_steps,
              0.125);
    EXPECT_EQ(read(text("warmup_ratio: 0, warmup_steps: 7", "")).adapters[0].warmup_steps, 7.0);
}

TEST_F(JobProblems, ModelRunAndDatasetsAreCheckedToo) {
    const std::vector<Problem> found = problems(
        "model: {weights: base.h5, precision: fp16, base_model_name_or_path: [x]}\n"
        "run: {dir: out, seed: 1.5, backend: gpu, peer_timeout: -1, max_hours: -2}\n"
        "datasets:\n"
        "  math:\n"
        "    path: math.jsonl\n"
        "    max_seq_len: 0\n"
        "    over_length: cut\n"
        "    shuffle: 1\n"
        "    tokenizer: bpe\n"
        "    evalpath: x\n"
        "adapters: [{name: a}]\n");
    EXPECT_EQ(found.size(), 11U);
    expect_among(found, at(1), "model.precision: 'fp16' is not known here",
                 "give one of: auto, fp32, bf16");
    expect_among(found, at(1), "model.base_model_name_or_path: is a list", "give a text");
    expect_among(found, at(2), "run.seed: '1.5' is not a whole number", "whole number");
    expect_among(found, at(2), "run.backend: 'gpu' is not known here",
                 "give one of: auto, cpu, cuda");
    expect_among(found, at(2), "run.peer_timeout: -1 is out of range", "at least 0");
    expect_among(found, at(2), "run.max_hours: -2 is out of range", "at least 0");
    expect_among(found, at(6), "datasets.math.max_seq_len: 0 is out of range", "at least 1");
    expect_among(found, at(7), "datasets.math.over_length: 'cut' is not known here",
                 "give one of: error, truncate, drop");
    expect_among(found, at(8), "datasets.math.shuffle: '1' is not true or false", "true or false");
    expect_among(found, at(9), "datasets.math.tokenizer: 'bpe' is not known here",
                 "give one of: none, bytes");
    expect_among(found, at(10), "unknown key 'datasets.math.evalpath'",
                 "did you mean 'eval_path'?");
}

TEST_F(JobProblems, RecomputedLayers) {
    const auto found = [&](const std::string& value) {
        return problems(
            "model: {weights: base.h5}\nrun: {dir: out}\ndatasets: {a: {path: a}}\n"
            "adapters: [{name: a}]\nparallel: {recompute: " +
            value + "}\n");
    };
    expect_among(found("{}"), at(5), "parallel.recompute.layers: is missing",
                 "give the layers of each rank that are computed again");
    expect_among(found("{layers: -1}"), at(5), "parallel.recompute.layers: -1 is out of range",
                 "at least 0");
    expect_among(found("{layer: 1, layers: 2}"), at(5), "unknown key 'parallel.recompute.layer'",
                 "layers");
}

TEST_F(JobProblems, Offload) {
    const auto job = [](const std::string& value, const std::string& residency = "auto") {
        return "model: {weights: base.h5, residency: " + residency +
               "}\nrun: {dir: out}\ndatasets: {a: {path: a}}\n"
               "adapters: [{name: a}]\nparallel: {offload: " +
               value + "}\n";
    };
    expect_among(problems(job("{}")), at(5), "parallel.offload.layers: is missing",
                 "give the layers of each rank whose activations go to the host");
    expect_among(problems(job("{layers: -1}")), at(5),
                 "parallel.offload.layers: -1 is out of range", "at least 0");
    expect_among(problems(job("much")), at(5), "parallel.offload: 'much' is not known here",
                 "auto, none");
    expect_among(problems(job("auto, recompute: none")), at(5),
                 "parallel.offload: does not go with recompute: none: only layers that are "
                 "recomputed can keep their activations on the host instead",
                 "offload: none");
    for (const char* residency : {"stream", "{resident_layers: 4}"}) {
        expect_among(
            problems(job("{layers: 4}", residency)), at(5),
            "parallel.offload: does not go with this model.residency: activations and weights "
            "would share the link to the host",
            "residency: all or shared");
    }
    EXPECT_EQ(read(job("{layers: 4}", "shared")).parallel.offload,
              (Offload{Offload::Kind::some, 4}));
    EXPECT_EQ(read(job("none, recompute: none", "stream")).parallel.offload, Offload{});
    EXPECT_EQ(read(job("auto")).parallel.offload.kind, Offload::Kind::automatic);
    EXPECT_EQ(read(job("{layers: 4}, recompute: {layers: 5}", "all")).parallel.offload,
              (Offload{Offload::Kind::some, 4}));
}

TEST_F(JobProblems, Residency) {
    const auto found = [&](const std::string& value) {
        return problems("model: {weights: base.h5, residency: " + value +
                        "}\nrun: {dir: out}\ndatasets: {a: {path: a}}\nadapters: [{name: a}]\n");
    };
    expect_among(found("often"), at(1), "model.residency: 'often' is not known here",
                 "give one of: auto, all, stream, shared");
    expect_among(found("[stream]"), at(1), "model.residency: is a list", "give");
    expect_among(found("{}"), at(1), "model.residency.resident_layers: is missing",
                 "give the layers that stay on each rank");
    expect_among(found("{resident_layers: -1}"), at(1),
                 "model.residency.resident_layers: -1 is out of range", "at least 0");
    expect_among(found("{resident_layers: few}"), at(1),
                 "model.residency.resident_layers: 'few' is not a whole number", "whole number");
    expect_among(found("{resident_layers: 1, layers: 2}"), at(1),
                 "unknown key 'model.residency.layers'", "elsewhere: parallel.recompute.layers");
}

TEST_F(JobProblems, ComeInTheOrderOfTheLinesWithTheCommandLineLast) {
    const std::vector<Problem> found =
        problems("logging: {every_steps: x}\n" + minimal_job + "nonsense: 1\nrum: 2\n",
                 {{"run.seed", "x"}, {"defaults.r", "0"}});
    ASSERT_EQ(found.size(), 5U);
    EXPECT_EQ(found[0].where, at(1));
    EXPECT_EQ(found[1].where, at(8));
    EXPECT_EQ(found[2].where, at(9));
    EXPECT_EQ(found[3].where, "--set run.seed");
    EXPECT_EQ(found[4].where, "--set defaults.r");
}

TEST_F(JobProblems, BestAndEarlyStoppingNeedEvaluations) {
    for (const char* key : {"keep_best: true", "early_stopping_patience: 2"}) {
        const std::string name = std::string("eval.") + key;
        const std::vector<Problem> found = problems(cat("eval: {", key, "}\n", minimal_job));
        EXPECT_EQ(found.size(), 2U);
        const std::string until = name.substr(0, name.find(':'));
        expect_among(found, at(1), until + ": needs evaluations during training", "every_steps");
        expect_among(found, at(1), until + ": no dataset has data to evaluate on", "eval_path");
    }
}

TEST_F(JobProblems, TextsNeedDataToBeEvaluatedOnAndTheirNumber) {
    const std::vector<Problem> found =
        problems(cat("eval: {generate: {max_new_tokens: 0, stop_tokens: [2, x, -1], tokens: 3}}\n",
                     minimal_job));
    expect_among(found, at(1), "eval.generate.samples: is missing", "generate: {samples: 64");
    expect_among(found, at(1), "eval.generate.max_new_tokens: 0 is out of range", "at least 1");
    expect_among(found, at(1), "eval.generate.stop_tokens: 'x' is not a token id", "[2, 32000]");
    expect_among(found, at(1), "eval.generate.stop_tokens: '-1' is not a token id", "[2, 32000]");
    expect_among(found, at(1), "unknown key 'eval.generate.tokens'", "");
    EXPECT_EQ(found.size(), 5U);
    const std::vector<Problem> without =
        problems(cat("eval: {generate: {samples: 4}}\n", minimal_job));
    ASSERT_EQ(without.size(), 1U);
    expect_among(without, at(1), "eval.generate: no dataset has data to evaluate on", "eval_path");
}

TEST_F(JobProblems, MissingKeysAndSections) {
    const std::vector<Problem> found = problems("\neval: {every_steps: 1}\n");
    EXPECT_EQ(found.size(), 4U);
    expect_among(found, at(2), "model.weights: is missing", "import-hf");
    expect_among(found, at(2), "run.dir: is missing", "folder");
    expect_among(found, at(2), "datasets: is missing", "at least one dataset");
    expect_among(found, at(2), "adapters: is missing", "at least one adapter");
}

TEST_F(JobProblems, MissingKeysOfSectionsArePlacedAtTheSection) {
    const std::vector<Problem> found = problems(
        "model: {precision: auto}\n"
        "run:\n"
        "\n"
        "datasets:\n"
        "  math:\n"
        "  code: {path: ''}\n"
        "adapters:\n"
        "  - {dataset: math}\n"
        "  - name: a\n");
    EXPECT_EQ(found.size(), 6U);
    expect_among(found, at(1), "model.weights: is missing", "");
    expect_among(found, at(2), "run.dir: is missing", "");
    expect_among(found, at(5), "datasets.math.path: is missing", ".jsonl");
    expect_among(found, at(6), "datasets.code.path: is empty", ".jsonl");
    expect_among(found, at(8), "adapters[0].name: is missing", "name");
    expect_among(found, at(9), "adapters.a.dataset: is missing: the job has several datasets",
                 "give a dataset, here or in defaults; one of: math, code");
}

TEST_F(JobProblems, EmptyListsOfDatasetsAndAdapters) {
    const std::vector<Problem> found =
        problems("model: {weights: base.h5}\nrun: {dir: out}\ndatasets: {}\nadapters: []\n");
    EXPECT_EQ(found.size(), 2U);
    expect_among(found, at(3), "datasets: is empty", "at least one dataset");
    expect_among(found, at(4), "adapters: is empty", "at least one adapter");
}

TEST_F(JobProblems, SectionsOfTheWrongKind) {
    const std::vector<Problem> found = problems(
        "model: base.h5\n"
        "run: [out]\n"
        "datasets: [{path: a.jsonl}]\n"
        "adapters: {name: a}\n"
        "defaults: 3\n");
    EXPECT_EQ(found.size(), 5U);
    expect_among(found, at(1), "model must be a mapping", "key: value");
    expect_among(found, at(2), "run must be a mapping", "key: value");
    expect_among(found, at(3), "datasets must be a mapping", "name each dataset");
    expect_among(found, at(4), "adapters must be a list", "adapters: [{name: a");
    expect_among(found, at(5), "defaults must be a mapping", "key: value");
}

TEST_F(JobProblems, AdapterOfTheWrongKind) {
    const std::string head =
        "model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {path: p}}\nadapters:\n";
    expect_only(problems(head + "  - {name: a}\n  - b\n"), at(6), "adapters[1] must be a mapping",
                "key: value");
}

TEST_F(JobProblems, FaultOfTheDefaultsIsReportedOnce) {
    const std::string job =
        "model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {path: p}, e: {path: q}}\n"
        "defaults: {r: 0, dataset: f}\n"
        "adapters: [{name: a}, {name: b}]\n";
    const std::vector<Problem> found = problems(job);
    EXPECT_EQ(found.size(), 2U);
    expect_among(found, at(4), "defaults.r: 0 is out of range", "at least 1");
    expect_among(found, at(4), "defaults.dataset: 'f' is not in datasets", "one of: d, e");
}

TEST_F(JobProblems, KeysOfLossesThatTheAdapterDoesNotHave) {
    const std::string head = "model: {weights: w}\nrun: {dir: o}\ndatasets: {d: {path: p}}\n";
    expect_only(problems(head + "adapters: [{name: a, beta: 0.2}]\n"), at(4),
                "adapters.a.beta: has no meaning with loss: sft", "it belongs to loss: dpo, cpo");
    expect_only(problems(head + "adapters: [{name: a, loss: rm}]\n"), at(4),
                "adapters.a.loss: 'rm' is not known here", "sft, dpo, cpo, simpo");
    expect_only(problems(head + "adapters: [{name: a, loss: dpo, label_smoothing: 0.5}]\n"), at(4),
                "adapters.a.label_smoothing: 0.5 is out of range", "less than 0.5");
    expect_only(problems(head + "adapters: [{name: a, loss: dpo, beta: 0}]\n"), at(4),
                "adapters.a.beta: 0 is out of range", above0);
    const auto refused = [&](const std::string& keys, const std::string& key,
                             const std::string& with) {
        expect_only(problems(head + "adapters: [{name: a, " + keys + "}]\n"), at(4),
                    cat("adapters.a.", key, ": has no meaning with loss: ", with), "leave it out");
    };
    refused("loss: dpo, loss_type: ipo, label_smoothing: 0.1", "label_smoothing",
            "dpo, loss_type: ipo");
    refused("loss: orpo, loss_type: hinge", "loss_type", "orpo");
    refused("loss: dpo, cpo_alpha: 0", "cpo_alpha", "dpo, loss_type: sigmoid");
    refused("loss: dpo, desirable_weight: 2", "desirable_weight", "dpo, loss_type: sigmoid");
    refused("loss: kto, label_smoothing: 0.1", "label_smoothing", "kto");
    refused("loss: dpo, z_loss: 0.1", "z_loss", "dpo, loss_type: sigmoid");
    refused("loss_type: dft, label_smoothing_factor: 0.1", "label_smoothing_factor",
            "sft, loss_type: dft");
    refused("loss: cpo, simpo_gamma: 1", "simpo_gamma", "cpo, loss_type: sigmoid");
    refused("loss: cpo, lambda: 1", "lambda", "cpo, loss_type: sigmoid");
    refused("temperature: 0.1", "temperature", "sft");
    refused("loss: cit, beta: 0.1", "beta", "cit");
    refused("loss: dro, clip_low: 0.5", "clip_low", "dro");
    refused("loss: orpo, clip_high: 2", "clip_high", "orpo");
    refused("loss_aggregation: sequence", "loss_aggregation", "sft");
    refused("loss: ppo, max_completion_length: 9", "max_completion_length", "ppo");
    refused("max_staleness: 1", "max_staleness", "sft");
    refused("loss: grpo, ref_adapter: init_from", "ref_adapter", "grpo");
    expect_only(
        problems(head + "adapters: [{name: a, loss: grpo, loss_aggregation: constant}]\n"), at(4),
        "adapters.a.loss_aggregation: constant needs a max_completion_length, by which it divides",
        "give the largest number of tokens");
    expect_only(problems(head + "adapters: [{name: a, loss: cispo, clip_low: 1.2}]\n"), at(4),
                "adapters.a.clip_low: 1.2 is out of range", "at least 0 and at most 1");
    expect_only(problems(head + "defaults: {beta: 0}\nadapters: [{name: a, loss: dpo}]\n"), at(5),
                "adapters.a.beta: 0 is out of range", above0);
    const Job rollouts = read(head +
                              "defaults: {loss: grpo, beta: 0}\nadapters: [{name: a},\n"
                              "  {name: b, loss: dro}, {name: c, loss: ppo, beta: 0.1}]\n");
    EXPECT_FALSE(rollouts.adapters[0].loss.has_reference());
    EXPECT_TRUE(rollouts.adapters[2].loss.has_reference());
    refused("loss: cit, label_smoothing_factor: 0.1", "label_smoothing_factor", "cit");
    const Job job = read(head +
                         "defaults: {beta: 0.2}\nadapters: [{name: a, label_smoothing: 0},\n"
                         "  {name: b, loss: dpo, loss_type: hinge}]\n");
    EXPECT_EQ(job.adapters[1].loss.type, LossType::hinge);
    EXPECT_EQ(job.adapters[1].loss.beta, 0.2);
}

TEST_F(JobProblems, BothLengthsInOneAdapter) {
    expect_only(problems("model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {path: p}}\n"
                         "adapters:\n  - name: a\n    num_train_epochs: 2\n    max_steps: 3\n"),
                at(7), "adapters.a.max_steps: is given together with num_train_epochs", "keep one");
}

TEST_F(JobProblems, SyntheticModel) {
    const std::string rest = "run: {dir: o}\ndatasets: {d: {path: p}}\nadapters: [{name: a}]\n";
    expect_only(problems("model: {synthetic: llama-9}\n" + rest), at(1),
                "model.synthetic: 'llama-9' is not known", "llama-3.1-8b");
    expect_only(problems("model: {synthetic: ~}\n" + rest), at(1), "model.synthetic: has no value",
                "give a text");
    expect_only(problems("model: {synthetic: ''}\n" + rest), at(1),
                "model.synthetic: '' is not known", "llama-3.1-8b");
    expect_only(problems("model: {synthetic: llama-3.1-8b, weights: b}\n" + rest), at(1),
                "model: has weights and synthetic", "give one of them");
    expect_only(problems("model: {config: c, weights: b}\n" + rest), at(1),
                "model: has weights and config", "give one of them");
}

TEST_F(JobProblems, NamesThatCannotBeFolders) {
    const std::string head =
        "model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {path: p}}\nadapters:\n";
    for (const std::string name : {"a/b", ".hidden", "..", "a b", "ä", "a:b", "-h"}) {
        expect_only(problems(cat(head, "  - {name: '", name, "'}\n")), at(5),
                    cat("adapters.", name, ".name: '", name, "' cannot name a folder"),
                    "letters, digits");
    }
    const std::string long_name(201, 'x');
    EXPECT_EQ(problems(head + "  - {name: " + long_name + "}\n").size(), 1U);
    EXPECT_NO_THROW(read(head + "  - {name: " + long_name.substr(1) + "}\n"));
    expect_only(problems(head + "  - {name: ''}\n"), at(5), "adapters[0].name: is empty", "name");
}

TEST_F(JobProblems, NamesUsedTwice) {
    const std::string head =
        "model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {path: p}}\nadapters:\n";
    expect_only(problems(head + "  - {name: one}\n  - {name: one}\n"), at(6),
                "adapters.one.name: 'one' is used twice", "given at " + at(5));
    expect_only(problems(head + "  - {name: one}\n  - {name: two}\n  - {name: ONE}\n"), at(7),
                "adapters.ONE.name: 'ONE' is used twice", "upper and lower case");
}

TEST_F(JobProblems, DuplicateKeys) {
    const std::vector<Problem> found = problems(
        "model: {weights: base.h5, weights: other.h5}\n"
        "run: {dir: out}\n"
        "datasets:\n"
        "  math: {path: math.jsonl}\n"
        "  math: {path: more.jsonl}\n"
        "adapters: [{name: a}]\n"
        "run: {dir: out}\n");
    EXPECT_EQ(found.size(), 3U);
    expect_among(found, at(1), "duplicate key 'weights'", "already given at " + at(1));
    expect_among(found, at(5), "duplicate key 'math'", "already given at " + at(4));
    expect_among(found, at(7), "duplicate key 'run'", "already given at " + at(2));
}

TEST_F(JobProblems, KeysThatAreNoWords) {
    expect_only(problems(minimal_job + "? [a, b]\n: 1\n"), at(7), "a key must be a plain word",
                "key: value");
}

TEST_F(JobProblems, EmptyFile) {
    for (const std::string text : {"", "\n\n", "# only a comment\n", "---\n"}) {
        const std::vector<Problem> found = problems(text);
        ASSERT_EQ(found.size(), 1U) << text;
        EXPECT_EQ(found[0].where.find(job_path() + ":"), 0U);
        EXPECT_EQ(found[0].what, "the job file is empty");
        EXPECT_NE(found[0].hint.find("model, run, datasets and adapters"), std::string::npos);
    }
}

TEST_F(JobProblems, FileThatIsNoMapping) {
    expect_among(problems("just words\n"), at(1), "the job file must be a mapping", "key: value");
}

TEST_F(JobProblems, FileThatDoesNotExist) {
    try {
        read_job(folder() + "/none.yaml", {});
        FAIL() << "did not throw";
    } catch (const InputError& error) {
        expect_only(error.problems(), folder() + "/none.yaml",
                    "cannot open the job file: No such file or directory", "check the path");
    }
}

TEST_F(JobProblems, FolderInPlaceOfAFile) {
    try {
        read_job(folder(), {});
        FAIL() << "did not throw";
    } catch (const InputError& error) {
        expect_only(error.problems(), folder(), "is a folder, not a job file", "YAML file");
    }
}

TEST_F(JobProblems, WeightsFileInPlaceOfAJob) {
    write("x");
    std::filesystem::resize_file(job_path(), std::uintmax_t{3} << 30U);
    try {
        read_job(job_path(), {});
        FAIL() << "did not throw";
    } catch (const InputError& error) {
        expect_only(error.problems(), job_path(), "3.0 GiB is too large for a job file", "YAML");
    }
}

TEST_F(JobProblems, YamlSyntax) {
    const std::vector<Problem> colon = problems("model: {weights: b}\nrun: a: b\n");
    ASSERT_EQ(colon.size(), 1U);
    EXPECT_EQ(colon[0].where, at(2));
    EXPECT_EQ(colon[0].what.find("not valid YAML: "), 0U);
    EXPECT_NE(colon[0].hint.find("indentation"), std::string::npos);

    const std::vector<Problem> tab = problems("model:\n  weights: b\nrun:\n\tdir: out\n");
    ASSERT_EQ(tab.size(), 1U);
    EXPECT_EQ(tab[0].where, at(4));
    EXPECT_EQ(tab[0].hint, "indent with spaces, not with tabs");
}

TEST_F(JobProblems, OnePathWhereAListIs) {
    expect_only(problems("model: {weights: [x.h5, y.h5]}\nrun: {dir: o}\n"
                         "datasets: {d: {path: p}}\nadapters: [{name: a}]\n"),
                at(1), "model.weights: is a list", "give one path");
}

TEST_F(JobProblems, ManyMisspeltNamesAreAllReportedAndTheirHintsStayShort) {
    constexpr int count = 2000;
    std::string text = "model: {weights: b}\nrun: {dir: o}\ndatasets:\n";
    for (int i = 0; i < count; ++i) text += cat("  dataset", i, ": {path: p}\n");
    text += "adapters:\n";
    for (int i = 0; i < count; ++i) text += cat("  - {name: a", i, ", dataset: datsaet", i, "}\n");
    const std::vector<Problem> found = problems(text);
    ASSERT_EQ(found.size(), static_cast<std::size_t>(count));
    EXPECT_EQ(found[7].hint, "did you mean 'dataset7'?");
    EXPECT_EQ(found.back().what, "adapters.a1999.dataset: 'datsaet1999' is not in datasets");
    EXPECT_LT(found.back().hint.size(), 400U);
    EXPECT_NE(found.back().hint.find("and 1980 more"), std::string::npos) << found.back().hint;
}

TEST_F(JobProblems, SplitsOfDatasets) {
    const std::vector<Problem> found = problems(
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets:\n"
        "  both: {path: a, eval_path: b,\n"
        "         eval_split: 0.1}\n"
        "  none: {path: a, eval_split: 0}\n"
        "  list: {path: a, eval_split: [1]}\n"
        "  other: {path: a, val_set_size: 0.1}\n"
        "defaults: {dataset: none}\n"
        "adapters: [{name: a}]\n");
    ASSERT_EQ(found.size(), 4U);
    expect_among(found, at(5), "datasets.both.eval_split: does not go with eval_path",
                 "keep one of the two");
    expect_among(found, at(6), "datasets.none.eval_split: 0 is out of range", split);
    expect_among(found, at(7), "datasets.list.eval_split: is a list", split);
    expect_among(found, at(8), "unknown key 'datasets.other.val_set_size'",
                 "did you mean 'eval_split'?");
}

TEST_F(JobProblems, UnknownAnchor) {
    const std::vector<Problem> found = problems(minimal_job + "eval: *nothing\n");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].where, at(7));
}

TEST_F(JobProblems, AliasThatContainsItself) {
    const std::vector<Problem> found = problems(minimal_job + "eval: &a [*a, *a]\n");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found[0].what.find("an alias that contains itself"), std::string::npos);
}

TEST_F(JobProblems, AliasesOfAliases) {
    std::string text = minimal_job + "x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
    for (int i = 1; i < 7; ++i) {
        const std::string alias = cat("*x", i - 1);
        const std::vector<std::string> ten(10, alias);
        text += cat("x", i, ": &x", i, " [", join(ten, ", "), "]\n");
    }
    const std::vector<Problem> found = problems(text);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found[0].what.find("more than 1000000 values (aliases of"), std::string::npos);
}

TEST_F(JobProblems, SecondDocument) {
    expect_only(problems(minimal_job + "---\nrun: {dir: x}\n"), at(7),
                "a second YAML document begins", "one job per file");
    expect_only(problems(minimal_job + "...\n--- {}\n"), at(8), "a second YAML document begins",
                "one job per file");
}

TEST_F(JobProblems, WhatFollowsTheDocument) {
    const std::string flow =
        "{model: {weights: b}, run: {dir: o}, datasets: {d: {path: p}}, adapters: [{name: a}]}";
    EXPECT_NO_THROW(read(flow + "\n...\n# the end\n"));
    const std::string what = "there is more after the end of the YAML: '";
    expect_only(problems(flow + ",\n"), at(1), what + flow.substr(0, 60) + "'", "a comma");
    expect_only(problems(flow + "\n, {}\n"), at(2), what + ", {}'", "a comma");
    expect_among(problems(","), at(1), what + ",'", "a comma");
    const Override comma{"run", "{dir: x},"};
    expect_only(problems(minimal_job, {comma}), "--set run", what + "{dir: x},'", "a comma");
}

TEST_F(JobProblems, PipesAndDevices) {
    ASSERT_EQ(::mkfifo(job_path().c_str(), 0600), 0);
    for (const std::string& path : {job_path(), std::string("/dev/zero")}) {
        try {
            read_job(path, {});
            FAIL() << "did not throw";
        } catch (const InputError& error) {
            expect_only(error.problems(), path, "is not a regular file", "YAML file");
        }
    }
}

/// Numbers that would overflow, or of which each takes memory: none of 64 bits passes.
TEST_F(JobProblems, WholeNumbersHaveALargestValue) {
    const std::pair<const char*, const char*> keys[] = {
        {"run.peer_timeout", "2147483647"},         {"schedule.max_adapters", "2147483647"},
        {"checkpoint.every_steps", "2147483647"},   {"checkpoint.keep", "2147483647"},
        {"eval.every_steps", "2147483647"},         {"eval.early_stopping_patience", "2147483647"},
        {"logging.every_steps", "2147483647"},      {"datasets.d.max_seq_len", "2147483647"},
        {"datasets.d.kl_batch_size", "2147483647"}, {"defaults.global_batch_size", "2147483647"},
        {"defaults.max_steps", "1000000000"},       {"eval.generate.max_new_tokens", "1000000"},
        {"eval.generate.samples", "2147483647"},    {"sweep.rungs", "30"},
        {"sweep.reduction_factor", "1000"},         {"sweep.top_k", "2147483647"},
        {"sweep.rung_eval_samples", "2147483647"},
    };
    const std::string job =
        "model: {weights: b}\nrun: {dir: o}\ndatasets: {d: {path: p, eval_path: q}}\n"
        "adapters: []\neval: {generate: {samples: 2}}\nsweep: {space: {r: [1, 2]}}\n";
    for (const auto& [key, most] : keys) {
        for (const char* number :
             {"4611686018427387904", "9223372036854775807", "18446744073709551616"}) {
            std::string name = key;
            std::string value = number;
            std::string what = cat(number, " is out of range");
            if (name.starts_with("eval.generate.")) {
                value = cat("{samples: 2, ", name.substr(14), ": ", number, "}");
                if (name.ends_with("samples")) value = cat("{samples: ", number, "}");
                name = "eval.generate";
                what = cat(key, ": ", what);
            }
            expect_among(problems(job, {{name, value}}), "--set " + name, what,
                         cat("up to ", most));
        }
    }
}

TEST_F(JobProblems, NestedTooDeeply) {
    const std::vector<Problem> found =
        problems(minimal_job + "eval: " + std::string(40, '[') + std::string(40, ']') + "\n");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].where, at(7));
    EXPECT_EQ(found[0].what, "not valid YAML: nested too deeply");
}

TEST_F(JobProblems, RunDirectoryThatIsTheRoot) {
    for (const char* root : {"/", "//", "/..", "/tmp/../"}) {
        expect_only(problems(minimal_job, {{"run.dir", root}}), "--set run.dir",
                    "is the root of the file system", "a folder for this run");
    }
}

TEST_F(JobProblems, HomeFolders) {
    const char* known = std::getenv("HOME");
    const std::string before = known == nullptr ? "" : known;
    ::setenv("HOME", "/home/somebody", 1);
    EXPECT_EQ(read(minimal_job, {{"run.dir", "~/runs/../x"}}).run.dir, "/home/somebody/x");
    EXPECT_EQ(read(minimal_job, {{"model.weights", "'~'"}}).model.weights, "/home/somebody/");
    EXPECT_TRUE(read(minimal_job, {{"run.dir", "a~/~"}}).run.dir.ends_with("/a~/~"));
    expect_only(problems(minimal_job, {{"run.dir", "~other/x"}}), "--set run.dir",
                "'~other/x' names a home folder that is not known here", "the whole path");
    ::unsetenv("HOME");
    expect_only(problems(minimal_job, {{"run.dir", "~/x"}}), "--set run.dir",
                "'~/x' names a home folder that is not known here", "HOME");
    if (known != nullptr) ::setenv("HOME", before.c_str(), 1);
}

/// JSON writes characters beyond U+FFFF as two escapes.
TEST_F(JobProblems, HalvesOfCharacters) {
    const std::string pair = "\\ud83d\\ude00";
    EXPECT_TRUE(read(minimal_job, {{"run.dir", "\"a" + pair + "b\\\\" + pair + "\""}})
                    .run.dir.ends_with("/a\xf0\x9f\x98\x80"
                                       "b\\\xf0\x9f\x98\x80"));
    const std::string flow = "{\"model\": {\"weights\": \"\\u00e4" + pair +
                             "\"}, \"run\": {\"dir\": \"" + pair +
                             "\"}, \"datasets\": {\"d\": {\"path\": \"p\"}}, "
                             "\"adapters\": [{\"name\": \"a\"}]}";
    EXPECT_TRUE(read(flow).model.weights.ends_with("/\xc3\xa4\xf0\x9f\x98\x80"));
    for (const char* half : {"\\ud83d", "\\ude00", "\\ud83dx", "\\ude00\\ud83d"}) {
        expect_only(problems(minimal_job + "eval: {keep_best: \"" + half + "\"}\n"), at(7),
                    "not valid YAML: an escape \\uD800 to \\uDFFF that is half of a character",
                    "both halves");
    }
    EXPECT_TRUE(read(minimal_job, {{"run.dir", "'" + pair + "'"}}).run.dir.ends_with(pair));
}

TEST_F(JobProblems, NulCharacters) {
    const std::string what = std::string("a NUL character in 'x") + '\0' + "y'";
    expect_among(problems(minimal_job + "eval: {\"x\\0y\": 1}\n"), at(7), what, "remove it");
    expect_only(problems(minimal_job, {{"run.dir", "\"x\\0y\""}}), "--set run.dir", what,
                "remove it");
}

}  // namespace
}  // namespace loratrain
