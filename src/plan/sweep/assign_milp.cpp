#include "plan/sweep/assign_milp.h"

#include <cmath>

#include "plan/milp.h"

namespace loratrain {

namespace {

/// Columns: z, then per replica M_g, n_cg of each class, and whether it has trials of each level,
/// which are the classes of as many steps.
class AssignmentMilp {
  public:
    AssignmentMilp(const SweepReplica& replica, const SweepRules& rules,
                   std::span<const std::int32_t> counts, std::int32_t replicas)
        : replica_(replica), rules_(rules), counts_(counts), replicas_(replicas) {
        for (const TrialCosts& trial : replica.classes) {
            if (levels_.empty() || levels_.back() != trial.steps) levels_.push_back(trial.steps);
            level_of_.push_back(levels_.size() - 1);
        }
    }

    Milp build() {
        milp_.columns.push_back({0.0, infinity, 1.0, false});
        for (std::int32_t g = 0; g < replicas_; ++g) {
            milp_.columns.push_back({0.0, infinity, 0.0, false});
            for (const std::int32_t count : counts_) {
                milp_.columns.push_back({0.0, static_cast<double>(count), 0.0, true});
            }
            for (std::size_t l = 0; l < levels_.size(); ++l) {
                milp_.columns.push_back({0.0, 1.0, 0.0, true});
            }
        }
        for (std::int32_t g = 0; g < replicas_; ++g) add_replica(g);
        for (std::size_t c = 0; c < counts_.size(); ++c) add_all_of(c);
        return milp_;
    }

    int trials(std::int32_t g, std::size_t c) const { return rounds(g) + 1 + static_cast<int>(c); }

  private:
    static constexpr double infinity = std::numeric_limits<double>::infinity();

    int rounds(std::int32_t g) const {
        return 1 + g * static_cast<int>(1 + counts_.size() + levels_.size());
    }
    int has_level(std::int32_t g, std::size_t l) const {
        return trials(g, counts_.size()) + static_cast<int>(l);
    }

    void add_replica(std::int32_t g) {
        for (std::size_t s = 0; s < replica_.fixed.size(); ++s) {
            Milp::Row& ends = at_least(0, {{rounds(g), -replica_.fixed[s]}});
            for (std::size_t c = 0; c < counts_.size(); ++c) {
                const TrialCosts& trial = replica_.classes[c];
                ends.terms.push_back(
                    {trials(g, c), -trial.seconds_on(s) - beside_seconds(rules_, trial)});
            }
        }
        for (std::size_t l = 0; l < levels_.size(); ++l) add_level(g, l);
        bound_rounds(g, static_cast<double>(replica_.microbatch_tokens),
                     [](const TrialCosts& trial) { return trial.tokens; });
        if (replica_.room > 0) {
            bound_rounds(g, static_cast<double>(replica_.room),
                         [](const TrialCosts& trial) { return static_cast<double>(trial.bytes); });
        }
        // Replicas are alike: the one with more rounds comes first.
        if (g > 0) at_least(rounds(g - 1), {{rounds(g), -1.0}});
    }

    void add_level(std::int32_t g, std::size_t l) {
        at_least(rounds(g), {{has_level(g, l), -static_cast<double>(levels_[l])}});
        double all = 0.0;
        std::vector<Milp::Term> terms;
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            if (level_of_[c] != l) continue;
            all += counts_[c];
            terms.push_back({trials(g, c), -1.0});
        }
        terms.push_back({has_level(g, l), all});
        milp_.rows.push_back({0.0, infinity, std::move(terms)});
    }

    /// M_g >= what all steps of its trials take together / what a round holds of it.
    template <typename Taken>
    void bound_rounds(std::int32_t g, double room, const Taken& taken) {
        Milp::Row& row = at_least(rounds(g), {});
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            const TrialCosts& trial = replica_.classes[c];
            row.terms.push_back({trials(g, c), -trial.steps * taken(trial) / room});
        }
    }

    void add_all_of(std::size_t c) {
        const auto count = static_cast<double>(counts_[c]);
        Milp::Row& row = milp_.rows.emplace_back(Milp::Row{count, count, {}});
        for (std::int32_t g = 0; g < replicas_; ++g) row.terms.push_back({trials(g, c), 1.0});
    }

    /// column + terms >= 0
    Milp::Row& at_least(int column, std::vector<Milp::Term> terms) {
        terms.push_back({column, 1.0});
        return milp_.rows.emplace_back(Milp::Row{0.0, infinity, std::move(terms)});
    }

    const SweepReplica& replica_;
    const SweepRules& rules_;
    std::span<const std::int32_t> counts_;
    std::int32_t replicas_;
    std::vector<std::int32_t> levels_;   ///< steps
    std::vector<std::size_t> level_of_;  ///< per class
    Milp milp_;
};

}  // namespace

std::optional<std::vector<std::vector<std::int32_t>>> milp_assignment(
    const SweepReplica& replica, const SweepRules& rules, std::span<const std::int32_t> counts,
    std::int32_t replicas, double cutoff, std::int64_t nodes) {
    AssignmentMilp model(replica, rules, counts, replicas);
    MilpLimits limits;
    limits.nodes = nodes;
    limits.cutoff = cutoff;
    const auto solution = solve_milp(model.build(), limits);
    if (!solution) return std::nullopt;
    std::vector<std::vector<std::int32_t>> result;
    for (std::int32_t g = 0; g < replicas; ++g) {
        std::vector<std::int32_t>& trials = result.emplace_back();
        for (std::size_t c = 0; c < counts.size(); ++c) {
            const auto column = static_cast<std::size_t>(model.trials(g, c));
            trials.push_back(static_cast<std::int32_t>(std::lround(solution->values[column])));
        }
    }
    return result;
}

}  // namespace loratrain
