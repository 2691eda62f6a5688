#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "adapter/adapter_layout.h"
#include "base/ids.h"

namespace loratrain {

/// What ranks send of an adapter: its parameters for an export, or a part of its state for a
/// checkpoint that is written while others train.
struct PartKey {
    AdapterId adapter{};
    StatePart part = StatePart::parameters;
    bool of_checkpoint = false;
    bool operator==(const PartKey&) const = default;
    bool operator<(const PartKey& other) const {
        return std::tie(adapter, part, of_checkpoint) <
               std::tie(other.adapter, other.part, other.of_checkpoint);
    }
};

/// Some of the values that a rank has of it, those behind the pieces before.
struct AdapterPiece {
    PartKey key;
    std::int32_t rank = 0;
    bool last = true;  ///< of the rank's
    std::vector<float> values;
};

/// Pieces small enough for a message each; one, empty, of no values.
std::vector<AdapterPiece> pieces_of(const PartKey& key, std::int32_t rank,
                                    std::span<const float> values);

/// A line of numbers, then the values' bytes; reading what was written gives the same piece.
std::string to_text(const AdapterPiece& piece);
bool is_adapter_piece(const std::string& text);
AdapterPiece adapter_piece_from_text(const std::string& text);

/// What comes of adapters to rank 0 piece by piece, while others train.
class AdapterParts {
  public:
    /// From so many ranks.
    void expect(const PartKey& key, std::int32_t ranks);
    void add(const AdapterPiece& piece);
    bool empty() const { return parts_.empty(); }

    /// Values by rank.
    using ByRank = std::map<std::int32_t, std::vector<float>>;
    /// Those that are complete, for checkpoints or for exports; they leave.
    std::map<PartKey, ByRank> take_complete(bool of_checkpoint);

  private:
    struct Part {
        std::int32_t ranks_left = 0;
        ByRank values;
    };
    std::map<PartKey, Part> parts_;
};

}  // namespace loratrain
