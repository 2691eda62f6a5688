#include "plan/deploy/replica_options.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/device.h"
#include "plan/cost/host_links.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/check_precision.h"
#include "plan/deploy/keep_layers.h"
#include "plan/deploy/partition_layers.h"
#include "plan/deploy/workload.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/state_sizes.h"
#include "plan/pack/batch_source.h"
#include "plan/pack/length_buckets.h"
#include "plan/pack/sample_dispatch.h"
#include "plan/replica_view.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

/// The longest samples are few and take a replica for long: their buckets are no wider.
constexpr std::int32_t long_parts = 16;  ///< of the longest sample
constexpr std::uint64_t size_steps = 16;

/// Groups of samples that are dealt as one.
struct LengthBucket {
    std::vector<SampleRef> samples;
    std::int64_t groups = 0;
};

std::int64_t group_tokens(std::span<const SampleRef> group) {
    std::int64_t tokens = 0;
    for (const SampleRef& sample : group) tokens += sample.tokens;
    return tokens;
}

/// Calls `use` with every group of the rounds.
template <typename Use>
void for_each_group(const std::vector<Round>& rounds, const Use& use) {
    for (const Round& round : rounds) {
        for (const PendingBatch& batch : round) {
            const auto size = static_cast<std::size_t>(batch.group_samples);
            for (std::size_t first = 0; first < batch.samples.size(); first += size) {
                use(std::span(batch.samples).subspan(first, size));
            }
        }
    }
}

/// Costs of what grows with the rows of a microbatch alone.
CostModel growing_alone(CostModel costs) {
    for (CostLine* line : {&costs.layer_forward, &costs.layer_backward, &costs.head}) {
        line->fixed = line->per_segment = 0.0;
    }
    costs.host = {};
    costs.layer_transfer = costs.layer_traffic = costs.link_power = 0.0;
    costs.offload_per_token = 0.0;
    return costs;
}

/// Over the stages, recomputing nothing.
double mean_stage_seconds(const PackRules& replica, std::span<const SampleRef> samples) {
    MicrobatchLoad load;
    for (const SampleRef& sample : samples) {
        load += {sample.tokens, replica.span.squares(sample.tokens), sample.targets};
    }
    double sum = 0.0;
    for (const StagePlan& stage : replica.stages) {
        sum += stage_seconds(replica.costs, stage, load, Recompute::none);
    }
    return sum / static_cast<double>(replica.stages.size());
}

class OptionList {
  public:
    OptionList(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
               const Cluster& cluster)
        : job_(job),
          plan_(plan),
          datasets_(datasets),
          cluster_(cluster),
          work_(workload_of(job, plan.model, cluster.backend, datasets)) {}

