#include "plan/deploy/layout_player.h"

#include <algorithm>
#include <utility>

#include "plan/pack/batch_source.h"
#include "plan/replica_view.h"
#include "plan/schedule/schedule_stream.h"
#include "plan/timing/list_schedule.h"

namespace loratrain {

namespace {

constexpr std::size_t most_samples_balanced = 1024;
constexpr std::size_t most_samples_quick = 16384;  // the other policies pack in no time
constexpr std::int32_t most_rounds = 32;

std::int64_t tokens_played(std::span<const Round> rounds) {
    std::int64_t tokens = 0;
    for (const Round& round : rounds) {
        for (const PendingBatch& batch : round) {
            for (const SampleRef& sample : batch.samples) tokens += sample.tokens;
        }
    }
    return tokens;
}

}  // namespace

double LayoutPlayer::speed(const Plan& plan, bool rough) {
    return speeds(std::span(&plan, 1), rough).front();
}

std::vector<double> LayoutPlayer::speeds(std::span<const Plan> plans, bool rough) {
    const Plan& first_plan = plans.front();
    const std::vector<Round>& rounds = rounds_of(first_plan);
    PackRules packed = pack_rules(job_, only_replica(first_plan), 1);
    if (packed.packing == Packing::milp) packed.packing = Packing::greedy;
    packed.changes_per_item = 0;
    packed.rough = rough;
    std::vector<PackRules> timed(plans.size(), packed);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const ReplicaPlan& replica = plans[i].replicas.front();
        timed[i].stages = replica.stages;
        timed[i].costs = costs_;
        timed[i].recompute = replica.recompute;
        timed[i].max_in_flight = replica.max_in_flight;
    }
    const auto block = static_cast<std::size_t>(
        rounds_per_block(job_, first_plan, datasets_, first_plan.first_admitted));
    std::vector<double> seconds(plans.size(), 0.0);
    std::int64_t tokens = 0;
    for (std::size_t first = 0; first < rounds.size(); first += block) {
        const std::size_t count = std::min(block, rounds.size() - first);
        if (first > 0 && (one_block_ || count < block)) break;
        const std::span<const Round> part = std::span(rounds).subspan(first, count);
        const std::vector<double> times =
            block_times(packed, timed, part, packed_before(packed, part));
        for (std::size_t i = 0; i < times.size(); ++i) seconds[i] += 1e-9 * times[i];
        tokens += tokens_played(part);
    }
    for (double& value : seconds) value = static_cast<double>(tokens) / value;
    return seconds;
}

const std::vector<Round>& LayoutPlayer::rounds_of(const Plan& plan) {
    const auto [known, fresh] = rounds_.try_emplace(plan.first_admitted);
    if (!fresh) return known->second;
    const std::size_t most = job_.schedule.policy == SchedulePolicy::balanced
                                 ? most_samples_balanced
                                 : most_samples_quick;
    known->second =
        rounds_at_start(job_, plan, datasets_, plan.first_admitted, {most_rounds, most});
    return known->second;
}

PackingsByDepth& LayoutPlayer::packed_before(PackRules rules, std::span<const Round> rounds) {
    for (StagePlan& stage : rules.stages) stage.kept_layers = 0;
    const auto known = std::ranges::find_if(packed_, [&](const Packed& other) {
        return other.rounds.data() == rounds.data() && other.rounds.size() == rounds.size() &&
               other.rules.capacity == rules.capacity && other.rules.rough == rules.rough &&
               std::ranges::equal(other.rules.stages, rules.stages, compute_alike);
    });
    if (known != packed_.end()) return known->packings;
    return packed_.emplace_back(Packed{rounds, std::move(rules)}).packings;
}

double played_speed(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                    const CostModel& costs) {
    return LayoutPlayer(job, datasets, costs).speed(plan, false);
}

double whole_job_speed(const Job& job, Plan plan, std::span<const DatasetInfo> datasets,
                       const SpeedLimits& limits, std::int32_t rounds) {
    plan.costs.host.new_rows = {};
    plan.costs.host.new_targets = {};
    const auto prediction = predict_within(job, plan, datasets, rounds, limits);
    return prediction ? prediction->tokens_per_second() : 0.0;
}

}  // namespace loratrain
