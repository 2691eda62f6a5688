#include "measure/profile_subject.h"

#include <algorithm>

#include "plan/replica_view.h"

namespace loratrain {

namespace {

constexpr std::size_t most_adapters = 8;

}  // namespace

Job profile_job(const Job& job, const Plan& plan) {
    Job result = job;
    result.adapters.clear();
    const bool share = job.schedule.policy == SchedulePolicy::balanced;
    const std::size_t count =
        share ? std::min(plan.first_admitted.size(), most_adapters) : std::size_t{1};
    for (std::size_t i = 0; i < count; ++i) {
        const AdapterId id = plan.first_admitted[i * plan.first_admitted.size() / count];
        result.adapters.push_back(job.adapter(id));
        result.adapters.back().init_from.clear();
        result.adapters.back().ref_adapter.clear();
        // What it starts with changes no time, and takes long to be exact.
        result.adapters.back().pissa_niter = 0;
        result.adapters.back().loss = {};
    }
    return result;
}

Plan profile_plan(const Job& job, const Plan& plan) {
    Plan result = plan;
    ReplicaPlan replica = only_replica(plan).replica;
    replica.recompute = Recompute::none;
    replica.max_in_flight = plan.backend == BackendKind::cuda ? 1 : 2;
    result.model.layers = profiled_layers;
    auto& layers = result.model.description_of;
    if (!layers.empty()) layers.resize(profiled_layers, layers.back());
    result.adapters.assign(job.adapters.size(), {});
    result.first_admitted.clear();
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        result.first_admitted.push_back(static_cast<AdapterId>(a));
    }
    replica.stages = {{0, 0, profiled_layers, false, false},
                      {0, profiled_layers, 0, false, true},
                      {0, profiled_layers, 0, false, false}};
    result.replicas = {replica};
    return result;
}

}  // namespace loratrain
