#include "session/job_inputs.h"

#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "config/job_yaml.h"
#include "config/model_presets.h"
#include "data/dataset_files.h"
#include "io/adapters/adapter_file.h"
#include "io/files.h"
#include "io/weights/hf_config.h"
#include "plan/sample_counts.h"

namespace loratrain {

namespace {

/// Pairs are kept, dropped and held out whole; all else that is reported is of their single
/// samples.
std::string describe_file(const std::string& name, const Dataset& data) {
    if (data.grows()) return name + ": rollouts that come while the job runs\n";
    const LengthReport& report = data.report();
    const auto group = static_cast<std::int32_t>(data.group_samples());
    const bool pairs = data_kind(group) == DataKind::pairs;
    const std::int64_t of_unit = pairs ? group : 1;
    const char* samples = pairs ? " samples" : "";
    std::string text = cat(name, ": ", report.samples / of_unit, " ", unit_word(group));
    if (report.truncated > 0) text += cat(", ", report.truncated, samples, " truncated");
    if (report.dropped > 0) text += cat(", ", report.dropped / of_unit, " dropped (over length)");
    if (report.ungrouped > 0) {
        text += cat(", ", report.ungrouped, " left out: too few for a group of kl_batch_size");
    }
    if (report.without_target > 0) {
        text += cat(", ", report.without_target, samples, " without a target");
    }
    if (report.weighted > 0) text += cat(", ", report.weighted, samples, " with weights");
    if (report.held_out > 0)
        text += cat(", ", report.held_out / of_unit, " held out for evaluation");
    return text + '\n';
}

/// Of several files, what an epoch has of each.
std::string describe_shares(const DatasetJob& job, const Dataset& train) {
    std::string text;
    const std::vector<std::int64_t> samples = train.samples_of_files();
    for (std::size_t f = 0; f < job.files.size(); ++f) {
        const auto group = static_cast<std::int32_t>(train.group_samples());
        const FileShare share = file_share(samples[f], job.files[f].weight, group);
        text += cat("    ", job.files[f].name, ": ", units_of(share.samples, group), " ",
                    unit_word(group), ", ", units_of(share.taken, group), " in an epoch (weight ",
                    format_exact(job.files[f].weight), ")\n");
    }
    return text;
}

ModelSpec spec_of_config(const std::string& path) {
    const bool is_folder = std::filesystem::is_directory(path);
    if (is_folder) {
        require_directory(path, "give the folder of a Hugging Face model, or its config.json",
                          {"config.json"});
    }
    const std::string file = is_folder ? path + "/config.json" : path;
    return parse_hf_config(read_text(file), file);
}

}  // namespace

std::unique_ptr<WeightSource> open_weights(const Job& job) {
    const ModelJob& model = job.model;
    if (!model.has_random_weights()) return open_base_weights(model.weights);
    const ModelSpec spec =
        model.config.empty() ? *model_preset(model.synthetic) : spec_of_config(model.config);
    return synthetic_base_weights(spec, job.run.seed);
}

ModelSpec planned_model(const Job& job, const WeightSource& weights) {
    ModelSpec model = weights.spec();
    if (job.parallel.experts == ExpertCut::columns) return model;
    for (LayerSpec& layer : model.descriptions) {
        auto* experts = std::get_if<ExpertSpec>(&layer.mlp);
        if (experts != nullptr) experts->cut = job.parallel.experts;
    }
    if (has_experts(model)) return model;
    Problems problems;
    problems.add(cat(job.path, ": parallel.experts"), "whole, but the model has no experts",
                 "leave the key out");
    with_keys(problems, job.given_paths).throw_if_any();
    return model;
}

void name_base_model(Job& job, const WeightSource& weights) {
    if (const auto& quantization = weights.spec().quantization) {
        job.model.base_quantization = to_string(*quantization);
    }
    std::string& name = job.model.base_model_name_or_path;
    if (!name.empty()) return;
    name = weights.base_model_name();
    if (job.model.has_random_weights()) name = cat(job.model.synthetic, job.model.config);
    if (!name.empty()) return;
    log::warn(cat("exported adapters name no base model, since ", job.model.weights,
                  " does not say which model it is: set model.base_model_name_or_path to its "
                  "Hugging Face folder or hub name, or import the model again"));
}

DatasetFiles open_datasets(const Job& job, std::int64_t vocab_size) {
    Problems problems;
    DatasetFiles files;
    open_datasets(job, vocab_size, files, problems);
    problems.throw_if_any();
    return files;
}

JobInputs open_job_inputs(const Job& job) {
    JobInputs inputs;
    Problems problems;
    collect(problems, [&] { inputs.weights = open_weights(job); });
    const std::int64_t vocab_size = inputs.weights ? inputs.weights->spec().vocab_size
                                                   : std::numeric_limits<std::int32_t>::max();
    open_datasets(job, vocab_size, inputs.files, problems);
    check_growing_folders(job, problems);
    for (const AdapterJob& adapter : job.adapters) {
        if (!inputs.weights) continue;
        for (const std::string& directory : adapter.directories()) {
            collect(problems, [&] {
                AdapterFile(directory, adapter, inputs.weights->spec())
                    .check_values(inputs.weights.get());
            });
        }
    }
    for (std::size_t i = 0; i < inputs.files.eval.size() && job.eval.generate.wanted(); ++i) {
        const Dataset* data = inputs.files.eval[i].get();
        if (data == nullptr) continue;
        collect(problems,
                [&] { prompts_in(*data, job.eval.generate.samples, job.datasets[i].name); });
    }
    const bool all_open = inputs.files.train.size() == job.datasets.size();
    if (all_open) check_prompts(job, inputs.files, problems);
    with_keys(problems, job.given_paths).throw_if_any();
    warn_of_dead_rules(job.adapters, inputs.weights->spec());
    inputs.infos = infos_of(job, inputs.files);
    return inputs;
}

std::vector<DatasetInfo> infos_of(const Job& job, const DatasetFiles& files) {
    std::vector<DatasetInfo> infos;
    for (std::size_t i = 0; i < files.train.size(); ++i) {
        const auto id = static_cast<DatasetId>(i);
        infos.push_back(dataset_info(files, id, job.datasets[i], batch_on(job.adapters, id)));
    }
    return infos;
}

RunIdentity identify(const Job& job, const JobInputs& inputs) {
    RunIdentity identity;
    identity.job_yaml = to_yaml(job);
    identity.weights_checksum = inputs.weights->checksum();
    for (const Dataset& dataset : inputs.files.train) {
        identity.data_checksums.push_back(dataset.checksum());
    }
    for (const auto& dataset : inputs.files.eval) {
        identity.eval_checksums.push_back(dataset ? dataset->checksum() : "");
    }
    return identity;
}

std::string describe_datasets(const Job& job, const DatasetFiles& files) {
    std::string text;
    for (std::size_t i = 0; i < job.datasets.size(); ++i) {
        text += "  " + describe_file(job.datasets[i].name, files.train[i]);
        text += describe_shares(job.datasets[i], files.train[i]);
        if (files.eval[i]) {
            text += "  " + describe_file(job.datasets[i].name + " (eval)", *files.eval[i]);
        }
    }
    return text;
}

}  // namespace loratrain
