#include "config/job_yaml.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "config/adapter_reader.h"
#include "config/dataset_reader.h"
#include "config/job_overrides.h"
#include "config/model_presets.h"
#include "config/sweep_space.h"
#include "config/yaml_reader.h"
#include "config/yaml_tree.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

/// Throws InputError for what must not be opened: pipes may never end, devices neither.
void check_is_job_file(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    const char* hint = "give the path of a YAML file";
    if (fs::is_directory(status)) throw InputError(path, "is a folder, not a job file", hint);
    if (!fs::exists(status)) return;
    if (!fs::is_regular_file(status)) throw InputError(path, "is not a regular file", hint);
    const std::uintmax_t bytes = fs::file_size(path, error);
    if (!error && bytes > max_yaml_bytes) {
        throw InputError(path, human_bytes(bytes) + " is too large for a job file", hint);
    }
}

std::string read_text(const std::string& path) {
    check_is_job_file(path);
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw InputError(path, cat("cannot open the job file: ", std::strerror(errno)),
                         "check the path and its permissions");
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

YamlNode read_tree(const std::string& path, ProblemLog& log) {
    std::optional<YamlNode> root = parse_yaml(read_text(path), {path, false}, log);
    if (root && root->kind == YamlNode::Kind::null) {
        log.add(root->place, "the job file is empty",
                "it needs at least model, run, datasets and adapters");
        root.reset();
    }
    if (!root) log.throw_if_any();
    return std::move(*root);
}

/// A word, or of a mapping with nothing but `number_key` its number.
template <class E, std::size_t N>
std::optional<int> read_word_or_number(SectionReader& section, const std::string& key, E& word,
                                       const std::array<Word<E>, N>& words,
                                       const std::string& number_key, const std::string& hint,
                                       ProblemLog& log) {
    const YamlNode* node = section.find(key);
    if (node == nullptr || node->kind != YamlNode::Kind::map) {
        section.read_word(key, word, words);
        return std::nullopt;
    }
    SectionReader entry(node, node->place, cat(section.path(), ".", key), log);
    entry.require(number_key, hint);
    int number = 0;
    entry.read(number_key, number, 0);
    entry.finish();
    return number;
}

/// auto, all, stream, shared or {resident_layers: N}.
void read_residency(SectionReader& section, Residency& residency, ProblemLog& log) {
    const auto layers =
        read_word_or_number(section, "residency", residency.kind, residency_words,
                            "resident_layers", "give the layers that stay on each rank", log);
    if (!layers) return;
    residency.kind = Residency::Kind::some;
    residency.layers = *layers;
}

/// auto, none, layer or {layers: N}.
template <class Parallel>
void read_recompute(SectionReader& section, Parallel& parallel, ProblemLog& log) {
    const auto layers =
        read_word_or_number(section, "recompute", parallel.recompute, recompute_words, "layers",
                            "give the layers of each rank that are computed again", log);
    if (!layers) return;
    parallel.recompute = Recompute::layer;
    parallel.recomputed_layers = layers;
}

/// auto, none or {layers: N}.
void read_offload(SectionReader& section, const Residency& residency, ParallelJob& parallel,
                  ProblemLog& log) {
    Offload& offload = parallel.offload;
    const auto layers =
        read_word_or_number(section, "offload", offload.kind, offload_words, "layers",
                            "give the layers of each rank whose activations go to the host", log);
    if (layers) offload = {Offload::Kind::some, *layers};
    if (offload.kind == Offload::Kind::none) return;
    const Place place = section.find("offload")->place;
    if (parallel.recompute == Recompute::none) {
        section.problem(place, "offload",
                        "is given together with recompute: none, which keeps all activations",
                        "use recompute: auto or layer, of whose layers these are, or offload: "
                        "none");
    }
    using Kind = Residency::Kind;
    if (residency.kind == Kind::stream || residency.kind == Kind::some) {
        section.problem(place, "offload",
                        "is given together with a model.residency whose layers come over the "
                        "same link",
                        "use residency: all or shared, or offload: none");
    }
}

ModelJob read_model(SectionReader& top, const std::string& folder, ProblemLog& log) {
    ModelJob model;
    SectionReader section = top.section("model");
    if (const YamlNode* node = section.find("synthetic")) {
        section.read("synthetic", model.synthetic);
        if (section.has("weights")) {
            log.add(section.place(), "model: has both weights and synthetic", "give one of them");
        }
        if (node->kind == YamlNode::Kind::scalar && !model_preset(model.synthetic)) {
            log.add(section.place(), "model.synthetic: '" + model.synthetic + "' is not known",
                    "must be one of: " + join(model_preset_names(), ", "));
        }
    } else {
        section.require("weights", "give the HDF5 file made by: loratrain import-hf HF_DIR OUT.h5");
    }
    section.read_path("weights", model.weights, folder);
    section.read_word("precision", model.precision, precision_words);
    read_residency(section, model.residency, log);
    section.read("base_model_name_or_path", model.base_model_name_or_path);
    section.finish();
    return model;
}

RunJob read_run(SectionReader& top, const std::string& folder) {
    RunJob run;
    SectionReader section = top.section("run");
    section.require("dir", "give the folder for results, as in run: {dir: runs/first}");
    section.read_path("dir", run.dir, folder);
    if (!run.dir.empty() && fs::path(run.dir).relative_path().empty()) {
        section.problem(section.find("dir")->place, "dir", "is the root of the file system",
                        "give a folder for this run, as in run: {dir: runs/first}");
    }
    section.read("seed", run.seed);
    section.read_word("backend", run.backend, backend_words);
    section.read("max_hours", run.max_hours, at_least(0.0));
    section.read("peer_timeout", run.peer_timeout, 0);
    section.finish();
    return run;
}

void read_deployment(SectionReader& section, ParallelJob& parallel, ProblemLog& log) {
    const std::string key = "deployment";
    const YamlNode* node = section.find(key);
    const auto is_word = [&](const char* word) {
        return node->kind == YamlNode::Kind::scalar && node->text == word;
    };
    parallel.deployment_open = node == nullptr && !parallel.pipeline_stages;
    if (node == nullptr || is_word(pipeline_word)) return;
    parallel.find_deployment = is_word(auto_word);
    const bool has_entries = node->kind == YamlNode::Kind::list && !node->children.empty();
    if (!parallel.find_deployment && !has_entries) {
        section.problem(node->place, key, "is none of pipeline, auto and a list of replicas",
                        "write pipeline, auto, or as in [{tp: 2, pp: 2}]");
        return;
    }
    for (std::size_t i = 0; i < node->children.size(); ++i) {
        ReplicaJob& replica = parallel.deployment.emplace_back();
        SectionReader entry(&node->children[i], node->place,
                            cat(section.path(), ".", key, "[", i, "]"), log);
        entry.read("tp", replica.tensor, 1);
        entry.read("pp", replica.stages, 1);
        entry.read("count", replica.count, 1);
        std::optional<int> tokens;
        entry.read_auto("microbatch_tokens", tokens, 1);
        replica.microbatch_tokens = tokens;
        read_recompute(entry, replica, log);
        entry.finish();
    }
    if (parallel.pipeline_stages) {
        section.problem(node->place, key, "is given together with pipeline_stages",
                        "keep one of the two");
    }
}

/// What only several replicas can mean.
void read_sharing(SectionReader& section, ParallelJob& parallel) {
    section.read_word("dispatch", parallel.dispatch, dispatch_words);
    section.read_word("redeploy", parallel.redeploy, redeploy_words);
    parallel.assignment_open = parallel.deployment_open && !section.has("assignment");
    section.read_word("assignment", parallel.assignment, assignment_words);
    if (parallel.by_workers()) parallel.deployment_open = false;
    if (!parallel.by_workers()) return;
    const bool cut = parallel.pipeline_stages || !parallel.deployment.empty();
    if (parallel.assignment == Assignment::automatic && cut) {
        section.problem(section.find("assignment")->place, "assignment",
                        "is auto, but how ranks are cut is given too",
                        "write each, or leave out pipeline_stages and deployment");
    }
    if (parallel.find_deployment || parallel.deployment.size() > 1) {
        section.problem(
            section.find("deployment")->place, "deployment",
            "says nothing of one kind of replica, as workers are",
            "give one entry, as in [{tp: 1, pp: 2, count: 4}], or leave it out and write "
            "assignment: auto");
    }
}

ParallelJob read_parallel(SectionReader& top, const Residency& residency, ProblemLog& log) {
    ParallelJob parallel;
    SectionReader section = top.section("parallel");
    section.read_auto("pipeline_stages", parallel.pipeline_stages, 1);
    read_deployment(section, parallel, log);
    std::optional<int> tokens;  // products with it must fit in 64 bits
    section.read_auto("microbatch_tokens", tokens, 1);
    parallel.microbatch_tokens = tokens;
    read_recompute(section, parallel, log);
    read_offload(section, residency, parallel, log);
    read_sharing(section, parallel);
    section.finish();
    return parallel;
}

ClusterJob read_cluster(SectionReader& top) {
    ClusterJob cluster;
    SectionReader section = top.section("cluster");
    SectionReader link = section.section("between_hosts");
    const auto read = [&](const char* key, std::optional<double>& value, const Limits& limits) {
        double number = 0.0;
        if (!link.has(key)) return;
        link.read(key, number, limits);
        value = number;
    };
    read("gigabytes_per_second", cluster.between_hosts.gigabytes_per_second, above(0.0));
    read("microseconds", cluster.between_hosts.microseconds, at_least(0.0));
    link.finish();
    section.finish();
    return cluster;
}

ScheduleJob read_schedule(SectionReader& top) {
    ScheduleJob schedule;
    SectionReader section = top.section("schedule");
    section.read_word("policy", schedule.policy, schedule_policy_words);
    section.read_word("packing", schedule.packing, packing_words);
    section.read_auto("max_adapters", schedule.max_adapters, 1);
    section.read("solver_seconds", schedule.solver_seconds, above(0.0));
    section.read_word("costs", schedule.costs, cost_source_words);
    section.finish();
    return schedule;
}

CheckpointJob read_checkpoint(SectionReader& top) {
    CheckpointJob checkpoint;
    SectionReader section = top.section("checkpoint");
    section.read("every_steps", checkpoint.every_steps, 0);
    section.read("every_minutes", checkpoint.every_minutes, at_least(0.0));
    section.read("keep", checkpoint.keep, 1);
    section.finish();
    return checkpoint;
}

/// Its scaling and its type go to the adapters.
ExportJob read_export(SectionReader& top, Job& job) {
    ExportJob exports;
    SectionReader section = top.section("export");
    section.read_word("scaling", exports.scaling, export_scaling_words);
    section.read_word("dtype", exports.dtype, export_dtype_words);
    section.read("tokenizer", exports.tokenizer);
    section.finish();
    const auto set = [&](AdapterJob& adapter) {
        adapter.plain_export = exports.scaling == ExportScaling::plain;
        adapter.export_dtype = exports.dtype;
    };
    set(job.defaults.adapter);
    for (AdapterJob& adapter : job.adapters) set(adapter);
    return exports;
}

std::vector<std::int32_t> read_stop_tokens(SectionReader& section) {
    const YamlNode* node = section.find("stop_tokens");
    if (node == nullptr) return {};
    constexpr const char* hint = "give whole numbers from 0 on, as in [2, 32000]";
    if (node->kind == YamlNode::Kind::map) {
        section.problem(node->place, "stop_tokens", "is a mapping", hint);
        return {};
    }
    std::vector<YamlNode> items = node->children;
    if (node->kind == YamlNode::Kind::scalar) items = {*node};
    std::vector<std::int32_t> tokens;
    for (const YamlNode& item : items) {
        const std::optional<double> token =
            item.kind == YamlNode::Kind::scalar ? number_in(item.text) : std::nullopt;
        constexpr double most = std::numeric_limits<std::int32_t>::max();
        if (token && *token >= 0 && *token <= most && *token == std::floor(*token)) {
            tokens.push_back(static_cast<std::int32_t>(*token));
            continue;
        }
        section.problem(item.place, "stop_tokens", cat("'", item.text, "' is no token id"), hint);
    }
    return tokens;
}

GenerateJob read_generate(SectionReader& eval) {
    constexpr std::int64_t most_new_tokens = 1'000'000;
    GenerateJob generate;
    if (!eval.has("generate")) return generate;
    SectionReader section = eval.section("generate");
    section.require("samples", "as in generate: {samples: 64, max_new_tokens: 256}");
    section.read("samples", generate.samples, 1);
    section.read("max_new_tokens", generate.max_new_tokens, {1, most_new_tokens});
    generate.stop_tokens = read_stop_tokens(section);
    section.finish();
    return generate;
}

/// Its split goes to the datasets.
EvalJob read_eval(SectionReader& top, std::vector<DatasetJob>& datasets, ProblemLog& log) {
    EvalJob eval;
    SectionReader section = top.section("eval");
    section.read("every_steps", eval.every_steps, 0);
    section.read("keep_best", eval.keep_best);
    section.read("early_stopping_patience", eval.early_stopping_patience, 0);
    section.read("early_stopping_threshold", eval.early_stopping_threshold, at_least(0.0));
    section.read("split", eval.split);
    eval.generate = read_generate(section);
    section.finish();
    split_by_default(eval.split, datasets);
    const bool looks_at_loss = eval.keep_best || eval.early_stopping_patience > 0;
    if (!looks_at_loss && !eval.generate.wanted()) return eval;
    std::string key = "eval.generate";
    if (looks_at_loss) key = eval.keep_best ? "eval.keep_best" : "eval.early_stopping_patience";
    if (looks_at_loss && eval.every_steps == 0) {
        log.add(section.place(), key + ": needs evaluations during training",
                "set eval.every_steps, as in eval: {every_steps: 50, keep_best: true}");
    }
    if (std::none_of(datasets.begin(), datasets.end(),
                     [](const DatasetJob& dataset) { return dataset.has_eval(); })) {
        log.add(section.place(), key + ": no dataset has data to evaluate on",
                "give a dataset an eval_path or an eval_split");
    }
    return eval;
}

LoggingJob read_logging(SectionReader& top) {
    LoggingJob logging;
    SectionReader section = top.section("logging");
    section.read("every_steps", logging.every_steps, 1);
    section.read_word("live", logging.live, live_table_words);
    section.read("tensorboard", logging.tensorboard);
    section.read("trace", logging.trace);
    section.finish();
    return logging;
}

/// Whether any adapter of the list is a trial already, as in resolved.yaml.
bool lists_trials(const YamlNode& root) {
    const YamlNode* list = root.find("adapters");
    return list != nullptr &&
           std::any_of(list->children.begin(), list->children.end(), [](const YamlNode& adapter) {
               const YamlNode* trial = adapter.find("trial");
               return trial != nullptr && trial->text == "true";
           });
}

}  // namespace

