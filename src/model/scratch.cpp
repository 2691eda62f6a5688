#include "model/scratch.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

void LeasedBytes::begin(const TensorView& view, const char* name) {
    if (view.numel() == 0) return;
    const auto* first = static_cast<const char*>(view.data);
    const auto* end = static_cast<const char*>(view.offset(view.rows - 1, view.cols));
    for (const Range& other : ranges_) {
        LORATRAIN_CHECK(end <= other.first || other.end <= first, name, " leased while ",
                        other.name, " is");
    }
    ranges_.push_back({first, end, name});
}

void LeasedBytes::end(const TensorView& view) {
    if (view.numel() == 0) return;
    const auto own = std::find_if(ranges_.begin(), ranges_.end(),
                                  [&](const Range& range) { return range.first == view.data; });
    if (own != ranges_.end()) ranges_.erase(own);
}

}  // namespace loratrain
