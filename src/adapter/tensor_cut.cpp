#include "adapter/tensor_cut.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

namespace {

void check_counts(const TensorCut& cut, std::size_t whole, std::size_t part) {
    LORATRAIN_CHECK(whole == static_cast<std::size_t>(cut.whole_count()) &&
                        part == static_cast<std::size_t>(cut.count()),
                    "a part of ", part, " of ", whole, " values instead of ", cut.count(), " of ",
                    cut.whole_count());
}

}  // namespace

std::vector<float> cut_out(const TensorCut& cut, std::span<const float> whole) {
    std::vector<float> part(static_cast<std::size_t>(cut.count()));
    check_counts(cut, whole.size(), part.size());
    cut.for_each_run(0, cut.count(), [&](const TensorCut::Run& run) {
        std::copy_n(whole.data() + run.in_whole, run.count, part.data() + run.in_part);
    });
    return part;
}

void paste(const TensorCut& cut, std::span<const float> part, std::span<float> whole) {
    check_counts(cut, whole.size(), part.size());
    cut.for_each_run(0, cut.count(), [&](const TensorCut::Run& run) {
        std::copy_n(part.data() + run.in_part, run.count, whole.data() + run.in_whole);
    });
}

}  // namespace loratrain
