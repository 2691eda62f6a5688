#include "train/checkpoint/adapter_transfer.h"
#include "plan/replica_view.h"

#include <iterator>

#include "base/shape.h"

namespace loratrain {

namespace {

std::vector<float> flatten(const std::vector<NamedTensor>& tensors) {
    std::vector<float> values;
    for (const NamedTensor& tensor : tensors) {
        values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    }
    return values;
}

void unflatten(const std::vector<float>& values, std::vector<NamedTensor>& tensors) {
    auto at = values.begin();
    for (NamedTensor& tensor : tensors) {
        const std::int64_t count = element_count(tensor.shape);
        tensor.values.assign(at, at + count);
        at += count;
    }
}

}  // namespace

std::vector<NamedTensor> gather_adapter(const MpiSession& mpi, const Job& job, const Plan& plan,
                                        AdapterBank& bank, AdapterId adapter,
                                        AdapterBank::Part part) {
    const std::vector<NamedTensor> mine = bank.download(adapter, part);
    if (!mpi.is_root()) {
        send_floats(mpi, flatten(mine), 0);
        return {};
    }
    std::vector<NamedTensor> all;
    for (const StagePlan& stage : only_replica(plan).replica.stages) {
        std::vector<NamedTensor> part_tensors = mine;
        if (stage.rank != 0) {
            part_tensors =
                adapter_tensors(job.adapter(adapter), plan.model, layers_of(stage, adapter), part);
            unflatten(receive_floats(mpi, stage.rank), part_tensors);
        }
        all.insert(all.end(), std::make_move_iterator(part_tensors.begin()),
                   std::make_move_iterator(part_tensors.end()));
    }
    return all;
}

}  // namespace loratrain
