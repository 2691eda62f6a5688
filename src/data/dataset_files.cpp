#include "data/dataset_files.h"

namespace loratrain {

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
        if (auto train = open(dataset.path, dataset)) files.train.push_back(std::move(*train));
        files.eval.emplace_back();
        if (!dataset.eval_path.empty()) files.eval.back() = open(dataset.eval_path, dataset);
    }
}

DatasetInfo dataset_info(const DatasetFiles& files, DatasetId id) {
    DatasetInfo info;
    info.train = files.train.at(index(id)).infos();
    if (files.eval.at(index(id))) info.eval = files.eval[index(id)]->infos();
    return info;
}

}  // namespace loratrain
