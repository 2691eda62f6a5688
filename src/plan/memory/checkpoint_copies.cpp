#include "plan/memory/checkpoint_copies.h"

#include <numeric>

#include "plan/memory/memory_model.h"
#include "plan/tensor_shard.h"

namespace loratrain {

std::vector<std::uint64_t> checkpoint_copies(const Job& job, const Plan& plan,
                                             std::span<const AdapterId> adapters) {
    const ReplicaPlan& replica = plan.replicas.front();
    const ModelSpec model = lane_model(plan.model, replica.tensor);
    std::vector<std::uint64_t> copies(plan.memory.size(), 0);
    std::uint64_t all = 0;
    for (const StagePlan& stage : replica.stages) {
        std::uint64_t bytes = 0;
        for (const AdapterId adapter : adapters) {
            bytes += adapter_bytes_on(stage, adapter, job, model);  // its gradients as well
        }
        for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
            const std::int32_t rank = stage.rank + lane;
            copies[static_cast<std::size_t>(rank)] = bytes;
            all += bytes;
        }
    }
    copies.front() = all;
    return copies;
}

bool checkpoint_copies_fit(const Job& job, const Plan& plan, std::span<const AdapterId> adapters,
                           std::uint64_t free_host_bytes) {
    const std::vector<std::uint64_t> copies = checkpoint_copies(job, plan, adapters);
    if (plan.backend == BackendKind::cuda) {
        return std::accumulate(copies.begin(), copies.end(), std::uint64_t{0}) <= free_host_bytes;
    }
    if (plan.bytes_per_rank == 0) return true;
    for (std::size_t rank = 0; rank < copies.size(); ++rank) {
        if (plan.memory[rank].total() + copies[rank] > plan.bytes_per_rank) return false;
    }
    return true;
}

}  // namespace loratrain
