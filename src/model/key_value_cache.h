#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

/// Keys and values of texts that are being generated, in the layers of a stage; a lane holds those
/// of its heads. Takes key_value_cache_bytes() of backend memory.
class KeyValueCache {
  public:
    KeyValueCache(const Job& job, const ReplicaView& view, const StagePlan& stage,
                  Backend& backend);

    /// What the rows of a forward are.
    enum class Rows : std::uint8_t {
        prompts,  ///< whole prompts, whose keys and values are kept
        next,     ///< the next token of each text
    };

    /// Empties the cache and makes room for rooms[i] tokens of text i. At most texts_at_once texts
    /// and cached_tokens() tokens in all.
    void begin(std::span<const std::int64_t> rooms);
    /// Attention of a layer with the cached keys and values. `layer` counts from the stage's first
    /// layer; op.rows has one sample per text.
    void attend(std::int32_t layer, const Attention& op, Rows rows);

  private:
    /// part 0: keys, 1: values.
    TensorView part(std::int32_t layer, int part) const;

    Backend& backend_;
    std::int64_t tokens_;
    std::int64_t columns_;
    std::uint64_t first_offset_;
    Buffer memory_;
    std::vector<std::int32_t> first_;  ///< row of each text's first token
};

}  // namespace loratrain
