#include "measure/profile_subject.h"

#include <algorithm>
#include <vector>

#include "plan/replica_view.h"

namespace loratrain {

namespace {

constexpr std::size_t most_adapters = 8;

/// Descriptions of the first `count` layers. If all have one kind of mixer, the last gets the
/// first description with another.
void take_layers(const ModelSpec& model, std::int32_t count,
                 std::vector<std::uint16_t>& description_of) {
    if (description_of.empty()) return;
    description_of.resize(static_cast<std::size_t>(count), description_of.back());
    const auto kind = [&](std::uint16_t of) { return model.descriptions[of].mixer.index(); };
    const std::size_t first = kind(description_of.front());
    const auto has_other = [&](std::uint16_t of) { return kind(of) != first; };
    if (std::any_of(description_of.begin(), description_of.end(), has_other)) return;
    for (std::uint16_t d = 0; d < model.descriptions.size(); ++d) {
        if (has_other(d)) description_of.back() = d;
    }
}

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

std::int32_t profiled_layers(const ModelSpec& model) {
    const bool mixed = model.attention_layers() != nullptr && model.delta_nets() != nullptr;
    return mixed ? 4 : 2;
}

Plan profile_plan(const Job& job, const Plan& plan) {
    Plan result = plan;
    ReplicaPlan replica = only_replica(plan).replica;
    replica.recompute = Recompute::none;
    replica.max_in_flight = plan.backend == BackendKind::cuda ? 1 : 2;
    const std::int32_t count = profiled_layers(plan.model);
    result.model.layers = count;
    take_layers(plan.model, count, result.model.description_of);
    result.adapters.assign(job.adapters.size(), {});
    result.first_admitted.clear();
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        result.first_admitted.push_back(static_cast<AdapterId>(a));
    }
    replica.stages = {
        {0, 0, count, false, false}, {0, count, 0, false, true}, {0, count, 0, false, false}};
    result.replicas = {replica};
    return result;
}

}  // namespace loratrain
