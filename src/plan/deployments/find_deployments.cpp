#include "plan/deployments/find_deployments.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/plan_within_reach.h"
#include "plan/deploy/workload.h"

namespace loratrain {

namespace {

using Entries = std::vector<ReplicaJob>;

/// Samples of the first rounds are not quite those of the whole job.
constexpr double bound_spare = 0.03;
/// That say of a plan that falls behind whether it comes near.
constexpr std::int32_t few_rounds = 2;

bool some_holds_all(const DeploymentTask& task) {
    return std::any_of(task.options.begin(), task.options.end(), [&](const ReplicaOption& option) {
        return option.seconds.size() == task.samples.size();
    });
}

void keep_those_that_hold_all(DeploymentOptions& options) {
    DeploymentOptions kept{options.task, {}};
    kept.task.options.clear();
    for (std::size_t i = 0; i < options.replicas.size(); ++i) {
        if (options.task.options[i].seconds.size() < options.task.samples.size()) continue;
        kept.task.options.push_back(options.task.options[i]);
        kept.replicas.push_back(options.replicas[i]);
    }
    options = std::move(kept);
}

/// Beside as many adapters at once as leave room for the longest sample.
DeploymentOptions options_that_hold_all(const Job& job, Plan base,
                                        std::span<const DatasetInfo> datasets,
                                        const Cluster& cluster) {
    for (;;) {
        DeploymentOptions options = replica_options(job, base, datasets, cluster);
        const std::size_t adapters = base.first_admitted.size();
        if (adapters <= 1 || some_holds_all(options.task)) return options;
        base.first_admitted.resize(adapters / 2);
    }
}

double predicted_speed(const DeploymentPrediction& entry) {
    return entry.prediction ? entry.prediction->tokens_per_second() : 0.0;
}

/// Whether the run that is continued can go on as it was.
bool still_fits(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
                const Cluster& cluster, const Plan& former) {
    if (std::ssize(former.memory) != cluster.ranks) return false;
    try {
        make_plan(job, model, datasets, cluster, &former);
    } catch (const InputError&) {
        return false;
    }
    return true;
}

/// As without a deployment.
bool is_one_pipeline(const Entries& deployment, const Cluster& cluster) {
    const ReplicaJob& first = deployment.front();
    return deployment.size() == 1 && first.stages == cluster.ranks &&
           first.recompute == Recompute::automatic && !first.microbatch_tokens;
}

/// Kinds of deployments one of which is tried wherever there are some: those that are even, and
/// those of one option, whose replicas wait for each other least.
class MustTry {
  public:
    MustTry(const DeploymentTask& task, const std::vector<OptionCounts>& solved) : task_(task) {
        for (const OptionCounts& counts : solved) {
            for (std::size_t k = 0; k < open_.size(); ++k) open_[k] |= is_of(k, counts);
        }
    }

    /// Whether the open kinds still get their turn if one of `turns` goes to this one.
    bool leaves_room_for(const OptionCounts& counts, std::size_t turns) const {
        std::size_t needed = 0;
        for (std::size_t k = 0; k < open_.size(); ++k) {
            if (open_[k] && is_of(k, counts)) return true;
            needed += open_[k] ? 1 : 0;
        }
        return turns > needed;
    }

    void note(const OptionCounts& counts) {
        for (std::size_t k = 0; k < open_.size(); ++k) open_[k] = open_[k] && !is_of(k, counts);
    }

  private:
    bool is_of(std::size_t kind, const OptionCounts& counts) const {
        return kind == 0 ? is_even(task_, counts) : is_alike(counts.replicas);
    }

