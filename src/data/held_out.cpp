#include "data/held_out.h"

#include "io/files.h"
#include "io/json_text.h"

namespace loratrain {

void write_held_out(const Job& job, const DatasetFiles& files) {
    OrderedJson json;
    for (std::size_t i = 0; i < job.datasets.size(); ++i) {
        const DatasetJob& dataset = job.datasets[i];
        if (!dataset.eval_split.any()) continue;
        const auto positions = files.eval[i]->positions_of_files();
        if (dataset.files.empty()) json[dataset.name] = positions.front();
        for (std::size_t f = 0; f < dataset.files.size(); ++f) {
            json[dataset.name][dataset.files[f].name] = positions[f];
        }
    }
    if (!json.empty()) write_text_atomic(job.run.dir + "/held_out.json", dump_json(json) + "\n");
}

}  // namespace loratrain
