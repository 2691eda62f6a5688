#include "data/dataset_files.h"

#include <cmath>

namespace loratrain {

namespace {

std::unique_ptr<Dataset> hold_out(const Job& job, const DatasetJob& dataset, Dataset& train,
                                  Problems& problems) {
    const std::int64_t samples = std::ssize(train.infos());
    const std::int64_t count = held_out_samples(dataset.eval_split, samples);
    if (count > 0) return std::make_unique<Dataset>(train.hold_out(count, job.run.seed));
    problems.add(cat(job.path, ": datasets.", dataset.name, ".eval_split"),
                 cat("leaves nothing to train on; samples in ", dataset.path, ": ", samples),
                 "hold out fewer, or give an eval_path");
    return nullptr;
}

}  // namespace

std::int64_t held_out_samples(const EvalSplit& split, std::int64_t samples) {
    // What a product like 0.07 * 100 is too large by does not count.
    constexpr double rounding = 1e-9;
    const std::int64_t count =
        split.samples > 0 ? split.samples
                          : static_cast<std::int64_t>(std::ceil(
                                split.fraction * static_cast<double>(samples) * (1.0 - rounding)));
    return count < samples ? count : 0;
}

void open_datasets(const Job& job, std::int64_t vocab_size, DatasetFiles& files,
                   Problems& problems) {
    const auto open = [&](const std::string& path, const DatasetJob& dataset) {
        std::unique_ptr<Dataset> opened;
        try {
            opened = std::make_unique<Dataset>(path, dataset, vocab_size);
        } catch (const InputError& error) {
            problems.add(error);
        }
        return opened;
    };
    for (std::size_t i = files.eval.size(); i < job.datasets.size(); ++i) {
        const DatasetJob& dataset = job.datasets[i];
        const auto train = open(dataset.path, dataset);
        files.eval.emplace_back();
        if (!dataset.eval_path.empty()) {
            files.eval.back() = open(dataset.eval_path, dataset);
        } else if (train && dataset.eval_split.any()) {
            files.eval.back() = hold_out(job, dataset, *train, problems);
        }
        if (train) files.train.push_back(std::move(*train));
    }
}

DatasetInfo dataset_info(const DatasetFiles& files, DatasetId id) {
    DatasetInfo info;
    info.train = files.train.at(index(id)).infos();
    if (files.eval.at(index(id))) info.eval = files.eval[index(id)]->infos();
    return info;
}

}  // namespace loratrain
