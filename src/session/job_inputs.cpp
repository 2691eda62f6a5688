#include "session/job_inputs.h"

#include <functional>
#include <limits>

#include "base/error.h"
#include "config/job_yaml.h"
#include "config/model_presets.h"
#include "data/dataset_files.h"
#include "io/adapters/adapter_file.h"

namespace loratrain {

namespace {

void collect(Problems& problems, const std::function<void()>& work) {
    try {
        work();
    } catch (const InputError& error) {
        problems.add(error);
    }
}

std::string describe_file(const std::string& name, const LengthReport& report) {
    std::string text = cat(name, ": ", report.samples, " samples");
    if (report.truncated > 0) text += cat(", ", report.truncated, " truncated");
    if (report.dropped > 0) text += cat(", ", report.dropped, " dropped (over length)");
    if (report.without_target > 0) text += cat(", ", report.without_target, " without a target");
    if (report.held_out > 0) text += cat(", ", report.held_out, " held out for evaluation");
    return text + '\n';
}

}  // namespace

std::unique_ptr<WeightSource> open_weights(const Job& job) {
    if (job.model.synthetic.empty()) return open_base_weights(job.model.weights);
    return synthetic_base_weights(*model_preset(job.model.synthetic), job.run.seed);
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
    for (const AdapterJob& adapter : job.adapters) {
        if (adapter.init_from.empty() || !inputs.weights) continue;
        collect(problems, [&] {
            AdapterFile(adapter.init_from, adapter, inputs.weights->spec()).check_values();
        });
    }
    problems.throw_if_any();
    inputs.infos = infos_of(inputs.files);
    return inputs;
}

std::vector<DatasetInfo> infos_of(const DatasetFiles& files) {
    std::vector<DatasetInfo> infos;
    for (std::size_t i = 0; i < files.train.size(); ++i) {
        infos.push_back(dataset_info(files, static_cast<DatasetId>(i)));
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
        text += "  " + describe_file(job.datasets[i].name, files.train[i].report());
        if (files.eval[i]) {
            text += "  " + describe_file(job.datasets[i].name + " (eval)", files.eval[i]->report());
        }
    }
    return text;
}

}  // namespace loratrain
