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

/// An adapter after so many of its steps.
struct AdapterAtStep {
    AdapterId adapter{};
    std::int32_t step = 0;
    auto operator<=>(const AdapterAtStep&) const = default;
};

/// What ranks send a part of an adapter for.
enum class PartUse : std::uint8_t {
    exported,    ///< parameters of one that has ended
    checkpoint,  ///< one that is written while others train
    best,        ///< parameters as they were evaluated: its best state, if it turns out to be
};
inline constexpr std::size_t part_uses = 3;

/// What ranks send of an adapter.
struct PartKey {
    AdapterId adapter{};
    StatePart part = StatePart::parameters;
    PartUse use = PartUse::exported;
    std::int32_t step = 0;  ///< of PartUse::best: steps it had taken
    auto operator<=>(const PartKey&) const = default;
};

/// Values that a rank has of it: all, or some, those behind the pieces before.
struct AdapterPiece {
    PartKey key;
    std::int32_t rank = 0;
    bool last = true;  ///< of the rank's
    std::vector<float> values;
    std::size_t total = 0;  ///< values of all the rank's pieces
};

/// All values that the rank has.
AdapterPiece whole_piece(const PartKey& key, std::int32_t rank, std::vector<float> values);
/// Cuts what is whole into pieces small enough for a message each, and for memory that an allocator
/// uses again; one, empty, of no values.
void for_each_piece(AdapterPiece whole, const std::function<void(AdapterPiece)>& take);

/// What comes of adapters to rank 0 piece by piece, while others train.
class AdapterParts {
  public:
    /// From so many ranks.
    void expect(const PartKey& key, std::int32_t ranks);
    void add(AdapterPiece piece);
    bool empty() const { return parts_.empty(); }

    /// Values by rank.
    using ByRank = std::map<std::int32_t, std::vector<float>>;
    /// Those of a use that are complete; they leave.
    std::map<PartKey, ByRank> take_complete(PartUse use);

  private:
    struct Part {
        std::int32_t ranks_left = 0;
        ByRank values;
    };
    std::map<PartKey, Part> parts_;
};

}  // namespace loratrain
