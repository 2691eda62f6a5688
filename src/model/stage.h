#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/activation_offload.h"
#include "model/activation_slot.h"
#include "model/embedding_lora.h"
#include "model/frozen_weights.h"
#include "model/head.h"
#include "model/key_value_cache.h"
#include "model/layers/decoder_layer.h"
#include "model/objective/loss_passes.h"
#include "model/stage_sums.h"

namespace loratrain {

/// [embedding] layers [head and loss] of one rank, with the adapters' parts in them. Knows no MPI:
/// the pipeline runner moves `input`, `output` and the gradient messages between stages. The lanes
/// of a tensor-parallel stage each have one, and make the same calls in the same order.
class Stage {
  public:
    Stage(const Job& job, const ReplicaView& view, std::size_t stage_index,
          const WeightSource& source, Backend& backend,
          ObjectiveOf objective_of = loratrain::objective_of, const StageLanes& lanes = one_lane(),
          SharedLayers* shared_layers = nullptr);

    const StagePlan& plan() const { return stage_; }
    AdapterBank& bank() { return bank_; }
    const StageSums& sums() const { return sums_; }
    std::int32_t lane() const { return lanes_.index(); }
    std::int32_t slots() const { return static_cast<std::int32_t>(slots_.size()); }

    /// Boundary tensors [tokens, H] of a slot, contiguous, each with message_tail_bytes behind it.
    TensorView input(std::int32_t slot, std::int64_t tokens) const;
    TensorView output(std::int32_t slot, std::int64_t tokens) const;

    /// Runs a microbatch through the stage's layers. First stage: from token ids; others: from
    /// input(slot). Last stage: also the loss, and unless terms.evaluation its gradient.
    void forward(std::int32_t slot, const Microbatch& microbatch, const MicrobatchRows& rows,
                 const LossTerms& terms);

    // Texts that an adapter writes (GenerateJob), a token of each at a time. A stage holds the
    // whole of them between begin_texts() and the next one; slot 0 is theirs.
    /// Text i has room for rooms[i] tokens (KeyValueCache::begin).
    void begin_texts(std::span<const std::int64_t> rooms) { cache_->begin(rooms); }
    /// As forward() of an evaluation; rows: a sample for each text. Last stage: logits of the rows
    /// that have a target are asked for (likely_tokens).
    void forward_texts(const Microbatch& microbatch, const MicrobatchRows& rows,
                       KeyValueCache::Rows what);
    /// After it, of the last stage: for each row with a target.
    std::vector<LikelyToken> likely_tokens();

    /// What a stage does with a microbatch.
    enum class Pass : std::uint8_t { forward, backward };
    /// Whether layers stream, so that expect() is of use.
    bool streams() const { return weights_.streams(); }
    /// For their record, null where none does.
    LayerStream* layer_stream() { return weights_.stream(); }
    /// The same of activations that go to the host.
    ActivationOffload* activation_offload() { return offload_ ? &*offload_ : nullptr; }
    /// What follows the next forward or backward, so that its layers come in time; else backward is
    /// assumed to follow the forward of training, forward all else.
    void expect(Pass next) { next_pass_ = next; }

    /// Called behind each layer of a forward or backward while the host gives the backend its
    /// operations, for what must go on meanwhile; empty = nothing.
    void between_layers(std::function<void()> call) { between_layers_ = std::move(call); }

    /// Accumulates the adapter gradients of the microbatch in `slot`. `d_output`: gradient of
    /// output(slot) (unused on the last stage); `d_input`: receives the gradient of input(slot)
    /// (unused on the first stage). Both [tokens, H].
    void backward(std::int32_t slot, const TensorView& d_output, const TensorView& d_input);

    /// After the last backward of a global batch: completes the gradients over the lanes, then
    /// partial[adapter] = squares of this stage's gradients (+ received[adapter] with `add`).
    void finish_batch(AdapterId adapter, bool add_received);
    /// Losses of the adapter's batch, all of which is backwarded, as a double: on the first lane of
    /// the last stage, null on others.
    std::unique_ptr<Readback> loss_to_report(AdapterId adapter) const;
    /// Where sums are exchanged and not sent with messages: total[adapter] = squares.
    void set_total(AdapterId adapter, double squares);
    /// Optimizer step with total[adapter]; clears the adapter's sums for the next batch.
    void step(AdapterId adapter, double learning_rate);

    /// Losses of samples under the base model or a ref_adapter, for objectives that ask. They are
    /// set before the microbatches of these samples come.
    ReferenceLosses& references() { return references_; }
    /// Of the last stage.
    LossPasses& losses() { return *loss_; }

    /// Logits of all rows of the microbatch in `slot` after a forward (last stage), [T, V].
    std::vector<float> logits(std::int32_t slot);

  private:
    /// Tables are set. From the slot's input, or token ids, to its output.
    void forward_layers(std::int32_t slot, Pass next);
    void embed(const ActivationSlot& slot);
    /// What has changed of the factors, for all resident layers at once.
    void pack_factors(const MicrobatchTables& tables);
    /// The layer's weights until done(), with factors packed where it streams.
    LayerWeights& use_layer(std::int32_t l, const LayerRows& rows);
    void expect_layers(const MicrobatchTables& tables, Pass now, Pass usually_next);
    /// To the embeddings of adapters with NEFTune's noise.
    float embedding_scale() const;
    void add_noise(const LayerRows& rows, const TensorView& x);
    /// The lane's own rows of the embedding for tokens, -1 for those of other lanes.
    std::span<const std::int32_t> own_ids(std::span<const std::int32_t> token_ids);
    /// Copies the rows that a shared layer does not compute here to its output.
    void pass_others(const ActivationSlot& slot, std::int32_t l);
    /// Whether the activations of layer `l` of the slot have to be made again for its backward.
    bool is_lost(std::int32_t slot, std::int32_t l) const;

    const Job& job_;
    ReplicaView view_;
    StagePlan stage_;
    Backend& backend_;
    StageLanes lanes_;
    FrozenWeights weights_;
    Workspace workspace_;
    AdapterBank bank_;
    std::vector<std::unique_ptr<ActivationSlot>> slots_;
    std::vector<LayerKeeping> keeping_;
    std::int32_t last_recomputed_ = -1;  ///< layer of the stage, -1 = none
    /// The slot whose last recomputed layer is in Workspace::layer, -1 = none.
    std::int32_t resident_slot_ = -1;
    std::optional<ActivationOffload> offload_;  ///< where layers' activations go to the host
    std::optional<Pass> next_pass_;
    std::function<void()> between_layers_;
    std::vector<std::int32_t> own_ids_;
    std::vector<Buffer> sum_buffers_;
    StageSums sums_;
    DecoderLayer layer_;
    EmbeddingLora embedding_lora_;
    ReferenceLosses references_;
    std::unique_ptr<Head> head_;
    std::unique_ptr<LossPasses> loss_;
    std::optional<KeyValueCache> cache_;  ///< of a job whose adapters write texts
};

}  // namespace loratrain
