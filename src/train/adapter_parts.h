#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "adapter/adapter_layout.h"
#include "base/ids.h"

namespace loratrain {

/// An adapter as it is after `step` optimizer steps.
struct AdapterAtStep {
    AdapterId adapter{};
    std::int32_t step = 0;
    auto operator<=>(const AdapterAtStep&) const = default;
};

/// Why ranks send a part of an adapter to rank 0.
enum class PartUse : std::uint8_t {
    exported,    ///< parameters of an adapter that has ended
    checkpoint,  ///< state for a checkpoint that is written while others train
    kept,        ///< parameters after some of its steps: maybe the best, or exported meanwhile
};
inline constexpr std::size_t part_uses = 3;

/// Which values of an adapter are sent, and why.
struct PartKey {
    AdapterId adapter{};
    StatePart part = StatePart::parameters;
    PartUse use = PartUse::exported;
    std::int32_t step = 0;  ///< PartUse::kept: optimizer steps behind the values
    auto operator<=>(const PartKey&) const = default;
};

/// One message of a rank's values of a part. A rank's pieces follow each other in order.
struct AdapterPiece {
    PartKey key;
    std::int32_t rank = 0;
    bool last = true;  ///< the rank's last piece of the part
    std::vector<float> values;
    std::size_t total = 0;  ///< values in all pieces of the rank
};

/// All values of a rank as one piece.
AdapterPiece whole_piece(const PartKey& key, std::int32_t rank, std::vector<float> values);
/// Cuts a whole piece into pieces of one message each, small enough for memory that the allocator
/// reuses. No values make one empty piece.
void for_each_piece(AdapterPiece whole, const std::function<void(AdapterPiece)>& take);

/// Collects on rank 0 the pieces of adapters that ranks send while others train.
class AdapterParts {
  public:
    /// `ranks` ranks will send this part.
    void expect(const PartKey& key, std::int32_t ranks);
    void add(AdapterPiece piece);
    bool empty() const { return parts_.empty(); }

    /// Values by rank.
    using ByRank = std::map<std::int32_t, std::vector<float>>;
    /// Removes and returns the complete parts of this use.
    std::map<PartKey, ByRank> take_complete(PartUse use);

  private:
    struct Part {
        std::int32_t ranks_left = 0;
        ByRank values;
    };
    std::map<PartKey, Part> parts_;
};

}  // namespace loratrain
