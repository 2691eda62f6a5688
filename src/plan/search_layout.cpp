#include "plan/search_layout.h"

#include <algorithm>
#include <array>
#include <vector>

#include "plan/fit_memory.h"
#include "plan/plan_window.h"
#include "plan/predict.h"
#include "plan/simulate.h"

namespace loratrain {

namespace {

constexpr std::int64_t token_granule = 128;
constexpr std::int64_t fewest_tokens_cuda = 2048;
constexpr std::int64_t fewest_tokens_cpu = 512;
constexpr double least_gain = 0.02;
constexpr std::int64_t samples_played = 512;
constexpr std::int64_t most_rounds = 6;
constexpr std::array<double, 6> shares{0.5, 0.625, 0.75, 0.875, 1.0, 1.25};

std::vector<std::int64_t> candidates(const Job& job, const Plan& plan, std::int64_t longest) {
    const std::int64_t fewest = std::max(
        longest, plan.backend == BackendKind::cuda ? fewest_tokens_cuda : fewest_tokens_cpu);
    std::vector<std::int64_t> sizes;
    for (const double share : shares) {
        if (share == 1.0) continue;
        const auto wanted =
            static_cast<std::int64_t>(share * static_cast<double>(plan.microbatch_tokens));
        const std::int64_t size = std::max(fewest, wanted / token_granule * token_granule);
        if (size == plan.microbatch_tokens) continue;
        if (!sizes.empty() && sizes.back() == size) continue;
        if (fits_memory(job, plan, size, plan.recompute)) sizes.push_back(size);
    }
    return sizes;
}

std::int32_t rounds_played(const Job& job, const Plan& plan) {
    std::int64_t samples = 0;
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        samples +=
            std::min<std::int64_t>(job.adapters[a].global_batch_size, plan.adapters[a].samples);
    }
    return static_cast<std::int32_t>(
        std::clamp<std::int64_t>(samples_played / samples, 2, most_rounds));
}

/// True when a round has more tokens than one microbatch holds.
bool splits_rounds(const Plan& plan, const Window& window) {
    std::int64_t tokens = 0;
    for (const BatchPlan& batch : window.batches) tokens += batch.tokens;
    return tokens > plan.microbatch_tokens * window.rounds;
}

}  // namespace

std::int64_t search_microbatch_tokens(const Job& job, const Plan& plan,
                                      std::span<const DatasetInfo> datasets, std::int64_t longest) {
    if (plan.replica.stages.size() == 1) return plan.microbatch_tokens;
    Job greedy = job;
    greedy.schedule.packing = Packing::greedy;
    Plan trial = plan;
    const std::int32_t rounds = rounds_played(job, plan);
    const auto window_of = [&](std::int64_t tokens) {
        trial.microbatch_tokens = tokens;
        return plan_window(greedy, trial, datasets, at_start(trial), rounds);
    };
    const auto seconds_of = [&](const Window& window) {
        Simulator simulator(greedy, trial, datasets, trial.costs);
        simulator.add(window);
        return simulator.timeline().makespan();
    };
    const Window usual = window_of(plan.microbatch_tokens);
    if (!splits_rounds(plan, usual)) return plan.microbatch_tokens;
    std::int64_t best = plan.microbatch_tokens;
    double least = seconds_of(usual) * (1.0 - least_gain);
    for (const std::int64_t tokens : candidates(job, plan, longest)) {
        const double seconds = seconds_of(window_of(tokens));
        if (seconds >= least) continue;
        least = seconds;
        best = tokens;
    }
    return best;
}

}  // namespace loratrain
