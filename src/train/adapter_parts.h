#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace loratrain {

/// Some of the values that a rank has of an adapter's parameters, those behind the pieces before.
struct AdapterPiece {
    AdapterId adapter{};
    std::int32_t rank = 0;
    bool last = true;  ///< of the rank's
    std::vector<float> values;
};

/// Pieces small enough for a message each; one, empty, of no values.
std::vector<AdapterPiece> pieces_of(AdapterId adapter, std::int32_t rank,
                                    std::span<const float> values);

/// A line of numbers, then the values' bytes; reading what was written gives the same piece.
std::string to_text(const AdapterPiece& piece);
bool is_adapter_piece(const std::string& text);
AdapterPiece adapter_piece_from_text(const std::string& text);

/// Adapters whose parameters come to rank 0 piece by piece, while others train.
class AdapterParts {
  public:
    /// From ranks 1 to `ranks` - 1.
    void expect(AdapterId adapter, std::int32_t ranks);
    void add(const AdapterPiece& piece);
    bool empty() const { return parts_.empty(); }

    /// Values by rank, those of rank 0 missing.
    using ByRank = std::map<std::int32_t, std::vector<float>>;
    /// Those that are complete; they leave.
    std::map<AdapterId, ByRank> take_complete();

  private:
    struct Part {
        std::int32_t ranks_left = 0;
        ByRank values;
    };
    std::map<AdapterId, Part> parts_;
};

}  // namespace loratrain
