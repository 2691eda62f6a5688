#include "plan/pack/dispatch_milp.h"

#include <limits>
#include <utility>

namespace loratrain {

namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();

}  // namespace

Milp dispatch_milp(const DispatchTask& task, double unit, std::size_t first_whole) {
    Milp problem;
    problem.columns.push_back({0.0, unbounded, 1.0, false});
    std::vector<Milp::Row> all_of;
    for (const double samples : task.samples) all_of.push_back({samples, samples, {}});
    std::vector<Milp::Row> within;
    for (const ReplicaKind& kind : task.kinds) {
        if (kind.replicas == 0) continue;
        within.push_back({-unbounded, -kind.filling / unit, {{0, -1.0}}});
        for (std::size_t j = 0; j < kind.seconds.size(); ++j) {
            const int column = static_cast<int>(problem.columns.size());
            problem.columns.push_back({0.0, task.samples[j], 0.0, j >= first_whole});
            all_of[j].terms.push_back({column, 1.0});
            within.back().terms.push_back({column, kind.seconds[j] / kind.replicas / unit});
        }
    }
    for (Milp::Row& row : all_of) {
        if (!row.terms.empty()) problem.rows.push_back(std::move(row));
    }
    for (Milp::Row& row : within) problem.rows.push_back(std::move(row));
    return problem;
}

}  // namespace loratrain
