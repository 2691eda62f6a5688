#include "plan/schedule/lora_columns.h"

#include <algorithm>

#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

/// Columns of all the job's adapters side by side; false where they are not few enough.
bool find_lasting_columns(const Job& job, const ReplicaView& view, LoraColumns& columns) {
    if (view.plan.backend != BackendKind::cuda) return false;
    std::int32_t next = 0;
    for (std::size_t a = 0; a < job.adapters.size() && next <= free_columns; ++a) {
        columns.lasting.push_back(next);
        next += job.adapters[a].largest_rank();
    }
    columns.width = padded_columns(next);
    if (columns.width <= std::min(view.replica.pad_columns, free_columns)) return true;
    columns.lasting.clear();
    return false;
}

}  // namespace

LoraColumns lora_columns(const Job& job, const ReplicaView& view,
                         std::span<const Segment> segments) {
    LoraColumns columns;
    columns.augmented = find_lasting_columns(job, view, columns);
    if (columns.augmented) {
        for (const Segment& segment : segments) {
            columns.first.push_back(columns.lasting[index(segment.adapter)]);
        }
        return columns;
    }
    std::int32_t next = 0;
    std::int32_t largest = 0;
    for (const Segment& segment : segments) {
        const std::int32_t rank = job.adapter(segment.adapter).largest_rank();
        columns.first.push_back(next);
        next += rank;
        largest = std::max(largest, rank);
    }
    columns.augmented = padded_columns(next) <= view.replica.pad_columns;
    columns.width = padded_columns(columns.augmented ? next : largest);
    if (!columns.augmented) std::fill(columns.first.begin(), columns.first.end(), 0);
    return columns;
}

}  // namespace loratrain
