#include "config/section_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "config/job_sections.h"
#include "config/key_reader.h"
#include "config/key_writer.h"
#include "config/model_presets.h"

namespace loratrain {

namespace {

void read_deployment(SectionReader& section, ParallelJob& parallel) {
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
        section.problem(node->place, key, "is neither pipeline, auto nor a list of replicas",
                        "write pipeline, auto, or as in [{tp: 2, pp: 2}]");
        return;
    }
    for (std::size_t i = 0; i < node->children.size(); ++i) {
        SectionReader entry(&node->children[i], node->place,
                            cat(section.path(), ".", key, "[", i, "]"), section.context(),
                            "parallel.deployment[0]");
        KeyReader reader(entry);
        keys(reader, parallel.deployment.emplace_back());
        entry.finish();
    }
    if (parallel.pipeline_stages) {
        section.problem(node->place, key, "is given together with pipeline_stages",
                        "keep one of the two");
    }
}

/// [{tp: 2, pp: 1, count: 1, microbatch_tokens: auto, recompute: auto}]
void write_deployment(KeyWriter& out, const ParallelJob& parallel) {
    if (parallel.find_deployment) return out.put("deployment", auto_word);
    if (parallel.deployment.empty()) return out.put("deployment", pipeline_word);
    std::vector<ReplicaJob> replicas = parallel.deployment;
    out.put_maps("deployment", true, replicas, [&](ReplicaJob& replica) { keys(out, replica); });
}

}  // namespace

void read_token_ids(SectionReader& section, const YamlNode& node, const char* key,
                    std::vector<std::int32_t>& tokens) {
    constexpr const char* hint =
        "give whole numbers from 0 on, as in [2, 32000], or leave the key out";
    if (node.kind == YamlNode::Kind::map) {
        return section.problem(node.place, key, "is a mapping", hint);
    }
    std::vector<YamlNode> items = node.children;
    if (node.kind == YamlNode::Kind::scalar) items = {node};
    for (const YamlNode& item : items) {
        const std::optional<double> token =
            item.kind == YamlNode::Kind::scalar ? number_in(item.text) : std::nullopt;
        constexpr double most = std::numeric_limits<std::int32_t>::max();
        if (token && *token >= 0 && *token <= most && *token == std::floor(*token)) {
            tokens.push_back(static_cast<std::int32_t>(*token));
            continue;
        }
        section.problem(item.place, key, cat("'", item.text, "' is not a token id"), hint);
    }
}

void write_token_ids(KeyWriter& out, const char* key, const std::vector<std::int32_t>& tokens) {
    std::vector<std::string> words;
    for (const std::int32_t token : tokens) words.push_back(value_text(token));
    if (!words.empty()) out.put_list(key, words);
}

void read_stop_tokens(SectionReader& section, std::vector<std::int32_t>& tokens) {
    const YamlNode* node = section.find("stop_tokens");
    if (node != nullptr) read_token_ids(section, *node, "stop_tokens", tokens);
}

void write_stop_tokens(KeyWriter& out, const std::vector<std::int32_t>& tokens) {
    write_token_ids(out, "stop_tokens", tokens);
}

