#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "config/job_words.h"

namespace loratrain {

std::int64_t DatasetInfo::train_tokens() const {
    std::int64_t sum = 0;
    if (files.empty()) {
        for (const SampleInfo& sample : train) sum += sample.tokens;
        return sum;
    }
    auto next = train.begin();
    for (const FileShare& file : files) {
        double tokens = 0.0;
        for (std::int64_t i = 0; i < file.samples; ++i) tokens += (next++)->tokens;
        sum += std::llround(tokens * static_cast<double>(file.taken) /
                            static_cast<double>(std::max<std::int64_t>(1, file.samples)));
    }
    return sum;
}

bool any_grow(std::span<const DatasetInfo> datasets) {
    return std::any_of(datasets.begin(), datasets.end(),
                       [](const DatasetInfo& info) { return info.arrivals.has_value(); });
}

std::vector<std::string> joined_groups(const ReplicaPlan& replica) {
    std::vector<std::string> groups;
    for (const auto& word : linear_group_words) {
        if (replica.joined[static_cast<std::size_t>(word.value)]) groups.emplace_back(word.text);
    }
    return groups;
}

std::int64_t AdapterPlan::epoch_samples() const {
    if (files.empty()) return samples;
    std::int64_t sum = 0;
    for (const FileShare& file : files) sum += file.taken;
    return sum;
}

std::vector<std::int64_t> tokens_of_groups(const std::vector<SampleInfo>& samples,
                                           std::int32_t size) {
    std::vector<std::int64_t> groups(samples.size() / static_cast<std::size_t>(size));
    for (std::size_t s = 0; s < groups.size() * static_cast<std::size_t>(size); ++s) {
        groups[s / static_cast<std::size_t>(size)] += samples[s].tokens;
    }
    return groups;
}

std::int64_t Segment::tokens() const {
    std::int64_t total = 0;
    for (const SampleRef& sample : samples) total += sample.tokens;
    return total;
}

std::int64_t Microbatch::tokens() const {
    std::int64_t total = 0;
    for (const Segment& segment : segments) total += segment.tokens();
    return total;
}

std::int64_t Microbatch::samples() const {
    std::int64_t total = 0;
    for (const Segment& segment : segments) {
        total += static_cast<std::int64_t>(segment.samples.size());
    }
    return total;
}

NumberTypes number_types(Precision precision, BackendKind backend) {
    const bool cuda = backend == BackendKind::cuda;
    if (precision == Precision::automatic) precision = cuda ? Precision::bf16 : Precision::fp32;
    if (precision == Precision::fp32) return {DType::f32, WeightFormat::f32};
    return {cuda ? DType::bf16 : DType::f32, WeightFormat::bf16, precision == Precision::fp8};
}

}  // namespace loratrain