    std::optional<ReplicaRoom> smallest_for(std::int64_t tokens) const {
        if (plan_.bytes_per_rank == 0) return std::nullopt;
        std::vector<ReplicaJob> cuts;
        for (const std::int32_t tensor : tensor_degrees(plan_.model)) {
            std::ranges::copy(cuts_of(tensor), std::back_inserter(cuts));
        }
        const auto rank_of = [&](const ReplicaJob& cut) {
            return std::tuple(cut.tensor * cut.stages, hosts_of_lanes(cut.tensor), cut.stages);
        };
        std::stable_sort(cuts.begin(), cuts.end(),
                         [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
        for (const ReplicaJob& cut : cuts) {
            const Plan plan = plan_of(cut.tensor, cut.stages, costs_of_lanes(cut.tensor));
            const ReplicaView view = view_of(plan, plan.replicas.front());
            std::int64_t most = 0;
            for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
                if (!may_use(job_, recompute)) continue;
                most = std::max(most, largest_fitting_tokens(job_, view, recompute, tokens));
            }
            if (most > 0) return ReplicaRoom{cut, most};
        }
        return std::nullopt;
    }

    DeploymentOptions run() {
        found_.task.ranks = cluster_.ranks;
        found_.task.adapters =
            static_cast<double>(std::max<std::size_t>(1, plan_.first_admitted.size()));
        for (const std::int32_t tensor : tensor_degrees(plan_.model)) {
            add_stages_of(tensor);
        }
        add_samples();
        return std::move(found_);
    }

  private:
    bool may_have(std::int32_t tensor) const {
        if (tensor > 1 && has_coded_states(job_)) return false;
        return (tensor & (tensor - 1)) == 0 && tensor <= cluster_.ranks &&
               (!plan_.fp8_linears || takes_fp8(lane_model(plan_.model, tensor)));
    }

    /// The replicas of so many lanes that the job may have, fewest stages first.
    std::vector<ReplicaJob> cuts_of(std::int32_t tensor) const {
        std::vector<ReplicaJob> cuts;
        if (!may_have(tensor)) return cuts;
        const std::int32_t most =
            std::min(static_cast<std::int32_t>(plan_.model.layers), cluster_.ranks / tensor);
        for (std::int32_t n = 1; n <= most; ++n) {
            const ReplicaJob cut{tensor, n};
            if (can_hold_adapters(job_, plan_.model, cut)) cuts.push_back(cut);
        }
        return cuts;
    }

    std::int32_t hosts_of_lanes(std::int32_t tensor) const {
        return (tensor - 1) / std::max(1, cluster_.ranks_per_node) + 1;
    }

    CostModel costs_of_lanes(std::int32_t tensor) const {
        CostModel costs = built_in_costs(plan_.model, plan_.compute, device_of(cluster_), tensor,
                                         plan_.fp8_linears);
        add_dora(job_, plan_.model, costs);
        add_experts(job_, plan_.model, device_of(cluster_), costs);
        add_transfers(job_, plan_, device_of(cluster_), tensor, costs);
        add_hosts(job_, cluster_, costs);
        return over_hosts(plan_, tensor, hosts_of_lanes(tensor), costs);
    }

    std::int64_t most_tokens(const FittingTokens& fitting) const {
        return std::max(may_use(job_, Recompute::none) ? fitting.none : 0,
                        may_use(job_, Recompute::layer) ? fitting.layer : 0);
    }

    void add_stages_of(std::int32_t tensor) {
        const std::vector<ReplicaJob> cuts = cuts_of(tensor);
        if (cuts.empty()) return;
        const CostModel costs = costs_of_lanes(tensor);
        for (const ReplicaJob& cut : cuts) add(tensor, cut.stages, costs);
    }

    Plan plan_of(std::int32_t tensor, std::int32_t stages, const CostModel& costs) const {
        const Recompute asked = job_.parallel.recompute;
        const Recompute assumed = asked == Recompute::layer ? asked : Recompute::none;
        Plan plan = plan_;
        ReplicaPlan& replica = plan.replicas.front();
        replica.tensor = tensor;
        replica.stages = as_job_says(choose_split(static_cast<std::int32_t>(plan_.model.layers),
                                                  stages, costs, costs, work_.usual.total, assumed),
                                     job_);
        replica.max_in_flight = stages;
        plan.replicas.resize(1);
        return plan;
    }

    void add(std::int32_t tensor, std::int32_t stages, const CostModel& costs) {
        Plan plan = plan_of(tensor, stages, costs);
        const ReplicaView view = view_of(plan, plan.replicas.front());
        const std::vector<MicrobatchChoice> sizes = sizes_of_microbatches(view);
        add_sizes(view, costs, sizes);
        const bool is_only = tensor * stages == cluster_.ranks;
        const bool holds = std::ranges::any_of(
            sizes, [&](const auto& size) { return size.tokens >= work_.longest_sample; });
        if (!is_only || holds || !admit_fewer(plan)) return;
        add_sizes(view, costs, sizes_of_microbatches(view));
    }

    /// Half as many adapters at once, and so on, until the longest sample fits beside them; false
    /// where it does beside none.
    bool admit_fewer(Plan& plan) const {
        const ReplicaView view = view_of(plan, plan.replicas.front());
        const auto fits = [&] {
            return std::ranges::any_of(
                std::array{Recompute::none, Recompute::layer}, [&](Recompute recompute) {
                    return may_use(job_, recompute) &&
                           fits_memory(job_, view, work_.longest_sample, recompute);
                });
        };
        while (plan.first_admitted.size() > 1) {
            plan.first_admitted.resize(plan.first_admitted.size() / 2);
            if (fits()) return true;
        }
        return false;
    }

    void add_sizes(const ReplicaView& view, const CostModel& costs,
                   const std::vector<MicrobatchChoice>& sizes) {
        const ReplicaPlan& replica = view.replica;
        const bool recomputes = !sizes.empty() && sizes.front().recompute == Recompute::layer;
        for (const MicrobatchChoice& size : sizes) {
            PackRules& rules = rules_.emplace_back();
            rules.capacity = size.tokens;
            rules.stages = replica.stages;
            rules.tensor = replica.tensor;
            rules.span = AttentionSpan(plan_.model);
            rules.costs = costs;
            rules.recompute = size.recompute;
            at_once_.push_back(static_cast<double>(view.plan.first_admitted.size()));
            ReplicaJob& entry = found_.replicas.emplace_back();
            entry.tensor = replica.tensor;
            entry.stages = static_cast<std::int32_t>(replica.stages.size());
            if (size.tokens < work_.longest_sample) entry.microbatch_tokens = size.tokens;
            if (job_.parallel.recompute != Recompute::automatic || !recomputes) continue;
            entry.recompute = size.recompute;  // what is dealt to a replica depends on it
            entry.recomputes_least = size.recompute == Recompute::layer;
        }
    }

    /// fitting_tokens() of so many tokens or more.
    static FittingTokens at_least(std::int64_t least, FittingTokens fitting) {
        if (fitting.none < least) fitting.none = 0;
        if (fitting.layer < least) fitting.layer = 0;
        return fitting;
    }

    /// As the planner chooses, and where that recomputes, the most that fits without; none where
    /// nothing fits. Sizes in between gain nothing: dispatch takes what recomputes some layers for
    /// what recomputes all, as results must not depend on how many memory leaves.
    std::vector<MicrobatchChoice> sizes_of_microbatches(const ReplicaView& view) const {
        const std::int64_t longest = work_.longest_sample;
        const std::int64_t wanted = work_.wanted_tokens();
        if (plan_.bytes_per_rank == 0) return {choose_microbatch(job_, view, {}, wanted, longest)};
        const FittingTokens fitting = fitting_tokens(job_, view, 1);
        const std::int64_t most = most_tokens(fitting);
        if (most == 0) return {};
        Job sized = job_;
        auto& given = sized.parallel.microbatch_tokens;
        if (given) given = std::min(*given, most);
        const auto choice_of = [&] {
            const std::int64_t least = std::min(longest, given.value_or(most));
            return choose_microbatch(sized, view, at_least(least, fitting), wanted, least);
        };
        const MicrobatchChoice largest = choice_of();
        if (!fits_memory(job_, view, largest.tokens, largest.recompute)) return {};
        std::vector<MicrobatchChoice> sizes{largest};
        const bool recomputes = largest.recompute == Recompute::layer;
        if (!recomputes || fitting.none == 0 || !may_use(job_, Recompute::none)) return sizes;
        given = in_steps(std::min(fitting.none, given.value_or(fitting.none)));
        const MicrobatchChoice without = choice_of();
        if (without.recompute == Recompute::layer) return sizes;
        sizes.push_back(without);
        return sizes;
    }

    /// Of powers of two, 16 or more: a little more or less memory seldom changes the size.
    static std::int64_t in_steps(std::int64_t tokens) {
        const auto step = std::max<std::uint64_t>(
            1, std::bit_floor(static_cast<std::uint64_t>(tokens) / size_steps));
        return tokens - tokens % static_cast<std::int64_t>(step);
    }

    std::vector<std::int32_t> bucket_bounds(const std::vector<Round>& rounds) const {
        std::vector<std::int32_t> lengths;
        for_each_group(rounds, [&](std::span<const SampleRef> group) {
            lengths.push_back(static_cast<std::int32_t>(group_tokens(group)));
        });
        const std::vector<std::int32_t> usual = length_buckets(lengths, default_buckets);
        std::set<std::int32_t> bounds(usual.begin(), usual.end());
        const auto longest = static_cast<std::int32_t>(
            std::max<std::int64_t>(work_.longest_sample, usual.empty() ? 0 : usual.back()));
        for (std::int32_t part = 1; part <= long_parts; ++part) {
            bounds.insert(static_cast<std::int32_t>(std::int64_t{longest} * part / long_parts));
        }
        bounds.erase(0);
        for (const PackRules& rules : rules_) {
            if (rules.capacity < longest) bounds.insert(static_cast<std::int32_t>(rules.capacity));
        }
        return {bounds.begin(), bounds.end()};
    }

    void add_samples() {
        const std::vector<Round> rounds =
            rounds_at_start(job_, plan_, datasets_, plan_.first_admitted, {});
        const std::vector<std::int32_t> bounds = bucket_bounds(rounds);
        std::map<std::int32_t, LengthBucket> buckets;
        for (const std::int32_t end : bounds) buckets[end];
        for_each_group(rounds, [&](std::span<const SampleRef> group) {
            const auto tokens = static_cast<std::int32_t>(group_tokens(group));
            LengthBucket& bucket = buckets.at(padded_length(bounds, tokens));
            bucket.samples.insert(bucket.samples.end(), group.begin(), group.end());
            ++bucket.groups;
        });
        for (const auto& [end, bucket] : buckets) {
            found_.task.samples.push_back(static_cast<double>(bucket.groups) /
                                          static_cast<double>(rounds.size()));
        }
        for (const Round& round : rounds) {
            std::vector<std::int32_t>& counts = found_.task.rounds.emplace_back(bounds.size(), 0);
            for_each_group({round}, [&](std::span<const SampleRef> group) {
                const auto tokens = static_cast<std::int32_t>(group_tokens(group));
                ++counts[static_cast<std::size_t>(
                    std::lower_bound(bounds.begin(), bounds.end(), tokens) - bounds.begin())];
            });
        }
        for (const auto& [end, bucket] : buckets) {
            found_.task.tokens += static_cast<double>(group_tokens(bucket.samples)) /
                                  static_cast<double>(rounds.size());
        }
        for (std::size_t i = 0; i < rules_.size(); ++i) add_seconds(i, buckets);
    }

    /// An adapter that trains alone waits for its step before its next round begins, and adapters
    /// that train one by one all do. Beside others a pipeline stays full from round to round.
    void set_filling(std::size_t i, ReplicaOption& option) const {
        const double often = at_once_[i] > 1.0
                                 ? 1.0 / static_cast<double>(found_.task.rounds.size())
                                 : found_.task.adapters;
        const double once = filling_seconds(rules_[i]);
        option.filling = often * once;
        option.ahead = std::max(0.0, once - option.filling);
    }

    /// As if all other replicas were on other hosts. On one host sums take next to nothing.
    double exchange_of(const PackRules& rules) const {
        const auto stages = static_cast<std::int32_t>(rules.stages.size());
        if (!rules.costs.between_hosts || rules.tensor * stages == cluster_.ranks) return 0.0;
        const ModelSpec lane = lane_model(plan_.model, rules.tensor);
        std::int32_t layers = 0;
        for (const StagePlan& stage : rules.stages) layers = std::max(layers, stage.layer_count);
        double seconds = 0.0;
        for (const AdapterId a : plan_.first_admitted) {
            const auto parameters =
                static_cast<double>(adapter_parameters(job_.adapter(a), lane, layers));
            seconds += exchange_seconds(rules.costs.link(false), parameters);
        }
        return seconds;
    }

    void add_seconds(std::size_t i, const std::map<std::int32_t, LengthBucket>& buckets) {
        const PackRules& rules = rules_[i];
        ReplicaOption& option = found_.task.options.emplace_back();
        option.ranks = found_.replicas[i].tensor * found_.replicas[i].stages;
        set_filling(i, option);
        option.exchange = exchange_of(rules);
        PackRules least = rules;
        least.costs = growing_alone(rules.costs);
        for (const auto& [end, bucket] : buckets) {
            if (end > rules.capacity) break;
            const std::vector<SampleRef> longest{{0, end, end}};
            const bool empty = bucket.groups == 0;
            const std::span<const SampleRef> samples = empty ? longest : bucket.samples;
            const double groups = empty ? 1.0 : static_cast<double>(bucket.groups);
            option.seconds.push_back(dispatch_seconds(rules, samples) / groups);
            option.least.push_back(mean_stage_seconds(least, samples) / groups);
        }
    }

    const Job& job_;
    const Plan& plan_;
    std::span<const DatasetInfo> datasets_;
    const Cluster& cluster_;
    Workload work_;
    std::vector<PackRules> rules_;  ///< per option
    std::vector<double> at_once_;   ///< per option: adapters
    DeploymentOptions found_;
};

}  // namespace