    const DeploymentTask& task_;
    std::array<bool, 2> open_{};
};

/// As they were solved; where the fastest alone is of interest, behind the first whose replicas are
/// alike: these are planned once, what a round takes with them is known best, and their speed rules
/// others out.
std::vector<const OptionCounts*> in_order_of_trial(const std::vector<OptionCounts>& solved,
                                                   const WorthPredicting& worth) {
    std::vector<const OptionCounts*> order;
    for (const OptionCounts& counts : solved) order.push_back(&counts);
    if (!worth.fastest_alone || worth.most == 1) return order;
    const auto alike = std::ranges::find_if(
        order, [](const OptionCounts* counts) { return is_alike(counts->replicas); });
    if (alike != order.end()) std::rotate(order.begin(), alike, alike + 1);
    return order;
}

struct TriedDeployment {
    DeploymentPrediction entry;
    bool fits = false;  ///< it has no prediction either where the limits rule it out
};

TriedDeployment try_deployment(const Job& job, const Entries& deployment, const ModelSpec& model,
                               std::span<const DatasetInfo> datasets, Cluster cluster,
                               std::int32_t rounds, const SpeedLimits& limits, double least_speed) {
    cluster.costs.reset();
    TriedDeployment tried{{deployment, std::nullopt}};
    const Job its = deployed(job, deployment);
    try {
        tried.entry.planned =
            plan_within_reach(its, model, datasets, cluster, least_speed, few_rounds);
        tried.fits = true;
        if (tried.entry.planned.report.falls_behind) return tried;
        tried.entry.prediction =
            predict_within(its, tried.entry.planned.plan, datasets, rounds, limits);
    } catch (const InputError&) {
        return tried;
    }
    return tried;
}

/// A replica on each rank of a host, where the base fits on none alone: they hold it between them,
/// or stream it. Not of more ranks than hosts have GPUs, as planning takes its time for each.
Entries replicas_that_share(const Job& job, const Entries& options, const Cluster& cluster) {
    constexpr int most = 8;
    const Residency::Kind kind = job.model.residency.kind;
    const bool may_share = kind == Residency::Kind::automatic || kind == Residency::Kind::shared;
    const bool fits = std::any_of(options.begin(), options.end(), [](const ReplicaJob& option) {
        return option.tensor * option.stages == 1;
    });
    if (fits || !may_share || cluster.backend != BackendKind::cuda || cluster.ranks == 1 ||
        cluster.ranks > std::min(most, cluster.ranks_per_node)) {
        return {};
    }
    return {{1, 1, cluster.ranks, {}}};
}

/// Where no replica holds the model.
InputError no_replica_found(const Job& job, const ModelSpec& model, const std::string& where,
                            const std::string& ranks) {
    const bool stages = can_hold_adapters(job, model, {1, 2});
    return {
        where,
        cat("auto finds no replica on ", ranks, " that holds the model",
            stages ? "" : "; trainable_token_indices need replicas of pp: 1"),
        cat("start more ranks, or deploy as in ", deployment_text({ReplicaJob{2, stages ? 2 : 1}}),
            " for a message that says what is missing")};
}

InputError nothing_found(const Job& job, const ModelSpec& model, const FoundDeployments& found,
                         const Cluster& cluster, std::int64_t longest) {
    const std::string where = cat(job.path, ": parallel.deployment");
    const std::string ranks = cat(cluster.ranks, cluster.ranks == 1 ? " rank of " : " ranks of ",
                                  human_bytes(cluster.bytes_per_rank));
    if (found.options.empty()) return no_replica_found(job, model, where, ranks);
    return {where,
            cat("auto finds no replicas that make up ", ranks, " and take the longest sample, of ",
                longest, " tokens"),
            "start another number of ranks, or a smaller max_seq_len with over_length: truncate"};
}

}  // namespace

DeploymentPrediction predict_deployment(const Job& job, const Entries& deployment,
                                        const ModelSpec& model,
                                        std::span<const DatasetInfo> datasets,
                                        const Cluster& cluster, std::int32_t rounds,
                                        double least_speed) {
    return try_deployment(job, deployment, model, datasets, cluster, rounds, {}, least_speed).entry;
}

Job deployed(const Job& job, const Entries& deployment) {
    Job result = job;
    result.parallel.pipeline_stages.reset();
    result.parallel.deployment = deployment;
    return result;
}

Entries deployment_of(const Plan& plan, std::int64_t longest_sample) {
    Entries entries;
    for (const ReplicaPlan& replica : plan.replicas) {
        ReplicaJob entry{replica.tensor, static_cast<int>(replica.stages.size()), 1, {}};
        if (replica.microbatch_tokens < longest_sample) {
            entry.microbatch_tokens = replica.microbatch_tokens;
        }
        const bool alike = !entries.empty() && entries.back().tensor == entry.tensor &&
                           entries.back().stages == entry.stages &&
                           entries.back().microbatch_tokens == entry.microbatch_tokens;
        if (alike) {
            ++entries.back().count;
        } else {
            entries.push_back(entry);
        }
    }
    return entries;
}

Entries deployment_of(const OptionCounts& counts, const Entries& options) {
    Entries entries;
    for (std::size_t i = 0; i < options.size(); ++i) {
        if (counts.replicas[i] == 0) continue;
        entries.push_back(options[i]);
        entries.back().count = counts.replicas[i];
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return a.tensor > b.tensor; });
    return entries;
}

