#include "plan/sweep/sweep_replica.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/host_links.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/streamed_layers.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

constexpr std::int64_t many = std::int64_t{1} << 24;  // rows that a slope is taken over
constexpr double flop_of_lora = 6.0;
constexpr double flop_of_base = 4.0;
constexpr double rate_of_lora = 445.0 / 574.0;  // on an H200, of the base's products
constexpr std::int32_t rank_in_costs = 16;      // of the adapters that costs are fitted with

/// Seconds of a stage per unit of what a microbatch holds.
struct StageSlopes {
    double fixed = 0.0;
    double token = 0.0;
    double square = 0.0;
    double target = 0.0;
};

template <typename Seconds>
StageSlopes slopes_of(const Seconds& seconds) {
    const double fixed = seconds(MicrobatchLoad{});
    const auto slope = [&](const MicrobatchLoad& load) {
        return (seconds(load) - fixed) / static_cast<double>(many);
    };
    return {fixed, slope({many, 0.0, 0}), slope({0, static_cast<double>(many), 0}),
            slope({0, 0.0, many})};
}

/// Those of a GPU or processor without what the host or a trial adds.
CostModel costs_of_rows(CostModel costs) {
    costs.host = {};
    costs.layer_forward.per_segment = 0.0;
    costs.layer_backward.per_segment = 0.0;
    return costs;
}

/// Forward and backward of a microbatch, by its segments.
HostLine host_line(const HostCosts& host, const StagePlan& stage) {
    const auto with = [&](std::size_t segments) {
        AdapterLoads loads;
        for (std::size_t i = 0; i < segments; ++i) loads.add(static_cast<AdapterId>(i), {});
        return host_seconds(host, stage, loads);
    };
    const double per_segment = with(2) - with(1);
    return {with(1) - per_segment, per_segment};
}

double weights_of_layer(const ModelSpec& model) {
    const std::int64_t head = model.vocab_size * model.hidden_size;
    return static_cast<double>(matmul_parameters(model) - head) / static_cast<double>(model.layers);
}

class ReplicaNumbers {
  public:
    ReplicaNumbers(const Job& job, const Plan& plan, const TrialClasses& trials)
        : job_(job),
          plan_(plan),
          view_(only_replica(plan)),
          costs_(costs_of(view_)),
          trials_(trials) {}

    SweepReplica run() {
        const ReplicaPlan& replica = view_.replica;
        result_.tensor = replica.tensor;
        result_.stages = static_cast<std::int32_t>(replica.stages.size());
        result_.microbatch_tokens = replica.microbatch_tokens;
        result_.recompute = replica.recompute;
        for (const StagePlan& stage : replica.stages) {
            const bool whole =
                stage.first_layer_adapters.is_all() && stage.last_layer_adapters.is_all();
            LORATRAIN_CHECK(whole, "stages of a sweep's replica share no layers");
            const CostModel of_rows = costs_of_rows(costs_of_stage(view_, stage, costs_));
            training_.push_back(slopes_of([&](const MicrobatchLoad& load) {
                return stage_seconds(of_rows, stage, load, replica.recompute);
            }));
            forward_.push_back(slopes_of(
                [&](const MicrobatchLoad& load) { return forward_seconds(of_rows, stage, load); }));
            result_.fixed.push_back(training_.back().fixed);
            result_.host.push_back(host_line(costs_.host, stage));
            if (streamed_layers(stage) > 0) result_.streams = true;
        }
        result_.messages = message_seconds();
        find_room();
        for (std::size_t c = 0; c < trials_.size(); ++c) add(c);
        return std::move(result_);
    }

  private:
    /// Of a microbatch on its way up and down; what it has in bytes counts between hosts alone.
    double message_seconds() const {
        const std::vector<StagePlan>& stages = view_.replica.stages;
        const std::int32_t size = std::max(1, costs_.ranks_per_host);
        const double bytes = static_cast<double>(boundary_bytes(view_));
        double seconds = 0.0;
        for (std::size_t s = 1; s < stages.size(); ++s) {
            const bool apart =
                costs_.between_hosts && stages[s].rank / size != stages[s - 1].rank / size;
            seconds += apart ? costs_.link(false).seconds(bytes) : costs_.message.fixed;
        }
        return 2.0 * seconds;
    }

