#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "plan/memory/kind_memory.h"

namespace loratrain {

/// What the layers of a stage keep of texts that are being generated (LayerCache); a lane holds
/// what is of its heads. Takes text_cache_bytes() of backend memory.
class TextCache {
  public:
    TextCache(const Job& job, const ReplicaView& view, const StagePlan& stage, Backend& backend);

    /// What the rows of a forward are.
    enum class Rows : std::uint8_t {
        prompts,  ///< whole prompts
        next,     ///< the next token of each text
    };

    /// Forgets all texts and makes room for rooms[i] tokens of text i. At most cached_texts() texts
    /// and cached_tokens() tokens in all.
    void begin(std::span<const std::int64_t> rooms);

    // Operators of a layer, which read and keep what the cache has of it. `layer` counts from the
    // stage's first layer; the rows have one sample per text. A layer that the stage computes for
    // some adapters has a part of the texts, the same until the next begin(), from `first_text` on.
    void attend(std::int32_t layer, const Attention& op, Rows rows, std::int64_t first_text);
    void convolve(std::int32_t layer, const CausalConv& op);
    void run_rule(std::int32_t layer, const DeltaRule& op);

  private:
    const LayerCache& layer_of(std::int32_t layer, const PackedRows& rows) const;

    Backend& backend_;
    std::int64_t texts_;
    std::int64_t tokens_;
    Buffer memory_;
    std::vector<LayerCache> layers_;
    std::int32_t* device_first_ = nullptr;  ///< first_ in backend memory
    std::vector<std::int32_t> first_;       ///< row of each text's first token
};

}  // namespace loratrain
