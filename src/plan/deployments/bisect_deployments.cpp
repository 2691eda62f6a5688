#include "plan/deployments/bisect_deployments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "plan/milp.h"

namespace loratrain {

namespace {

constexpr double close_enough = 1.02;
constexpr std::int64_t most_nodes = 200;
constexpr std::int64_t most_iterations = 8000;
constexpr double no_limit = std::numeric_limits<double>::infinity();

using Replicas = std::vector<std::int32_t>;

class StepTimeBisection {
  public:
    StepTimeBisection(const DeploymentTask& task, const std::vector<std::size_t>& used)
        : task_(task), used_(used) {}

    std::vector<Replicas> run(double within) const {
        std::vector<Replicas> found;
        double below = least_seconds();
        double above = within;
        if (!(below > 0.0) || !milp_available()) return found;
        while (above > close_enough * below) {
            const double z = std::sqrt(below * above);
            std::optional<Replicas> replicas = deployment_within(z);
            (replicas ? above : below) = z;
            if (replicas) found.push_back(std::move(*replicas));
        }
        return found;
    }

  private:
    /// If every sample went to the cheapest option for it.
    double least_seconds() const {
        double sum = 0.0;
        for (std::size_t j = 0; j < task_.samples.size(); ++j) {
            double least = no_limit;
            for (const std::size_t i : used_) {
                const ReplicaOption& option = task_.options[i];
                if (j < option.seconds.size()) {
                    least = std::min(least, option.ranks * option.seconds[j]);
                }
            }
            if (task_.samples[j] > 0.0) sum += task_.samples[j] * least;
        }
        return std::isfinite(sum) ? sum / task_.ranks : 0.0;
    }

    /// Columns: replicas of each option, then the shares of buckets that its replicas get together.
    std::optional<Replicas> deployment_within(double z) const {
        Milp problem;
        problem.rows.push_back({1.0 * task_.ranks, 1.0 * task_.ranks, {}});
        for (std::size_t u = 0; u < used_.size(); ++u) {
            const ReplicaOption& option = task_.options[used_[u]];
            const double most = option.filling < z ? task_.ranks / option.ranks : 0;
            problem.columns.push_back({0.0, most, 0.0, true});
            problem.rows.front().terms.push_back({static_cast<int>(u), 1.0 * option.ranks});
        }
        std::vector<Milp::Row> dealt(task_.samples.size(), Milp::Row{1.0, 1.0, {}});
        Milp::Row holds_last{1.0, no_limit, {}};
        for (std::size_t u = 0; u < used_.size(); ++u) {
            const ReplicaOption& option = task_.options[used_[u]];
            const int replicas = static_cast<int>(u);
            Milp::Row within{-no_limit, 0.0, {{replicas, option.filling / z - 1.0}}};
            for (std::size_t j = 0; j < option.seconds.size(); ++j) {
                if (task_.samples[j] == 0.0) continue;
                const int share = static_cast<int>(problem.columns.size());
                problem.columns.push_back({0.0, 1.0, 0.0, false});
                dealt[j].terms.push_back({share, 1.0});
                within.terms.push_back({share, option.seconds[j] * task_.samples[j] / z});
            }
            problem.rows.push_back(std::move(within));
            const bool all = option.seconds.size() == task_.samples.size();
            if (all) holds_last.terms.push_back({replicas, 1.0});
        }
        if (holds_last.terms.empty()) return std::nullopt;
        problem.rows.push_back(std::move(holds_last));
        for (std::size_t j = 0; j < dealt.size(); ++j) {
            if (task_.samples[j] > 0.0) problem.rows.push_back(std::move(dealt[j]));
        }
        return solved(problem);
    }

    std::optional<Replicas> solved(const Milp& problem) const {
        MilpLimits limits;
        limits.nodes = most_nodes;
        limits.iterations = most_iterations;
        limits.tries_branches = false;
        const auto solution = solve_milp(problem, limits);
        if (!solution) return std::nullopt;
        Replicas replicas(task_.options.size(), 0);
        for (std::size_t u = 0; u < used_.size(); ++u) {
            replicas[used_[u]] = static_cast<std::int32_t>(std::lround(solution->values[u]));
        }
        return replicas;
    }

    const DeploymentTask& task_;
    const std::vector<std::size_t>& used_;
};

}  // namespace

std::vector<Replicas> bisect_deployments(const DeploymentTask& task,
                                         const std::vector<std::size_t>& used, double within) {
    return StepTimeBisection(task, used).run(within);
}

}  // namespace loratrain
