#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "adapter/adapter_layout.h"
#include "backend/backend.h"

namespace loratrain {

/// Where the numbers of either moment of an adapter lie in its array: in fp32 those of plain
/// tensors, then scales and codes (AdamW8bit) of coded ones. Without coded tensors that is the
/// array of gradients.
class MomentLayout {
  public:
    /// Neighbouring tensors of one rate group that one op steps: of coded ones blocks begin anew
    /// with each tensor, so that but for the last they have whole blocks.
    struct Run {
        bool coded = false;
        std::size_t rate_group = 0;
        ArrayRange range;        ///< of the array of gradients
        std::int64_t first = 0;  ///< among the plain numbers, or among the codes
        std::int64_t block = 0;  ///< of coded ones, the first scale
    };

    MomentLayout() = default;
    MomentLayout(const AdapterLayout& layout,
                 const std::function<bool(const PlacedTensor&)>& is_coded);

    /// A run for each rate group at least, which may be empty.
    std::span<const Run> runs() const { return runs_; }
    bool any_coded() const { return codes_ > 0; }
    /// fp32 words of an array.
    std::int64_t words() const { return plain_ + blocks_ + (codes_ + 3) / 4; }

    /// Where arrays of moments are the op reads and writes them; the rest of it is as it was.
    void place(const Run& run, float* first_moments, float* second_moments, AdamW8bit& op) const;

    /// The numbers of an array of moments, as gradients lie, and the array of numbers. What comes
    /// from decoded() has the same numbers again, to the bit; others become the nearest codes.
    std::vector<float> decoded(StatePart part, std::span<const float> array) const;
    std::vector<float> encoded(StatePart part, std::span<const float> numbers) const;

  private:
    std::vector<Run> runs_;
    std::int64_t plain_ = 0;
    std::int64_t blocks_ = 0;
    std::int64_t codes_ = 0;
};

}  // namespace loratrain
