#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/layer_rows.h"
#include "model/objective/objective.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

/// A microbatch as index tables for the operators.

/// A microbatch as host arrays. The data layer's loader makes it.
struct MicrobatchRows {
    std::span<const std::int32_t> token_ids;   ///< [T], first stage
    std::span<const std::int32_t> targets;     ///< [T] shifted, -100 = none; last stage
    std::span<const std::int32_t> positions;   ///< [T]
    std::span<const std::int32_t> sample_ids;  ///< [T]
    std::span<const std::int32_t> offsets;     ///< [samples + 1]
    std::span<const float> weights = {};  ///< [T] weights of the targets, last stage; empty: 1 each
    /// [T] of the targets of rollouts, last stage (RolloutRows); empty if there are none.
    std::span<const float> advantages = {};
    std::span<const float> logprobs = {};
};

/// Bins in which the losses of rows are summed.
enum class LabelBins : std::uint8_t {
    adapters,  ///< by number of the adapter
    samples,   ///< by place of the sample in the microbatch
    targets,   ///< each row with a target is a bin
};

/// Index tables of one microbatch in backend memory, with the parts that the host needs. They live
/// in an activation slot from forward to backward.
class MicrobatchTables {
  public:
    /// `memory`: table_bytes(view) bytes of backend memory.
    MicrobatchTables(const ReplicaView& view, const StagePlan& stage, Backend& backend,
                     void* memory);

    /// Sets all tables except those of the labels. An evaluation has no dropout.
    void set(const Job& job, const Microbatch& microbatch, const MicrobatchRows& rows,
             const LossTerms& terms);

    /// Sets the rows with a target; after set(). `scales`: per sample of the microbatch, the factor
    /// of its rows' logit gradients beside the rows' weights. `forms`: per segment.
    void set_labels(const Microbatch& microbatch, const MicrobatchRows& rows,
                    std::span<const float> scales, std::span<const TokenLoss> forms,
                    LabelBins bins);
    /// Sets the rows without a target whose hidden states an objective compares. After
    /// set_labels(), which clears them.
    void set_ends(std::vector<std::int32_t> rows);
    /// Replaces the scales of labels, one for each bin, that are summed by samples or targets.
    void scale_labels(std::span<const float> scales);

    std::int64_t tokens() const { return whole_.tokens; }
    std::int64_t samples() const { return whole_.packed.samples; }
    /// Number of bins of labels that are summed by samples or targets.
    std::int64_t label_bins() const { return bin_count_; }
    const std::int32_t* token_ids() const { return tables_[0]; }

    /// All rows, also those that another stage computes in a shared layer.
    const LayerRows& all_rows() const { return whole_; }
    /// Rows that a layer of the stage computes; may be empty. `layer` counts from the stage's first
    /// layer.
    const LayerRows& in_layer(std::int32_t layer) const;

    /// Rows with a target that the head handles at once: as many as the logits buffer holds, all
    /// with one form. A chunk covers rows [first_row, first_row + row_count) of the microbatch;
    /// `ids` count from first_row.
    struct LabelChunk {
        std::int64_t first_row = 0;
        std::int64_t row_count = 0;
        std::int64_t labels = 0;
        const std::int32_t* ids = nullptr;
        const std::int32_t* targets = nullptr;
        const std::int32_t* bins = nullptr;
        const float* scales = nullptr;
        const float* weights = nullptr;  ///< null: 1 each
        TokenLoss form = {};
        std::vector<LoraSegment> segments = {};  ///< segments of the labels; slots as in all_rows()
    };
    const std::vector<LabelChunk>& label_chunks() const { return chunks_; }
    std::span<const std::int32_t> ends() const { return ends_; }
    /// ends() in backend memory, stored behind the rows with a target.
    const std::int32_t* end_ids() const;

  private:
    void set_columns(const Microbatch& microbatch);
    void set_segments(const Job& job, const Microbatch& microbatch);
    void set_part(const Job& job, const AdapterSpan& adapters, std::int32_t* offsets,
                  LayerRows& part);
    static void add_label(LabelChunk& chunk, const LoraSegment& of);
    void upload(std::int32_t* table, std::span<const std::int32_t> values);
    void upload(std::int32_t* table, std::span<const float> values);

    ReplicaView view_;
    StagePlan stage_;
    Backend& backend_;
    std::int32_t* tables_[11];
    LayerRows whole_;
    LayerRows first_;  ///< rows of the first and of the last layer, if the layer is shared
    LayerRows last_;
    std::vector<LabelChunk> chunks_;
    std::vector<std::int32_t> label_rows_;
    std::vector<std::int32_t> label_targets_;
    std::vector<std::int32_t> label_bins_;
    std::int64_t bin_count_ = 0;
    std::vector<float> label_scales_;
    std::vector<float> label_weights_;  ///< empty: 1 each
    std::vector<std::int32_t> ends_;
};

}  // namespace loratrain