    /// Trials take memory by layers: the stage counts that has the least for each of its own.
    void find_room() {
        if (plan_.bytes_per_rank == 0) return;
        double least = std::numeric_limits<double>::max();
        for (std::size_t s = 0; s < view_.replica.stages.size(); ++s) {
            const MemoryPlan memory = stage_memory(job_, view_, s);
            const std::uint64_t rest = memory.total() - memory.adapters;
            const std::uint64_t room =
                plan_.bytes_per_rank > rest ? plan_.bytes_per_rank - rest : 1;
            const double per_layer =
                static_cast<double>(room) / view_.replica.stages[s].layer_count;
            if (per_layer >= least) continue;
            least = per_layer;
            result_.room = room;
            layers_ = view_.replica.stages[s].layer_count;
        }
    }

    void add(std::size_t c) {
        const TrialLoad& load = trials_.loads[c];
        const AdapterJob& adapter = job_.adapter(trials_.members[c].front());
        const auto in_layer = static_cast<double>(adapter_parameters(adapter, view_.lane_model, 1));
        TrialCosts costs;
        costs.steps = load.steps;
        costs.samples = load.samples;
        costs.tokens = load.tokens;
        costs.bytes = adapter_bytes(adapter, view_.lane_model, layers_, {true, true});
        costs.export_bytes = sizeof(float) * static_cast<std::uint64_t>(load.parameters);
        for (std::size_t s = 0; s < training_.size(); ++s) {
            const double layers = view_.replica.stages[s].layer_count;
            const StageSlopes& slopes = training_[s];
            const double rows = load.tokens * slopes.token + load.squares * slopes.square +
                                load.targets * slopes.target +
                                load.tokens * layers * lora_seconds(in_layer) +
                                layers * segment_seconds();
            costs.rows.push_back(std::max(0.0, rows));  // of tiny models LoRA is most of it
            costs.step.push_back(costs_.step_fixed + costs_.step_per_parameter * layers * in_layer);
        }
        costs.evaluation = evaluation_seconds(load);
        costs.rungs = load.rungs;
        costs.rung_evaluation = load.rung_share * costs.evaluation;
        result_.classes.push_back(std::move(costs));
    }

    /// Of a trial in a layer, whatever its rows.
    double segment_seconds() const {
        const bool again = view_.replica.recompute == Recompute::layer;
        return (again ? 2.0 : 1.0) * costs_.layer_forward.per_segment +
               costs_.layer_backward.per_segment;
    }

    /// Of a token in a layer, beyond what costs include.
    double lora_seconds(double parameters) const {
        AdapterJob usual;
        usual.r = rank_in_costs;
        const auto included = static_cast<double>(adapter_parameters(usual, view_.lane_model, 1));
        const double per_token = costs_.layer_forward.per_token + costs_.layer_backward.per_token;
        return (parameters - included) * per_token / weights_of_layer(view_.lane_model) *
               flop_of_lora / flop_of_base / rate_of_lora;
    }

    double evaluation_seconds(const TrialLoad& load) const {
        if (load.evaluation_tokens == 0) return 0.0;
        const auto tokens = static_cast<double>(load.evaluation_tokens);
        const double m = std::ceil(tokens / static_cast<double>(view_.replica.microbatch_tokens));
        double slowest = 0.0;
        double depth = result_.messages / 2.0;
        for (const StageSlopes& slopes : forward_) {
            const double rows = tokens * slopes.token + load.evaluation_squares * slopes.square +
                                static_cast<double>(load.evaluation_targets) * slopes.target;
            slowest = std::max(slowest, slopes.fixed + rows / m);
            depth += slopes.fixed + rows / m;
        }
        return (m - 1.0) * slowest + depth;
    }

