#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace loratrain {

/// How policy `balanced` fills the microbatches of a block (pack_variants.h).
enum class Filling : std::uint8_t {
    filled,    ///< pack_greedy, portions merged
    fewest,    ///< pack_fewest (MILP), portions merged
    evened,    ///< pack_evened
    streamed,  ///< pack_stream
    in_turn,   ///< pack_mlora
    improved,  ///< one of these, changed by improve_packing
};

/// Blocks by what they were filled by; those of other policies are not counted.
struct FillingCounts {
    std::array<std::int64_t, 6> blocks{};  ///< by Filling

    void add(Filling filling) { ++blocks[static_cast<std::size_t>(filling)]; }
    void add(const FillingCounts& other);
    std::int64_t all() const;
};

/// "14 blocks: 9 evened, 4 streamed, 1 filled"; "" without blocks.
std::string to_text(const FillingCounts& counts);

}  // namespace loratrain
