#pragma once

#include <cstdint>
#include <vector>

#include "base/text.h"
#include "config/job.h"
#include "plan/plan.h"
#include "support/summary_lengths.h"

namespace loratrain {

/// Adapters of rank 16 with batches of so many samples, each on a dataset of its own.
inline Job summary_job(int adapters, std::int32_t batch) {
    Job job;
    job.path = "bench";
    for (int a = 0; a < adapters; ++a) {
        DatasetJob dataset;
        dataset.name = cat("data-", a);
        job.datasets.push_back(dataset);
        AdapterJob adapter;
        adapter.name = cat("adapter-", a);
        adapter.dataset = DatasetId{a};
        adapter.r = 16;
        adapter.global_batch_size = batch;
        job.adapters.push_back(adapter);
    }
    return job;
}

/// The datasets of summary_rounds' four adapters, with so many samples each.
inline std::vector<DatasetInfo> summary_data(const Lengths* dataset, std::int32_t samples) {
    std::vector<DatasetInfo> infos(4);
    for (const Round& round : summary_rounds(dataset, samples / 8)) {
        for (const PendingBatch& batch : round) {
            for (const SampleRef& sample : batch.samples) {
                infos[index(batch.adapter)].train.push_back({sample.tokens, sample.targets});
            }
        }
    }
    return infos;
}

}  // namespace loratrain