    const Job& job_;
    const Plan& plan_;
    ReplicaView view_;
    const CostModel& costs_;
    const TrialClasses& trials_;
    std::vector<StageSlopes> training_;  ///< per stage
    std::vector<StageSlopes> forward_;   ///< per stage
    std::int64_t layers_ = 1;            ///< of the stage that counts for memory
    SweepReplica result_;
};

/// What the host of a stage takes for one microbatch of m at least.
double least_seconds(const SweepReplica& replica, const ResidentTrials& trials, std::size_t s,
                     double m) {
    return replica.host[s].seconds(std::max(1.0, trials.count / m));
}

/// One microbatch of m on a stage.
double microbatch_seconds(const SweepReplica& replica, const ResidentTrials& trials, std::size_t s,
                          double m) {
    return std::max(replica.fixed[s] + trials.rows[s] / m, least_seconds(replica, trials, s, m));
}

/// And on all stages, one after the other.
double depth_seconds(const SweepReplica& replica, const ResidentTrials& trials, double m) {
    double depth = replica.messages;
    for (std::size_t s = 0; s < replica.fixed.size(); ++s) {
        depth += microbatch_seconds(replica, trials, s, m);
    }
    return depth;
}

double busiest_seconds(const SweepReplica& replica, const ResidentTrials& trials, double m) {
    double most = 0.0;
    for (std::size_t s = 0; s < replica.fixed.size(); ++s) {
        const double all = std::max(m * replica.fixed[s] + trials.rows[s],
                                    m * least_seconds(replica, trials, s, m));
        most = std::max(most, all + trials.step[s]);
    }
    return most;
}

double fewest_microbatches(const SweepReplica& replica, const ResidentTrials& trials) {
    // Sums of means are a little above or below what they would be without rounding.
    const double full = trials.tokens / static_cast<double>(replica.microbatch_tokens);
    return std::max(1.0, std::ceil(full * (1.0 - 1e-9)));
}

}  // namespace

SweepReplica sweep_replica(const Job& job, const Plan& plan, const TrialClasses& trials) {
    return ReplicaNumbers(job, plan, trials).run();
}

void ResidentTrials::change(const TrialCosts& trial, double sign) {
    samples += sign * trial.samples;
    tokens += sign * trial.tokens;
    for (std::size_t s = 0; s < rows.size(); ++s) {
        rows[s] += sign * trial.rows[s];
        step[s] += sign * trial.step[s];
    }
    count += sign > 0 ? 1 : -1;
    bytes = sign > 0 ? bytes + trial.bytes : bytes - trial.bytes;
}

void ResidentTrials::remove(const TrialCosts& trial) {
    change(trial, -1.0);
    if (count > 0) return;
    samples = tokens = 0.0;  // rounding must not add up
    std::fill(rows.begin(), rows.end(), 0.0);
    std::fill(step.begin(), step.end(), 0.0);
}

double round_seconds(const SweepReplica& replica, const ResidentTrials& trials) {
    if (trials.count == 0) return 0.0;
    const double least = fewest_microbatches(replica, trials);
    double best = std::numeric_limits<double>::max();
    for (double m = least; m == least || m <= trials.samples; m += 1.0) {
        const double busy = busiest_seconds(replica, trials, m);
        const double depth = depth_seconds(replica, trials, m);
        best = std::min(best, std::max(busy, depth));
        if (busy >= depth) break;  // only longer with more
    }
    return best;
}

double drain_seconds(const SweepReplica& replica, const ResidentTrials& trials) {
    if (replica.fixed.size() == 1 || trials.count == 0) return 0.0;
    const double m = fewest_microbatches(replica, trials);
    double slowest = 0.0;
    for (std::size_t s = 0; s < replica.fixed.size(); ++s) {
        slowest = std::max(slowest, microbatch_seconds(replica, trials, s, m));
    }
    return depth_seconds(replica, trials, m) - slowest;
}

double alone_seconds(const SweepReplica& replica, const TrialCosts& trial) {
    ResidentTrials alone(replica);
    alone.add(trial);
    return trial.steps * round_seconds(replica, alone);
}

}  // namespace loratrain
