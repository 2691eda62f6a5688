#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// Sample lengths exp(N(mu, sigma)), clipped to 16..4096 tokens; mean of the unclipped distribution
/// exp(mu + sigma^2 / 2).
struct Lengths {
    const char* name;
    double mu;
    double sigma;
};

/// Log-normal like the lengths of these data sets.
inline constexpr Lengths summary_lengths[] = {
    {"XSum", 6.035, 0.6},     // mean 500
    {"CNN/DM", 6.677, 0.5},   // mean 900
    {"WikiSum", 7.193, 0.7},  // mean 1,700 before clipping
};

/// Rounds of four adapters with global batch 8, all on `dataset`, or (nullptr) adapters 0 and 3 on
/// XSum, 1 on CNN/DM, 2 on WikiSum. All tokens but one are targets; step r in round r, whose
/// samples are 8 r, 8 r + 1, ...
inline std::vector<Round> summary_rounds(const Lengths* dataset, std::int32_t count) {
    constexpr std::int32_t adapters = 4;
    constexpr std::int32_t global_batch = 8;
    const auto normal = [](std::uint64_t key, std::uint64_t i) {
        const double u =
            (0.5 + static_cast<double>(uniform_float(key, 2 * i)) * 16777216.0) / 16777217.0;
        const double v = static_cast<double>(uniform_float(key, 2 * i + 1));
        return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
    };
    std::vector<Round> rounds(static_cast<std::size_t>(count));
    for (std::int32_t r = 0; r < count; ++r) {
        for (std::int32_t a = 0; a < adapters; ++a) {
            const Lengths& lengths = dataset != nullptr ? *dataset : summary_lengths[a % 3];
            const std::uint64_t key = mix_key(2026, static_cast<std::uint64_t>(a));
            PendingBatch batch{AdapterId{a}, r, {}};
            for (std::int32_t i = r * global_batch; i < (r + 1) * global_batch; ++i) {
                const double drawn = std::exp(
                    lengths.mu + lengths.sigma * normal(key, static_cast<std::uint64_t>(i)));
                const auto tokens = static_cast<std::int32_t>(std::clamp(drawn, 16.0, 4096.0));
                batch.samples.push_back({i, tokens, tokens - 1});
            }
            rounds[static_cast<std::size_t>(r)].push_back(std::move(batch));
        }
    }
    return rounds;
}

/// All samples of the rounds as one microbatch.
inline MicrobatchLoad load_of(const std::vector<Round>& rounds) {
    MicrobatchLoad load;
    for (const Round& round : rounds) {
        for (const PendingBatch& batch : round) {
            for (const SampleRef& sample : batch.samples) {
                const double tokens = sample.tokens;
                load.tokens += sample.tokens;
                load.targets += sample.targets;
                load.squares += tokens * tokens;
            }
        }
    }
    return load;
}

/// The last stage, which has the head, gets `last` layers; the others share the rest.
inline std::vector<StagePlan> split_layers(std::int32_t layers, std::int32_t stages,
                                           std::int32_t last) {
    std::vector<StagePlan> split;
    const std::int32_t others = stages - 1;
    std::int32_t first = 0;
    for (std::int32_t s = 0; s < stages; ++s) {
        const std::int32_t shared = (layers - last) / others;
        const std::int32_t more = s < (layers - last) % others ? 1 : 0;
        const std::int32_t count = s == others ? last : shared + more;
        split.push_back({s, first, count, s == 0, s == others});
        first += count;
    }
    return split;
}

/// The split of the layers with the smallest largest time of a stage for `load`, among those the
/// most even one.
inline std::vector<StagePlan> best_split(const PackRules& rules, std::int32_t layers,
                                         std::int32_t stages, const MicrobatchLoad& load) {
    std::vector<StagePlan> best;
    std::pair<double, double> least;
    for (std::int32_t last = 1; last <= layers - stages + 1; ++last) {
        std::vector<StagePlan> split = split_layers(layers, stages, last);
        std::vector<double> times;
        for (const StagePlan& stage : split) {
            times.push_back(forward_seconds(rules.costs, stage, load) +
                            backward_seconds(rules.costs, stage, load, rules.recompute));
        }
        const double most = *std::max_element(times.begin(), times.end());
        const std::pair badness(most, most - *std::min_element(times.begin(), times.end()));
        if (!best.empty() && badness >= least) continue;
        best = std::move(split);
        least = badness;
    }
    return best;
}

}  // namespace loratrain
