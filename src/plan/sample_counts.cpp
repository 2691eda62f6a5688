#include "plan/sample_counts.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace loratrain {

FileShare file_share(std::int64_t samples, double weight, std::int32_t group_samples) {
    const std::int64_t groups = samples / group_samples;
    const auto wanted = std::llround(weight * static_cast<double>(groups));
    const std::int64_t taken = groups > 0 ? std::max<std::int64_t>(1, wanted) : 0;
    return {samples, taken * group_samples};
}

std::size_t file_of(std::span<const std::int64_t> counts, std::int64_t sample) {
    std::size_t file = 0;
    for (; file < counts.size() && sample >= counts[file]; ++file) sample -= counts[file];
    LORATRAIN_CHECK(file < counts.size(), "sample ", sample, " behind the last file");
    return file;
}

std::vector<std::int64_t> samples_of_files(const AdapterPlan& plan, bool evaluation) {
    if (evaluation) return plan.eval_files;
    std::vector<std::int64_t> counts;
    for (const FileShare& file : plan.files) counts.push_back(file.samples);
    return counts.size() > 1 ? counts : std::vector<std::int64_t>{};
}

const char* unit_word(std::int32_t group_samples) {
    switch (data_kind(group_samples)) {
        case DataKind::pairs:
            return "pairs";
        case DataKind::labelled:
            return "examples";
        case DataKind::single:
            break;
    }
    return "samples";
}

std::int64_t units_of(std::int64_t samples, std::int32_t group_samples) {
    return samples * group_examples(group_samples) / group_samples;
}

}  // namespace loratrain
