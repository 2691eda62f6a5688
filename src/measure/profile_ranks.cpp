#include "measure/profile_ranks.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <vector>

#include "comm/collective.h"
#include "measure/profile_costs.h"

namespace loratrain {

namespace {

constexpr double hardly = 0.03;

/// What `measure` throws is kept for later: the others wait at the next barrier.
template <class Measure>
void keep_failure(std::exception_ptr& failure, const Measure& measure) {
    if (failure) return;
    try {
        measure();
    } catch (const std::exception&) {
        failure = std::current_exception();
    }
}

}  // namespace

CostModel profile_ranks(const MpiSession& mpi, const Job& job, const Plan& plan, Backend& backend) {
    if (plan.backend == BackendKind::cuda || mpi.size() == 1) {
        return profile_costs(job, plan, backend).costs;
    }
    ProfiledCosts alone;
    std::exception_ptr failure;
    if (mpi.is_root()) {
        keep_failure(failure, [&] { alone = profile_costs(job, plan, backend); });
    }
    quiet_barrier(mpi);
    double together = 0.0;  // where it cannot be measured
    keep_failure(failure, [&] { together = probe_seconds(job, plan, backend); });
    std::vector<double> of_ranks = gather_numbers(mpi, together);
    if (failure) std::rethrow_exception(failure);
    std::erase(of_ranks, 0.0);
    const double sum = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
    alone.costs.ranks_per_host = mpi.local_size();
    alone.costs.full_speed_ranks = full_speed_ranks(mpi.local_size(), alone.probe_seconds,
                                                    sum / static_cast<double>(of_ranks.size()));
    return alone.costs;
}

double full_speed_ranks(int ranks, double alone, double together) {
    if (together <= (1.0 + hardly) * alone) return 0.0;
    return std::max(1.0, ranks * alone / together);
}

}  // namespace loratrain
