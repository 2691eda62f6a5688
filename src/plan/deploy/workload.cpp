#include "plan/deploy/workload.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "plan/cost/cost_model.h"

namespace loratrain {

namespace {

/// Enough rows for the matrix products to run at full speed.
constexpr std::int64_t usual_microbatch_tokens_cpu = 2048;
constexpr std::int64_t usual_microbatch_tokens_cuda = 8192;

std::int64_t longest_of(const std::vector<SampleInfo>& samples, std::int32_t group_samples) {
    std::int64_t longest = 0;
    for (const std::int64_t tokens : tokens_of_groups(samples, group_samples)) {
        longest = std::max(longest, tokens);
    }
    return longest;
}

}  // namespace

std::int64_t largest_batch(const AdapterJob& adapter, const DatasetInfo& info) {
    std::vector<std::int64_t> lengths = tokens_of_groups(info.train, info.group_samples);
    const std::int64_t most = adapter.global_batch_size / group_examples(info.group_samples);
    const auto size = std::min<std::int64_t>(most, std::ssize(lengths));
    std::partial_sort(lengths.begin(), lengths.begin() + size, lengths.end(), std::greater<>());
    return std::accumulate(lengths.begin(), lengths.begin() + size, std::int64_t{0});
}

namespace {

AdapterLoads usual_loads(const Job& job, const AttentionSpan& span,
                         std::span<const DatasetInfo> datasets, std::int64_t rows) {
    struct Step {
        double tokens = 0.0;
        double squares = 0.0;
        double targets = 0.0;
    };
    std::vector<Step> steps;
    double tokens = 0.0;
    for (const AdapterJob& adapter : job.adapters) {
        if (adapter.ended) {
            steps.emplace_back();
            continue;
        }
        const DatasetInfo& info = datasets[index(adapter.dataset)];
        const std::vector<SampleInfo>& samples = info.train;
        const auto count = static_cast<double>(std::ssize(samples) / info.group_samples);
        const std::int32_t most = adapter.global_batch_size / group_examples(info.group_samples);
        const double share = std::min<double>(most, count) / count;
        Step& step = steps.emplace_back();
        for (const SampleInfo& sample : samples) {
            step.tokens += share * sample.tokens;
            step.squares += share * span.squares(sample.tokens);
            step.targets += share * sample.targets;
        }
        tokens += step.tokens;
    }
    const double scale = static_cast<double>(rows) / tokens;
    AdapterLoads loads;
    for (std::size_t a = 0; a < steps.size(); ++a) {
        const Step& step = steps[a];
        loads.add(static_cast<AdapterId>(a),
                  {std::llround(step.tokens * scale), step.squares * scale,
                   std::llround(step.targets * scale)});
    }
    return loads;
}

}  // namespace

std::set<DatasetId> used_datasets(const Job& job) {
    std::set<DatasetId> used;
    for (const AdapterJob& adapter : job.adapters) {
        if (!adapter.ended) used.insert(adapter.dataset);
    }
    return used;
}

MicrobatchLoad scaled_to(const MicrobatchLoad& load, std::int64_t tokens) {
    if (load.tokens == 0) return load;
    const double factor = static_cast<double>(tokens) / static_cast<double>(load.tokens);
    return {tokens, load.squares * factor,
            std::llround(static_cast<double>(load.targets) * factor)};
}

AdapterLoads scaled_to(const AdapterLoads& loads, std::int64_t tokens) {
    if (loads.total.tokens == 0) return loads;
    const double factor = static_cast<double>(tokens) / static_cast<double>(loads.total.tokens);
    AdapterLoads scaled;
    for (const AdapterLoads::Part& part : loads.parts) {
        scaled.add(
            part.adapter,
            scaled_to(part.load, std::llround(static_cast<double>(part.load.tokens) * factor)));
    }
    if (loads.parts.empty()) scaled.total = scaled_to(loads.total, tokens);
    return scaled;
}

std::int64_t Workload::wanted_tokens() const {
    return std::min(usual_tokens, largest_round);
}

std::int64_t usual_tokens_of_one_gpu(const ModelSpec& model) {
    constexpr std::int64_t elements = std::int64_t{1} << 24;
    return std::clamp(elements / model.hidden_size, usual_microbatch_tokens_cuda,
                      4 * usual_microbatch_tokens_cuda);
}

Workload workload_of(const Job& job, const ModelSpec& model, BackendKind backend,
                     std::span<const DatasetInfo> datasets,
                     std::optional<std::int64_t> usual_tokens) {
    Workload work;
    for (const AdapterJob& adapter : job.adapters) {
        if (adapter.ended) continue;
        const std::int64_t batch = largest_batch(adapter, datasets[index(adapter.dataset)]);
        work.largest_round += batch;
        if (adapter.loss.is_contrastive())
            work.longest_sample = std::max(work.longest_sample, batch);
    }
    for (const DatasetId id : used_datasets(job)) {
        const DatasetInfo& info = datasets[index(id)];
        work.longest_sample =
            std::max({work.longest_sample, longest_of(info.train, info.group_samples),
                      longest_of(info.eval, info.group_samples)});
    }
    const bool cuda = backend == BackendKind::cuda;
    work.usual_tokens =
        usual_tokens.value_or(cuda ? usual_microbatch_tokens_cuda : usual_microbatch_tokens_cpu);
    work.usual = usual_loads(job, AttentionSpan(model), datasets,
                             job.parallel.microbatch_tokens.value_or(work.usual_tokens));
    return work;
}

}  // namespace loratrain
