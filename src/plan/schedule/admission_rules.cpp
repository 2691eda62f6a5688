#include "plan/schedule/admission_rules.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "plan/cost/cost_model.h"
#include "plan/memory/memory_model.h"
#include "plan/replica_view.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

/// What adapters take together of the ranks' memory.
class ResidentAdapters {
  public:
    ResidentAdapters(const Job& job, const Plan& plan) : job_(job), plan_(plan) {}

    /// One more; whether all still fit.
    bool take(AdapterId adapter) {
        if (plan_.bytes_per_rank == 0) return true;
        bool fit = true;
        for (const ReplicaPlan& replica : plan_.replicas) {
            const ModelSpec model = lane_model(plan_.model, replica.tensor);
            for (const StagePlan& stage : replica.stages) {
                std::uint64_t& bytes = taken_[stage.rank];
                bytes += adapter_bytes_on(stage, adapter, job_, model);
                fit = fit && bytes <= adapter_room(plan_, stage.rank);
            }
        }
        return fit;
    }

  private:
    const Job& job_;
    const Plan& plan_;
    std::map<std::int32_t, std::uint64_t> taken_;  ///< by rank: lanes of a stage take the same
};

}  // namespace

std::vector<AdapterId> admission_order(const Job& job, std::span<const AdapterClaim> claims) {
    LORATRAIN_CHECK(claims.size() == job.adapters.size(), "one claim per adapter");
    std::vector<AdapterId> order;
    for (std::size_t a = 0; a < claims.size(); ++a) {
        if (claims[a].unfinished) order.push_back(static_cast<AdapterId>(a));
    }
    std::stable_sort(order.begin(), order.end(), [&](AdapterId a, AdapterId b) {
        const auto rank = [&](AdapterId id) {
            const AdapterClaim& claim = claims[index(id)];
            return std::tuple(-claim.speculation, job.adapter(id).priority, claim.begun,
                              claim.steps_left);
        };
        return rank(a) > rank(b);
    });
    return order;
}

double tokens_of_fixed_costs(const Plan& plan) {
    constexpr std::int64_t many = std::int64_t{1} << 20;
    double tokens = 0.0;
    for (const ReplicaView& view : views_of(plan)) {
        const ReplicaPlan& replica = view.replica;
        const auto seconds = [&](const MicrobatchLoad& load) {
            return slowest_seconds(costs_of(view), replica.stages, load, replica.recompute);
        };
        const double fixed = seconds(MicrobatchLoad{});
        const double of_many = seconds(MicrobatchLoad{many, 0.0, many}) - fixed;
        if (of_many <= 0.0) continue;
        tokens += fixed / of_many * static_cast<double>(many) *
                  static_cast<double>(replica.stages.size());
    }
    return tokens;
}

std::uint64_t adapter_room(const Plan& plan, std::int32_t rank) {
    const MemoryPlan& memory = plan.memory[static_cast<std::size_t>(rank)];
    const std::uint64_t rest = memory.total() - memory.adapters;
    return plan.bytes_per_rank > rest ? plan.bytes_per_rank - rest : 0;
}

bool fit_together(const Job& job, const Plan& plan, std::span<const AdapterId> adapters) {
    ResidentAdapters resident(job, plan);
    return std::all_of(adapters.begin(), adapters.end(),
                       [&](AdapterId adapter) { return resident.take(adapter); });
}

std::vector<AdapterId> admit(const Job& job, const Plan& plan,
                             std::span<const AdapterClaim> claims) {
    ResidentAdapters resident(job, plan);
    const std::vector<AdapterId> order = admission_order(job, claims);
    const std::size_t most = std::min(order.size(), most_admitted(job));
    std::size_t admitted = 0;
    while (admitted < most && (resident.take(order[admitted]) || admitted == 0)) ++admitted;
    return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(admitted)};
}

}  // namespace loratrain
