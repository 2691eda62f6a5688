#include "plan/memory/state_sizes.h"

#include <algorithm>
#include <numeric>

#include "base/arithmetic.h"
#include "base/dynamic_map.h"
#include "plan/memory/memory_model.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

constexpr std::int64_t least_coded = 4096;

std::uint64_t float_bytes(std::int64_t count) {
    return static_cast<std::uint64_t>(count) * sizeof(float);
}

}  // namespace

Optim optim_on(const AdapterJob& adapter, Linear linear) {
    return linear == Linear::embedding ? Optim::adamw_torch : adapter.optim;
}

bool has_coded_moments(Optim optim, std::int64_t parameters) {
    return optim == Optim::adamw_8bit && parameters >= least_coded;
}

bool has_coded_states(const Job& job) {
    return std::any_of(job.adapters.begin(), job.adapters.end(), [](const AdapterJob& adapter) {
        return adapter.optim == Optim::adamw_8bit;
    });
}

void StateSizes::add(std::int64_t parameters, bool is_trained, Optim optim) {
    (is_trained ? trained : frozen) += parameters;
    if (!is_trained || !has_coded_moments(optim, parameters)) return;
    coded += parameters;
    blocks += ceil_div(parameters, dynamic_block);
}

StateSizes StateSizes::times(std::int64_t layers) const {
    return {trained * layers, frozen * layers, norms * layers, coded * layers, blocks * layers};
}

StateSizes& StateSizes::operator+=(const StateSizes& other) {
    trained += other.trained;
    frozen += other.frozen;
    norms += other.norms;
    coded += other.coded;
    blocks += other.blocks;
    return *this;
}

StateSizes StateSizes::most(const StateSizes& a, const StateSizes& b) {
    StateSizes result;
    result.trained = std::max(a.trained, b.trained);
    result.frozen = std::max(a.frozen, b.frozen);
    result.norms = std::max(a.norms, b.norms);
    const std::int64_t plain = std::max(a.trained - a.coded, b.trained - b.coded);
    result.coded = result.trained - std::min(plain, result.trained);
    result.blocks = std::max(a.blocks, b.blocks);
    return result;
}

std::uint64_t StateSizes::parameter_bytes() const {
    return aligned(float_bytes(trained + frozen));
}

std::uint64_t StateSizes::gradient_bytes() const {
    return aligned(float_bytes(trained));
}

std::uint64_t StateSizes::moment_bytes() const {
    return aligned(float_bytes(trained - coded + blocks) + static_cast<std::uint64_t>(coded));
}

std::uint64_t StateSizes::norm_bytes() const {
    return aligned(float_bytes(norms));
}

std::uint64_t StateSizes::bytes() const {
    return parameter_bytes() + gradient_bytes() + 2 * moment_bytes() + norm_bytes();
}

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
