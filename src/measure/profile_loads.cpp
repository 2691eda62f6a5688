#include "measure/profile_loads.h"

#include <algorithm>

namespace loratrain {

std::int64_t longest_profiled(const Plan& plan) {
    const std::int64_t longest = std::max<std::int64_t>(1, plan.samples.longest);
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

}  // namespace loratrain