namespace {

void check(SectionReader& section, const ModelJob& model) {
    std::vector<std::string> given;
    for (const char* key : {"weights", "synthetic", "config"}) {
        if (section.has(key)) given.emplace_back(key);
    }
    if (given.empty()) {
        section.require("weights", "give the HDF5 file made by: loratrain import-hf HF_DIR OUT.h5");
        return;
    }
    ProblemLog& log = section.context().log;
    if (given.size() > 1) {
        log.add(section.place(), "model: has " + join(given, " and "), "give one of them");
    }
    const YamlNode* node = section.find("synthetic");
    const bool named = node != nullptr && node->kind == YamlNode::Kind::scalar;
    if (named && !model_preset(model.synthetic)) {
        log.add(section.place(), "model.synthetic: '" + model.synthetic + "' is not known",
                "must be one of: " + join(model_preset_names(), ", "));
    }
}

void check(SectionReader& section, const RunJob& run) {
    if (run.dir.empty() || !std::filesystem::path(run.dir).relative_path().empty()) return;
    section.problem(section.find("dir")->place, "dir", "is the root of the file system",
                    "give a folder for this run, as in run: {dir: runs/first}");
}

/// Settles what is open, too.
void check(SectionReader& section, ParallelJob& parallel) {
    parallel.deployment_open = !section.has("deployment") && !parallel.pipeline_stages;
    parallel.assignment_open = parallel.deployment_open && !section.has("assignment");
    if (!parallel.by_workers()) return;
    parallel.deployment_open = false;
    const bool cut = parallel.pipeline_stages || !parallel.deployment.empty();
    const bool automatic = parallel.assignment == Assignment::automatic;
    if (automatic && (cut || parallel.find_deployment)) {
        section.problem(section.find("assignment")->place, "assignment",
                        "auto does not go with pipeline_stages or deployment, which say how many "
                        "ranks a worker has",
                        "write each, or leave out pipeline_stages and deployment");
    } else if (parallel.find_deployment || parallel.deployment.size() > 1) {
        section.problem(section.find("deployment")->place, "deployment",
                        cat("must have one entry with assignment: ",
                            word_of(assignment_words, parallel.assignment),
                            ", since all workers are split alike"),
                        "write for example [{tp: 1, pp: 2, count: 4}], or leave it out");
    }
}

template <class T>
void check(SectionReader& /*section*/, const T& /*job*/) {}

template <class T>
void read_section(SectionReader& top, const char* name, T& job) {
    SectionReader section = top.section(name);
    KeyReader reader(section);
    keys(reader, job);
    check(section, job);
    section.finish();
}

/// What layers keep and where, together.
void check_offload(SectionReader& top, const Job& job) {
    if (job.parallel.offload.kind == Offload::Kind::none) return;
    SectionReader section = top.section("parallel");
    const Place place = section.find("offload")->place;
    if (job.parallel.recompute == Recompute::none) {
        section.problem(place, "offload",
                        "does not go with recompute: none: only layers that are recomputed can "
                        "keep their activations on the host instead",
                        "write recompute: auto or layer, or offload: none");
    }
    using Kind = Residency::Kind;
    const Kind residency = job.model.residency.kind;
    if (residency == Kind::stream || residency == Kind::some) {
        section.problem(place, "offload",
                        "does not go with this model.residency: activations and weights would "
                        "share the link to the host",
                        "write residency: all or shared, or offload: none");
    }
}

/// What is done with evaluations needs some.
void check_eval(SectionReader& top, const Job& job) {
    const EvalJob& eval = job.eval;
    const bool looks_at_loss = eval.keep_best || eval.early_stopping_patience > 0;
    if (!looks_at_loss && !eval.generate.wanted()) return;
    std::string key = "eval.generate";
    if (looks_at_loss) key = eval.keep_best ? "eval.keep_best" : "eval.early_stopping_patience";
    const SectionReader section = top.section("eval");
    ProblemLog& log = top.context().log;
    if (looks_at_loss && eval.every_steps == 0) {
        log.add(section.place(), key + ": needs evaluations during training",
                cat("set eval.every_steps, as in eval: {every_steps: 50, ",
                    eval.keep_best ? "keep_best: true" : "early_stopping_patience: 3", "}"));
    }
    if (std::none_of(job.datasets.begin(), job.datasets.end(),
                     [](const DatasetJob& dataset) { return dataset.has_eval(); })) {
        log.add(section.place(), key + ": no dataset has data to evaluate on",
                "give a dataset an eval_path or an eval_split");
    }
}

}  // namespace

const OwnKey<ParallelJob, ReplicaJob> deployment_key{read_deployment, write_deployment};
const OwnKey<GenerateJob> stop_tokens_key{
    [](SectionReader& section, GenerateJob& job) { read_stop_tokens(section, job.stop_tokens); },
    [](KeyWriter& out, const GenerateJob& job) { write_stop_tokens(out, job.stop_tokens); }};

void read_first_sections(SectionReader& top, Job& job) {
    read_section(top, "model", job.model);
    read_section(top, "run", job.run);
    read_section(top, "parallel", job.parallel);
    check_offload(top, job);
    read_section(top, "cluster", job.cluster);
    read_section(top, "schedule", job.schedule);
}

void read_last_sections(SectionReader& top, Job& job) {
    read_section(top, "checkpoint", job.checkpoint);
    read_section(top, "eval", job.eval);
    split_by_default(job.eval.split, job.datasets);
    check_eval(top, job);
    read_section(top, "export", job.exports);
    const auto set = [&](AdapterJob& adapter) {
        adapter.plain_export = job.exports.scaling == ExportScaling::plain;
        adapter.export_dtype = job.exports.dtype;
    };
    set(job.defaults.adapter);
    for (AdapterJob& adapter : job.adapters) set(adapter);
    read_section(top, "logging", job.logging);
}

}  // namespace loratrain
