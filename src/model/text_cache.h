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

    /// Forgets all texts and makes room for rooms[i] tokens of text i. At most text_room() of both.
    void begin(std::span<const std::int64_t> rooms);
    /// Sets what the rows of the next forward are; they have one sample per text, from text `first`
    /// on. All prompts come before the first next tokens; later, as a prompt again, a whole text
    /// may replace what is kept of it.
    void expect(Rows rows, std::int64_t first);

    // Operators of a layer, which read and keep what the cache has of it. `layer` counts from the
    // stage's first layer. A layer that the stage computes for some adapters has the samples from
    // `first_sample` of the forward on.
    void attend(std::int32_t layer, const Attention& op, std::int64_t first_sample);
    void convolve(std::int32_t layer, const CausalConv& op, std::int64_t first_sample);
    void run_rule(std::int32_t layer, const DeltaRule& op, std::int64_t first_sample);

    /// Where the tokens chosen in a forward are put: one for each text.
    ChosenToken* chosen() const { return chosen_; }

  private:
    /// The text of the first row, after a check that there are so many.
    std::int64_t first_text(const PackedRows& rows, std::int64_t first_sample) const;
    const LayerCache& layer_of(std::int32_t layer) const {
        return layers_[static_cast<std::size_t>(layer)];
    }

    Backend& backend_;
    TextRoom room_;
    Buffer memory_;
    std::vector<LayerCache> layers_;
    std::int32_t* device_first_ = nullptr;  ///< first_ in backend memory
    ChosenToken* chosen_ = nullptr;
    std::vector<std::int32_t> first_;  ///< row of each text's first token
    Rows rows_{};
    std::int64_t forward_first_ = 0;
};

}  // namespace loratrain
