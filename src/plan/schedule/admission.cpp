#include "plan/schedule/admission.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

std::vector<AdapterId> admission_order(const Job& job, std::span<const AdapterClaim> claims) {
    LORATRAIN_CHECK(claims.size() == job.adapters.size(), "one claim per adapter");
    std::vector<AdapterId> order;
    for (std::size_t a = 0; a < claims.size(); ++a) {
        if (claims[a].unfinished) order.push_back(static_cast<AdapterId>(a));
    }
    std::stable_sort(order.begin(), order.end(), [&](AdapterId a, AdapterId b) {
        const auto rank = [&](AdapterId id) {
            return std::tuple(job.adapter(id).priority, claims[index(id)].begun);
        };
        return rank(a) > rank(b);
    });
    return order;
}

std::size_t most_admitted(const Job& job) {
    const SchedulePolicy policy = job.schedule.policy;
    if (policy == SchedulePolicy::sequential || policy == SchedulePolicy::one_f_one_b) return 1;
    constexpr auto all = std::numeric_limits<std::size_t>::max();
    return job.schedule.max_adapters ? static_cast<std::size_t>(*job.schedule.max_adapters) : all;
}

std::uint64_t adapter_room(const Plan& plan, std::size_t stage_index) {
    const MemoryPlan& memory = plan.memory[stage_index];
    const std::uint64_t rest = memory.total() - memory.adapters;
    return plan.bytes_per_rank > rest ? plan.bytes_per_rank - rest : 0;
}

std::vector<AdapterId> admit(const Job& job, const Plan& plan,
                             std::span<const AdapterClaim> claims) {
    const std::size_t stages = plan.replica.stages.size();
    std::vector<std::uint64_t> taken(stages, 0);
    const auto fits = [&](AdapterId adapter) {
        if (plan.bytes_per_rank == 0) return true;
        bool all = true;
        for (std::size_t s = 0; s < stages; ++s) {
            taken[s] += adapter_bytes_on(plan.replica.stages[s], adapter, job, plan.model);
            all = all && taken[s] <= adapter_room(plan, s);
        }
        return all;
    };
    const std::vector<AdapterId> order = admission_order(job, claims);
    const std::size_t most = std::min(order.size(), most_admitted(job));
    std::size_t admitted = 0;
    while (admitted < most && (fits(order[admitted]) || admitted == 0)) ++admitted;
    return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(admitted)};
}

}  // namespace loratrain