int read_peer_timeout(const std::string& path, const std::vector<Override>& overrides) {
    RunJob run;
    try {
        ProblemLog log;
        YamlNode root = read_tree(path, log);
        apply_overrides(root, overrides, log);
        SectionReader top(&root, root.place, "", log);
        top.section("run").read("peer_timeout", run.peer_timeout, 0);
    } catch (const std::exception&) {
        return RunJob{}.peer_timeout;  // read_job() says what is wrong
    }
    return run.peer_timeout;
}

Job read_job(const std::string& path, const std::vector<Override>& overrides) {
    ProblemLog log;
    YamlNode root = read_tree(path, log);
    apply_overrides(root, overrides, log);
    const std::string folder = folder_of(path);

    Job job;
    job.path = path;
    SectionReader top(&root, root.place, "", log);
    job.model = read_model(top, folder, log);
    job.run = read_run(top, folder);
    job.parallel = read_parallel(top, job.model.residency, log);
    job.cluster = read_cluster(top);
    job.schedule = read_schedule(top);
    job.datasets = read_datasets(top, folder, log);
    std::optional<SweepSpace> space;
    Place sweep_place = root.place;
    if (top.has("sweep")) {
        SectionReader sweep = top.section("sweep");
        sweep_place = sweep.place();
        const bool trials_elsewhere = lists_trials(root) || sweep.has("wait_minutes");
        space = read_sweep_space(sweep, job.run.seed, trials_elsewhere, log);
        job.sweep = read_sweep(sweep);
        sweep.finish();
    }
    AdapterList list = read_adapters(
        top, {folder, job.run.seed, job.datasets, nullptr, {}, space ? &*space : nullptr}, log);
    job.defaults = std::move(list.defaults);
    job.adapters = std::move(list.adapters);
    job.checkpoint = read_checkpoint(top);
    job.eval = read_eval(top, job.datasets, log);
    job.exports = read_export(top, job);
    job.logging = read_logging(top);
    if (job.sweep) check_sweep(job, sweep_place, log);
    top.finish();
    log.throw_if_any();
    return job;
}

}  // namespace loratrain
