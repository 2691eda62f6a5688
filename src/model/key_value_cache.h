#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

/// The keys and values of texts that are being written, in the layers of a stage (of a lane: its
/// heads). Memory of key_value_cache_bytes().
class KeyValueCache {
  public:
    KeyValueCache(const Job& job, const ReplicaView& view, const StagePlan& stage,
                  Backend& backend);

    /// What the rows of a forward are.
    enum class Rows : std::uint8_t {
        prompts,  ///< whole prompts, whose keys and values are kept
        next,     ///< the next token of each text
    };

    /// Forgets what is there; text i has room for rooms[i] tokens from here on. At most
    /// texts_at_once texts, and cached_tokens() in all.
    void begin(std::span<const std::int64_t> rooms);
    /// Attention of a layer, counted from the stage's first one; op.rows: a sample for each text.
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
