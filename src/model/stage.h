#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/activation_offload.h"
#include "model/activation_slot.h"
#include "model/frozen_weights.h"
#include "model/head.h"
#include "model/layers/decoder_layer.h"
#include "model/loss_passes.h"
#include "model/text_cache.h"

namespace loratrain {

/// The part of the model that one rank computes: [embedding] layers [head and loss], with the
/// adapters' tensors in them. Does not use MPI: the pipeline runner moves `input`, `output` and
/// gradient messages between stages. Each lane of a tensor-parallel stage has one Stage, and all
/// lanes make the same calls in the same order.
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

    /// Boundary tensors [tokens, H] of a slot. Contiguous, each followed by message_tail_bytes.
    TensorView input(std::int32_t slot, std::int64_t tokens) const;
    TensorView output(std::int32_t slot, std::int64_t tokens) const;

    /// Runs a microbatch through the stage's layers. The first stage starts from token ids, other
    /// stages from input(slot). The last stage also computes the loss, and its gradient unless
    /// terms.evaluation is set.
    void forward(std::int32_t slot, const Microbatch& microbatch, const MicrobatchRows& rows,
                 const LossTerms& terms);

    // Texts that an adapter generates (GenerateJob), one token of each text at a time. All texts of
    // a call of begin_texts() stay in the stage until the next call; they use slot 0.
    /// Makes room for rooms[i] tokens of text i (TextCache::begin).
    void begin_texts(std::span<const std::int64_t> rooms) { cache_->begin(rooms); }
    /// As forward() of an evaluation, with one sample per text in `rows`, from text `first` on. On
    /// the last stage the rows with a target are those whose next tokens are wanted.
    void forward_texts(const Microbatch& microbatch, const MicrobatchRows& rows,
                       TextCache::Rows what, std::int64_t first);
    /// The next token of each row with a target, after forward_texts(); a lane's are of its part of
    /// the vocabulary. Last stage only.
    std::vector<ChosenToken> choose_tokens(std::span<const TokenDraw> draws);
    /// The logits of these rows (Head::target_logits), after forward_texts(). Last stage only.
    void text_logits(const Head::LogitsUse& use);

    /// A pass of a microbatch through the stage.
    enum class Pass : std::uint8_t { forward, backward };
    /// Whether layers stream, so that expect() has an effect.
    bool streams() const { return weights_.streams(); }
    /// The stream of layers, for its transfer record; null if no layer streams.
    LayerStream* layer_stream() { return weights_.stream(); }
    /// The offload of activations, for its transfer record; null if there is none.
    ActivationOffload* activation_offload() { return offload_ ? &*offload_ : nullptr; }
    /// Sets the pass that follows the next forward or backward, so that its layers are loaded in
    /// time. By default backward follows the forward of training, and forward follows every other
    /// pass.
    void expect(Pass next) { next_pass_ = next; }

    /// Sets a function that is called after each layer while the host queues the operations of a
    /// forward or backward, for work that must go on meanwhile. Empty = none.
    void between_layers(std::function<void()> call) { between_layers_ = std::move(call); }

    /// Accumulates the adapter gradients of the microbatch in `slot`. `d_output`: gradient of
    /// output(slot), not used on the last stage. `d_input`: receives the gradient of input(slot),
    /// not used on the first stage. Both are [tokens, H].
    void backward(std::int32_t slot, const TensorView& d_output, const TensorView& d_input);

    /// Call after the last backward of a global batch. Completes the gradients over the lanes, then
    /// sets partial[adapter] = squares of this stage's gradients, plus received[adapter] with
    /// `add_received`.
    void finish_batch(AdapterId adapter, bool add_received);
    /// Loss of the adapter's batch as a double, once every backward of the batch has been queued.
    /// Not null only on the first lane of the last stage.
    std::unique_ptr<Readback> loss_to_report(AdapterId adapter) const;
    /// Sets total[adapter] = squares, if sums are exchanged instead of sent with messages.
    void set_total(AdapterId adapter, double squares);
    /// Optimizer step with total[adapter]; clears the adapter's sums for the next batch.
    void step(AdapterId adapter, double learning_rate);

    /// Losses of samples under the base model or a ref_adapter, for objectives that need them. They
    /// are set before the microbatches of these samples run.
    ReferenceLosses& references() { return references_; }
    /// Loss of the last stage; other stages have none.
    LossPasses& losses() { return *loss_; }

    /// Logits of all rows of the microbatch in `slot` after a forward (last stage), [T, V].
    std::vector<float> logits(std::int32_t slot);

  private:
    /// BaseValues::row_norms, with W as the backend multiplies with it. Waits for the backend.
    std::vector<float> row_norms(std::int32_t layer, Linear linear);
    /// Computes the slot's output from its input or token ids. The slot's tables must be set.
    void forward_layers(std::int32_t slot, Pass next);
    void embed(const ActivationSlot& slot);
    /// Packs the factors that have changed, for all resident layers in one operation.
    void pack_factors(const MicrobatchTables& tables);
    /// Weights of the layer, valid until done(). Packs the factors of a layer that streams.
    LayerWeights& use_layer(std::int32_t l, const LayerRows& rows);
    void expect_layers(const MicrobatchTables& tables, Pass now, Pass usually_next);
    /// Adds NEFTune's noise to the embeddings of adapters that ask for it.
    void add_noise(const LayerRows& rows, const TensorView& x);
    /// Per token the row of this lane's part of the embedding; -1 for tokens of other lanes.
    std::span<const std::int32_t> own_ids(std::span<const std::int32_t> token_ids);
    /// Copies to the output of a shared layer the rows that this stage does not compute in it.
    void pass_others(const ActivationSlot& slot, std::int32_t l);
    /// Whether the activations of layer `l` of the slot must be recomputed for its backward.
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
    std::optional<ActivationOffload> offload_;  ///< none if no layer's activations go to the host
    std::optional<Pass> next_pass_;
    std::function<void()> between_layers_;
    std::vector<std::int32_t> own_ids_;
    std::vector<Buffer> sum_buffers_;
    StageSums sums_;
    DecoderLayer layer_;
    float embedding_scale_;  ///< what the backend multiplies embedded rows by
    EmbeddingLora embedding_lora_;
    TrainedTokens trained_tokens_;
    ReferenceLosses references_;
    std::unique_ptr<Head> head_;
    std::unique_ptr<LossPasses> loss_;
    std::optional<TextCache> cache_;  ///< only if the job's adapters generate texts
};

}  // namespace loratrain
