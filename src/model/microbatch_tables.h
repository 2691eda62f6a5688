#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "plan/memory_model.h"

namespace loratrain {

/// A microbatch as host arrays (made by the data layer's loader, or in tests by hand).
struct MicrobatchRows {
    std::span<const std::int32_t> token_ids;   ///< [T], first stage
    std::span<const std::int32_t> targets;     ///< [T] shifted, -100 = none; last stage
    std::span<const std::int32_t> positions;   ///< [T]
    std::span<const std::int32_t> sample_ids;  ///< [T]
    std::span<const std::int32_t> offsets;     ///< [samples + 1]
};

/// How the loss of a microbatch is scaled and summed.
struct LossRule {
    /// Per segment: 1 / (target tokens of its global batch); unused for evaluation.
    std::vector<float> scales;
    /// Evaluation sums per sample of the microbatch, training per adapter.
    bool evaluation = false;
};

/// The index tables of one microbatch in backend memory, and what the host needs of them. Lives in
/// an activation slot from forward to backward.
class MicrobatchTables {
  public:
    /// `memory`: table_bytes(plan) of backend memory.
    MicrobatchTables(const Plan& plan, Backend& backend, void* memory);

    void set(const Job& job, const Microbatch& microbatch, const MicrobatchRows& rows,
             const LossRule& rule);

    std::int64_t tokens() const { return tokens_; }
    bool evaluation() const { return evaluation_; }
    std::int64_t samples() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
    PackedRows packed_rows() const;
    LoraRows lora_rows() const { return {segments_, packed_rows()}; }
    const std::int32_t* token_ids() const { return tables_[0]; }

    /// Adapter of each segment; slot number of a segment = its position.
    const std::vector<AdapterId>& adapters() const { return adapters_; }
    /// True when the plan's pad holds the columns of all segments side by side; else each segment's
    /// columns start at 0 and LoRA goes by segment.
    bool augmented() const { return augmented_; }
    /// First LoRA column of each segment's slot, and the padded width of all together.
    const std::vector<std::int32_t>& columns() const { return columns_; }
    std::int64_t width() const { return width_; }
    /// Whose factors the pads of weight matrices hold, and in which columns: on a GPU those of all
    /// the job's adapters where they fit in so few columns that products take no longer by them.
    /// So pads hold for microbatches of other adapters too, until one is stepped.
    struct PadPlace {
        AdapterId adapter{};
        std::int32_t column = 0;
    };
    const std::vector<PadPlace>& pads() const { return pads_; }
    bool has_dropout() const { return has_dropout_; }

    /// Rows with a target are handled in chunks of the logits buffer. A chunk owns the rows
    /// [first_row, first_row + row_count) of the microbatch; `ids` count from first_row.
    struct LabelChunk {
        std::int64_t first_row = 0;
        std::int64_t row_count = 0;
        std::int64_t labels = 0;
        const std::int32_t* ids = nullptr;
        const std::int32_t* targets = nullptr;
        const std::int32_t* bins = nullptr;
        const float* scales = nullptr;
    };
    const std::vector<LabelChunk>& label_chunks() const { return chunks_; }

  private:
    void set_columns(const Job& job, const Microbatch& microbatch);
    void set_segments(const Job& job, const Microbatch& microbatch);
    void set_labels(const Microbatch& microbatch, const MicrobatchRows& rows, const LossRule& rule);
    void upload(std::int32_t* table, std::span<const std::int32_t> values);

    const Plan& plan_;
    Backend& backend_;
    std::int32_t* tables_[8];
    std::int64_t tokens_ = 0;
    bool evaluation_ = false;
    std::vector<std::int32_t> offsets_;
    std::vector<LoraSegment> segments_;
    std::vector<AdapterId> adapters_;
    std::vector<std::int32_t> columns_;
    std::vector<PadPlace> pads_;
    bool augmented_ = false;
    std::int64_t width_ = 0;
    bool has_dropout_ = false;
    std::vector<LabelChunk> chunks_;
    std::vector<std::int32_t> label_rows_;
    std::vector<std::int32_t> label_targets_;
    std::vector<std::int32_t> label_bins_;
    std::vector<float> label_scales_;
};

}  // namespace loratrain
