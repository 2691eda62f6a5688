#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "adapter/adapter_layout.h"
#include "backend/backend.h"

namespace loratrain {

/// Layout of an adapter's array of first or second moments: the fp32 values of plain tensors, then
/// the scales of coded tensors, then their 8-bit codes (AdamW8bit). Without coded tensors it equals
/// the layout of the gradient array.
class MomentLayout {
  public:
    /// Neighbouring tensors of one rate group that one op steps. Blocks of codes begin anew with
    /// each tensor, so every coded tensor in a run except the last has whole blocks.
    struct Run {
        bool coded = false;
        std::size_t rate_group = 0;
        ArrayRange range;        ///< range in the gradient array
        std::int64_t first = 0;  ///< offset in the plain values, or in the codes
        std::int64_t block = 0;  ///< index of the first scale; coded runs only
    };

    MomentLayout() = default;
    MomentLayout(const AdapterLayout& layout,
                 const std::function<bool(const PlacedTensor&)>& is_coded);

    /// At least one run per rate group; a run may be empty.
    std::span<const Run> runs() const { return runs_; }
    bool any_coded() const { return codes_ > 0; }
    /// Size of an array of moments in fp32 words.
    std::int64_t words() const { return plain_ + blocks_ + (codes_ + 3) / 4; }

    /// Sets the pointers of `op` to the run's moments in the two arrays; leaves the rest of `op`
    /// unchanged.
    void place(const Run& run, float* first_moments, float* second_moments, AdamW8bit& op) const;

    /// decoded(): the fp32 moments of an array, in the order of the gradients. encoded(): the
    /// inverse. Encoding the result of decoded() gives the same moments bit for bit; other values
    /// become the nearest codes.
    std::vector<float> decoded(StatePart part, std::span<const float> array) const;
    std::vector<float> encoded(StatePart part, std::span<const float> numbers) const;

  private:
    std::vector<Run> runs_;
    std::int64_t plain_ = 0;
    std::int64_t blocks_ = 0;
    std::int64_t codes_ = 0;
};

}  // namespace loratrain
