#include "measure/profile_loads.h"

#include <algorithm>
#include <array>

#include "base/rng.h"
#include "plan/cost/cost_model.h"
#include "plan/memory/frozen_layouts.h"
#include "plan/schedule/lora_columns.h"

namespace loratrain {

namespace {

constexpr std::int64_t prepared_sample = 64;
/// Shares of the largest load; of what is to be quick, the first few.
constexpr std::array<double, most_gpu_sizes> gpu_shares{1.0, 0.25, 0.5, 0.75, 0.375, 0.625};
/// Down to what adapters with small batches have alone, as workers train them.
constexpr std::array<double, most_processor_sizes> processor_shares{1.0, 0.25, 0.125, 0.5};
/// What sizes on a GPU are short of the shares: they fill the tiles of GEMMs as badly as others do.
constexpr std::array<std::int64_t, most_gpu_sizes> shortfalls{64, 16, 112, 32, 96, 48};
constexpr std::int64_t processor_short_sample = 64;
/// The largest load on a processor is at most so many rows, two of the longest samples, or so much
/// work of the base's products, whichever is the most.
constexpr std::int64_t processor_rows = 512;
constexpr double processor_work = 1e10;  // FLOP of a forward and a backward

std::int64_t largest_load(const ReplicaView& view, bool on_gpu) {
    const std::int64_t tokens = view.replica.microbatch_tokens;
    if (on_gpu) return tokens;
    const ModelSpec& model = view.plan.model;
    const std::int64_t head = model.vocab_size * model.hidden_size;
    const double of_row = 4.0 * static_cast<double>(matmul_parameters(model) - head);
    const auto worked = static_cast<std::int64_t>(processor_work / of_row);
    return std::min(tokens, std::max({processor_rows, 2 * longest_profiled(view.plan), worked}));
}

std::int64_t load_tokens(std::size_t size, std::int64_t largest, bool on_gpu) {
    const double share = on_gpu ? gpu_shares[size] : processor_shares[size];
    const auto whole =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(share * static_cast<double>(largest)));
    return whole - (on_gpu ? std::min(shortfalls[size], whole / 16) : 0);
}

}  // namespace

std::int64_t longest_profiled(const Plan& plan) {
    const std::int64_t longest = std::max<std::int64_t>(1, plan.longest_sample);
    return plan.backend == BackendKind::cuda ? longest : std::min(longest, usual_longest_sample);
}

std::vector<std::int64_t> sample_lengths(std::int64_t tokens, std::int64_t longest,
                                         std::int64_t shortest) {
    std::vector<std::int64_t> lengths;
    std::int64_t next = longest;
    for (; tokens > 0; tokens -= lengths.back()) {
        lengths.push_back(std::min(next, tokens));
        next = next / 2 >= shortest ? next / 2 : longest;
    }
    return lengths;
}

Microbatch microbatch_of(const std::vector<std::int64_t>& lengths, std::size_t adapters) {
    const std::size_t samples = lengths.size();
    const std::size_t segments = std::min(adapters, samples);
    Microbatch microbatch;
    for (std::size_t i = 0; i < segments; ++i) {
        Segment segment;
        segment.adapter = static_cast<AdapterId>(i);
        for (std::size_t s = samples * i / segments; s < samples * (i + 1) / segments; ++s) {
            segment.samples.push_back(
                {static_cast<std::int32_t>(s), static_cast<std::int32_t>(lengths[s])});
        }
        microbatch.segments.push_back(segment);
    }
    return microbatch;
}

std::vector<Microbatch> profiled_loads(const Job& job, const ReplicaView& view, bool on_gpu,
                                       std::size_t sizes) {
    const std::int64_t largest = largest_load(view, on_gpu);
    std::vector<Microbatch> result;
    for (std::size_t i = 0; i < sizes; ++i) {
        const std::int64_t tokens = load_tokens(i, largest, on_gpu);
        const std::int64_t longest = std::min(tokens, longest_profiled(view.plan));
        const std::int64_t shortest =
            std::clamp<std::int64_t>(std::min(longest, usual_longest_sample) / 8, 1,
                                     on_gpu ? longest : processor_short_sample);
        for (const std::int64_t from : {longest, shortest}) {
            const bool all = on_gpu || result.size() % 4 != 1;
            result.push_back(microbatch_of(sample_lengths(tokens, from, shortest),
                                           all ? job.adapters.size() : 1));
            result.back().columns = lora_columns(job, view, result.back().segments);
        }
    }
    return result;
}

Microbatch start_microbatch(const Job& job, const StartShape& shape) {
    Microbatch microbatch =
        microbatch_of(sample_lengths(shape.tokens, prepared_sample, prepared_sample), 1);
    microbatch.columns.augmented = shape.width > 0;
    microbatch.columns.width = std::max(padded_columns(job.adapters[0].largest_rank()),
                                        static_cast<std::int32_t>(shape.width));
    microbatch.columns.first = {0};
    return microbatch;
}

std::vector<std::int32_t> random_targets(std::int64_t rows, std::int64_t labels,
                                         std::int64_t vocab_size) {
    std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), -100);
    const auto vocab = static_cast<std::uint64_t>(vocab_size);
    for (std::int64_t i = 0; i < labels; ++i) {
        targets[static_cast<std::size_t>(i * rows / labels)] =
            static_cast<std::int32_t>(uniform_int(4, static_cast<std::uint64_t>(i), vocab));
    }
    return targets;
}

}  // namespace loratrain
