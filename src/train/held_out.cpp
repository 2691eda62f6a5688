#include "train/held_out.h"

#include <nlohmann/json.hpp>

#include "io/files.h"

namespace loratrain {

void write_held_out(const Job& job, const DatasetFiles& files) {
    nlohmann::ordered_json json;
    for (std::size_t i = 0; i < job.datasets.size(); ++i) {
        const DatasetJob& dataset = job.datasets[i];
        if (dataset.eval_split.any()) json[dataset.name] = files.eval[i]->positions();
    }
    if (!json.empty()) write_text_atomic(job.run.dir + "/held_out.json", json.dump() + "\n");
}

}  // namespace loratrain
