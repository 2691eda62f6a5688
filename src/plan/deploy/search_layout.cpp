#include "plan/deploy/search_layout.h"

#include <algorithm>
#include <map>

#include "plan/memory/fit_memory.h"
#include "plan/pack/pack_block.h"
#include "plan/pack/rounds_at_start.h"
#include "plan/schedule/admission.h"
#include "plan/schedule/schedule_stream.h"

namespace loratrain {

namespace {

constexpr std::int64_t fewest_tokens_cuda = 2048;
constexpr std::int64_t fewest_tokens_cpu = 512;
constexpr std::int64_t parts_of_usual = 8;
constexpr std::int64_t fewest_parts = 2;
constexpr double least_gain = 0.02;
constexpr double depth_tolerance = 0.01;
constexpr std::int32_t spare_part = 2;
constexpr std::int32_t spare_depths_cuda = 2;
constexpr std::int32_t spare_depths_cpu = 4;  // what a computation takes varies by 15%
constexpr std::int32_t most_depths = 16;
constexpr std::size_t most_samples_balanced = 1024;
constexpr std::size_t most_samples_quick = 16384;  // the other policies pack in no time
constexpr std::int32_t most_rounds = 32;

class LayoutSearch {
  public:
    LayoutSearch(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                 const CostModel& costs)
        : job_(job), plan_(plan), view_(only_replica(plan)), datasets_(datasets) {
        order_ = admission_order(job, std::vector<AdapterClaim>(job.adapters.size()));
        order_.resize(std::min(order_.size(), most_admitted(job)));
        rules_.policy = job.schedule.policy;
        rules_.packing =
            job.schedule.packing == Packing::milp ? Packing::greedy : job.schedule.packing;
        rules_.stages = view_.replica.stages;
        rules_.max_in_flight = view_.replica.max_in_flight;
        rules_.span = AttentionSpan(view_.plan.model);
        rules_.costs = costs;
        rules_.recompute = view_.replica.recompute;
    }

    std::vector<LayoutTrial> run(std::int64_t usual, std::int64_t longest) {
        std::vector<LayoutTrial> trials;
        if (view_.replica.stages.size() == 1) return trials;
        for (const std::int64_t size : candidates(usual, longest)) {
            const std::size_t adapters = adapters_beside(size);
            if (adapters > 0) trials.push_back(play(size, adapters, true));
        }
        if (trials.empty()) return trials;
        trials.insert(trials.begin(),
                      play(view_.replica.microbatch_tokens, plan_.first_admitted.size(), true));
        choose(trials);
        return trials;
    }

    double speed() {
        return play(view_.replica.microbatch_tokens, plan_.first_admitted.size(), false)
            .tokens_per_second;
    }

    std::int32_t depth() {
        const std::int32_t least = view_.replica.max_in_flight;
        const std::int32_t apart = depths_apart(least);
        std::vector<std::int32_t> depths;
        for (std::int32_t depth = least; depth <= 2 * least && fits_with(depth); depth += apart) {
            depths.push_back(depth);
        }
        if (depths.empty()) return least;
        rules_.capacity = view_.replica.microbatch_tokens;
        rules_.rough = false;
        const std::vector<double> times =
            block_times(rules_, rounds_of(plan_.first_admitted.size()), depths);
        const double wanted =
            *std::min_element(times.begin(), times.end()) / (1.0 - depth_tolerance);
        const auto enough =
            std::find_if(times.begin(), times.end(), [&](double time) { return time <= wanted; });
        return with_spare(depths[static_cast<std::size_t>(enough - times.begin())]);
    }

  private:
    /// For what is not played here: messages take time, computations now and then more than usual,
    /// and rounds get fewer adapters, of which the last ones fill a pipeline worst.
    std::int32_t with_spare(std::int32_t depth) const {
        const std::int32_t least = view_.replica.max_in_flight;
        if (depth == least && order_.size() == 1) return depth;
        const bool cuda = plan_.backend == BackendKind::cuda;
        const std::int32_t spare = cuda ? spare_depths_cuda : spare_depths_cpu;
        std::int32_t deeper = std::max(depth + depth / spare_part, spare * least);
        while (deeper > depth && !is_roomy_with(deeper)) --deeper;
        return deeper;
    }

    /// Half of every rank's memory is left; false where it is not known.
    bool is_roomy_with(std::int32_t depth) const {
        const bool known = plan_.bytes_per_rank > 0;
        return known && view_.replica.recompute != Recompute::layer && fits_with(depth, 2);
    }