DeploymentOptions replica_options(const Job& job, const Plan& plan,
                                  std::span<const DatasetInfo> datasets, const Cluster& cluster) {
    return OptionList(job, plan, datasets, cluster).run();
}

std::optional<ReplicaRoom> smallest_replica_for(const Job& job, const Plan& plan,
                                                std::span<const DatasetInfo> datasets,
                                                const Cluster& cluster, std::int64_t tokens) {
    return OptionList(job, plan, datasets, cluster).smallest_for(tokens);
}

std::string to_text(const ReplicaJob& replica) {
    std::string text = cat("{tp: ", replica.tensor, ", pp: ", replica.stages);
    if (replica.count > 1) text += cat(", count: ", replica.count);
    if (replica.microbatch_tokens) text += cat(", microbatch_tokens: ", *replica.microbatch_tokens);
    if (replica.recompute == Recompute::layer) text += ", recompute: layer";
    if (replica.recompute == Recompute::none) text += ", recompute: none";
    return text + "}";
}

std::string deployment_text(const std::vector<ReplicaJob>& deployment) {
    std::vector<std::string> entries;
    entries.reserve(deployment.size());
    for (const ReplicaJob& replica : deployment) entries.push_back(to_text(replica));
    return cat("[", join(entries, ", "), "]");
}

}  // namespace loratrain