FoundDeployments find_deployments(const Job& job, const ModelSpec& model,
                                  std::span<const DatasetInfo> datasets, const Cluster& cluster,
                                  const WorthPredicting& worth) {
    Job open = job;
    open.parallel.deployment.clear();
    const Plan base = plan_before_deployment(open, model, datasets, cluster);
    DeploymentOptions options = options_that_hold_all(open, base, datasets, cluster);
    if (job.parallel.dispatch == DispatchRule::uniform) keep_those_that_hold_all(options);
    FoundDeployments found;
    found.rounds = worth.rounds;
    found.search = search_deployments(options.task);
    double least_speed = (1.0 - bound_spare) * worth.least_speed;
    const auto try_one = [&](const Entries& deployment, double most) {
        // No run in it reaches what is wanted, however its replicas are planned.
        if (most < least_speed) {
            ++found.ruled_out;
            return true;
        }
        const SpeedLimits limits{least_speed, most};
        TriedDeployment tried = try_deployment(job, deployment, model, datasets, cluster,
                                               worth.rounds, limits, least_speed);
        if (tried.fits && !tried.entry.prediction) ++found.ruled_out;
        if (!tried.entry.prediction) return tried.fits;
        if (worth.fastest_alone) {
            least_speed = std::max(least_speed, (1.0 - bound_spare) * predicted_speed(tried.entry));
        }
        found.fastest.push_back(std::move(tried.entry));
        return true;
    };
    MustTry must_try(options.task, found.search.solved);
    for (const OptionCounts* tried : in_order_of_trial(found.search.solved, worth)) {
        const OptionCounts& counts = *tried;
        const std::size_t taken = found.fastest.size() + found.ruled_out;
        if (taken >= worth.most) break;
        const bool has_turn =
            worth.most == 1 || must_try.leaves_room_for(counts, worth.most - taken);
        if (!has_turn) continue;
        const Entries deployment = deployment_of(counts, options.replicas);
        const bool known = !worth.one_pipeline && is_one_pipeline(deployment, cluster);
        const double most = most_tokens_per_second(options.task, counts.replicas);
        // The first deployment of a kind that fits closes it, also where its bound rules it out.
        // Others of the kind end later by estimate; no estimate is below its bound, so that by
        // their own estimates they are too slow as well.
        if (known || try_one(deployment, most)) must_try.note(counts);
    }
    const Entries sharing = replicas_that_share(job, options.replicas, cluster);
    if (!sharing.empty() && worth.most > 0) try_one(sharing, SpeedLimits{}.most);
    std::stable_sort(found.fastest.begin(), found.fastest.end(), [](const auto& a, const auto& b) {
        return predicted_speed(a) > predicted_speed(b);
    });
    found.options = std::move(options.replicas);
    return found;
}

bool same_cuts(const std::vector<ReplicaJob>& one, const std::vector<ReplicaJob>& other) {
    return std::is_permutation(
        one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
            return a.tensor == b.tensor && a.stages == b.stages && a.count == b.count;
        });
}

std::optional<FoundDeployments> settle_deployment(Job& job, const ModelSpec& model,
                                                  std::span<const DatasetInfo> datasets,
                                                  const Cluster& cluster, const Plan* former) {
    const bool is_given = former == nullptr && !job.parallel.deployment.empty();
    if (!job.parallel.find_deployment || is_given) return std::nullopt;
    const auto longest = [&] {
        return workload_of(job, model, cluster.backend, datasets).longest_sample;
    };
    if (former != nullptr) {
        const Job as_before = deployed(job, deployment_of(*former, longest()));
        if (still_fits(as_before, model, datasets, cluster, *former)) {
            job = as_before;
            return std::nullopt;
        }
    }
    WorthPredicting worth;
    worth.fastest_alone = true;
    FoundDeployments found = find_deployments(job, model, datasets, cluster, worth);
    if (found.fastest.empty()) throw nothing_found(job, model, found, cluster, longest());
    job.parallel.deployment = found.fastest.front().deployment;
    return found;
}

}  // namespace loratrain