    /// In one of so many parts of every rank's memory.
    bool fits_with(std::int32_t depth, std::uint64_t parts = 1) const {
        Plan trial = plan_;
        trial.bytes_per_rank /= parts;
        trial.replicas.front().max_in_flight = depth;
        return fits_memory(job_, only_replica(trial), view_.replica.microbatch_tokens,
                           view_.replica.recompute);
    }

    std::vector<std::int64_t> candidates(std::int64_t usual, std::int64_t longest) const {
        const bool cuda = plan_.backend == BackendKind::cuda;
        const std::int64_t fewest =
            std::max(longest, cuda ? fewest_tokens_cuda : fewest_tokens_cpu);
        std::vector<std::int64_t> sizes;
        for (std::int64_t parts = parts_of_usual; parts >= fewest_parts; --parts) {
            const std::int64_t size = usual * parts / parts_of_usual;
            if (size >= fewest && size != view_.replica.microbatch_tokens) sizes.push_back(size);
        }
        return sizes;
    }

    std::size_t adapters_beside(std::int64_t tokens) const {
        Plan trial = plan_;
        trial.first_admitted = order_;
        while (!trial.first_admitted.empty() &&
               !fits_memory(job_, only_replica(trial), tokens, view_.replica.recompute)) {
            trial.first_admitted.pop_back();
        }
        return trial.first_admitted.size();
    }

    LayoutTrial play(std::int64_t tokens, std::size_t adapters, bool rough) {
        const std::vector<Round>& rounds = rounds_of(adapters);
        rules_.capacity = tokens;
        rules_.rough = rough;
        const double seconds = 1e-9 * block_time(rules_, rounds);
        return {tokens, static_cast<std::int32_t>(adapters),
                static_cast<double>(tokens_of(rounds)) / seconds};
    }

    /// The fastest one first, if it keeps its lead when all packings are compared.
    void choose(std::vector<LayoutTrial>& trials) {
        LayoutTrial& usual = trials.front();
        const auto fastest = std::max_element(
            trials.begin(), trials.end(),
            [](const auto& a, const auto& b) { return a.tokens_per_second < b.tokens_per_second; });
        for (const bool rough : {true, false}) {
            if (!rough) {
                usual = again(usual);
                *fastest = again(*fastest);
            }
            const double wanted = (1.0 + least_gain) * usual.tokens_per_second;
            if (fastest->tokens_per_second < wanted) return;
        }
        std::rotate(trials.begin(), fastest, fastest + 1);
    }

    LayoutTrial again(const LayoutTrial& trial) {
        return play(trial.microbatch_tokens, static_cast<std::size_t>(trial.adapters), false);
    }

    /// The first rounds of the first `adapters` ones.
    const std::vector<Round>& rounds_of(std::size_t adapters) {
        const auto [known, fresh] = rounds_.try_emplace(adapters);
        if (!fresh) return known->second;
        const std::size_t most = job_.schedule.policy == SchedulePolicy::balanced
                                     ? most_samples_balanced
                                     : most_samples_quick;
        known->second = rounds_at_start(
            job_, plan_, datasets_,
            {order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(adapters)},
            {most_rounds, most});
        return known->second;
    }

    static std::int64_t tokens_of(const std::vector<Round>& rounds) {
        std::int64_t tokens = 0;
        for (const Round& round : rounds) {
            for (const PendingBatch& batch : round) {
                for (const SampleRef& sample : batch.samples) tokens += sample.tokens;
            }
        }
        return tokens;
    }

    const Job& job_;
    const Plan& plan_;
    ReplicaView view_;
    std::span<const DatasetInfo> datasets_;
    std::vector<AdapterId> order_;  ///< that may train at once
    PackRules rules_;
    std::map<std::size_t, std::vector<Round>> rounds_;
};

}  // namespace

std::vector<LayoutTrial> search_layout(const Job& job, const Plan& plan,
                                       std::span<const DatasetInfo> datasets,
                                       const CostModel& costs, std::int64_t usual,
                                       std::int64_t longest) {
    return LayoutSearch(job, plan, datasets, costs).run(usual, longest);
}

double played_speed(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                    const CostModel& costs) {
    return LayoutSearch(job, plan, datasets, costs).speed();
}

std::int32_t depths_apart(std::int32_t stages) {
    return std::max(1, stages / most_depths);
}

std::int32_t search_depth(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                          const CostModel& costs) {
    const ReplicaPlan& replica = only_replica(plan).replica;
    if (replica.stages.size() == 1) return replica.max_in_flight;
    return LayoutSearch(job, plan, datasets, costs).depth();
}

}  // namespace loratrain
