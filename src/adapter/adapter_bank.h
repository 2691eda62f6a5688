#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "adapter/adapter_layout.h"
#include "adapter/moment_layout.h"
#include "adapter/projected_factors.h"
#include "backend/backend.h"
#include "backend/rank_group.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/state_sizes.h"

namespace loratrain {

/// The adapters of one stage: parameters, gradients and moments in the backend's memory.

/// Where an adapter's state is.
enum class Residence : std::uint8_t {
    absent,     ///< no state on this stage: not begun, or on other ranks
    resident,   ///< in backend memory: it may train and be evaluated
    suspended,  ///< in host memory, bit for bit as it was when suspended
    released,   ///< freed here; a checkpoint holds the state
};

/// L2 norms of the rows of W that this lane holds, over all columns of W. `layer` counts from the
/// stage's first layer. Collective over the stage's lanes.
using RowNorms = std::function<std::vector<float>(std::int32_t layer, Linear linear)>;

/// Base-model values that adapters are initialised from. A function is empty if no form of the job
/// needs it.
struct BaseValues {
    RowNorms row_norms;
    /// W [out, in], whole on every lane; `layer` counts from the model's first layer.
    std::function<std::vector<float>(std::int64_t layer, Linear linear)> weights;
    /// Rows of the embedding, [tokens, H].
    std::function<std::vector<float>(std::span<const std::int32_t> tokens)> token_rows;
};

/// State of all adapters in the layers of one stage: fp32 master parameters, gradients and both
/// Adam moments, with per-adapter sums and counters. Each part is one flat array per adapter
/// (adapter_layout.h), so clipping is one op per adapter and AdamW one op per rate group. Only
/// resident adapters take backend memory. Every stage must make the same calls for an adapter.
///
/// On a tensor-parallel stage each lane holds its cut of every tensor (adapter_layout.h). A tensor
/// that several lanes hold has equal bits on all of them: the copies begin equal, and every lane
/// steps its copy with the same summed gradient and the same norm.
class AdapterBank {
  public:
    /// Makes plan.first_admitted resident. plan.adapter_capacity bounds the number of adapters that
    /// `job` ever has; `job` may grow (add_adapters()). The bank keeps references: all arguments
    /// outlive it.
    AdapterBank(const Job& job, const ReplicaView& view, const StagePlan& stage, Backend& backend,
                const StageLanes& lanes = one_lane(), BaseValues base = {});

    Residence residence(AdapterId adapter) const { return states_[index(adapter)].residence; }

    /// Makes an adapter resident. A suspended adapter returns bit for bit. An absent adapter is
    /// initialised as its form says: from init_from (whose files have been checked), or with random
    /// numbers of tensor_key(seed, random_name(), module + ".lora_A"). Waits for the backend.
    void reside(AdapterId adapter);
    /// Overwrites a resident adapter's parameters with those of a PEFT directory, whose files have
    /// been checked.
    void read_parameters(AdapterId adapter, const std::string& directory);
    /// Moves a resident adapter's parameters, moments and counters to host memory. Its gradients
    /// must be zero, as they are between two of its global batches. Waits for the backend.
    void suspend(AdapterId adapter);
    /// Makes exactly `admitted` resident. It first suspends the resident adapters that `admitted`
    /// lacks, then makes the others resident, so backend memory never exceeds that of the larger
    /// set.
    void admit(const std::vector<AdapterId>& admitted);
    /// Frees all memory of an adapter that has ended and is exported and in a checkpoint. `then` is
    /// its new residence: `absent` if it may be loaded again.
    void release(AdapterId adapter, Residence then = Residence::released);
    /// Call after `job` has grown. The new adapters are absent.
    void add_adapters();

    /// Pointers to A and B and to their gradients, as an operator takes them. In experts they are
    /// those of the first expert; the other experts' tensors follow in order. `layer` counts from
    /// the stage's first layer; for Linear::head it is the stage's number of layers, for
    /// Linear::embedding embedding_layer. With VeRA, B and its gradient are the product buffers of
    /// projected(), and A has no gradient.
    LoraSlot slot(AdapterId adapter, std::int32_t layer, Linear linear) const;
    /// The operands with which a VeRA linear's scales make B and receive their gradients from B's.
    /// Each linear has one B buffer, which holds one layer at a time.
    VeraGradients projected(AdapterId adapter, std::int32_t layer, Linear linear) const;
    /// The adapter's rows of tokens and their gradients; none if its form or this stage has none.
    TokenSlot token_slot(AdapterId adapter) const;
    /// Whether the adapter's form has a tensor of `role`.
    bool has(AdapterId adapter, TensorRole role) const;
    /// Whether the adapter's form is VeRA (AdapterForm::projects).
    bool projects(AdapterId adapter) const { return job_.adapter(adapter).form.projects; }
    /// Whether the adapter's form is VeRA and this stage holds its scales of the linear.
    bool projects(AdapterId adapter, std::int32_t layer, Linear linear) const;
    /// Whether the adapter targets `linear`, which is one of outer_linears.
    bool targets_outer(AdapterId adapter, Linear linear) const {
        return job_.adapter(adapter).targets_linear(linear);
    }
    /// Range of the vocabulary whose columns of an embedding's A this lane holds.
    Slice vocabulary() const { return lane_vocabulary(model_, lane()); }
    bool targets_group(AdapterId adapter, std::int32_t layer, LinearGroup group) const;

    /// Number of trained parameters that this lane holds on this stage.
    std::int64_t parameters(AdapterId adapter) const {
        return states_[index(adapter)].layout.count(StatePart::gradients);
    }

    /// Version of the adapter's parameters: grows whenever they change or move. A copy with an
    /// older version is stale.
    std::int64_t version(AdapterId adapter) const { return states_[index(adapter)].version; }

    /// Completes the gradients of a global batch: all-reduces the partial gradients of tensors that
    /// several lanes of the stage hold. Collective over the lanes, once per batch. Blocks, and
    /// nothing overlaps the wait.
    void sum_over_lanes(AdapterId adapter);
    /// Writes the sum of squares of the adapter's complete gradients on this stage to *result
    /// (backend memory). All lanes of the stage get equal bits. Collective over the lanes.
    void sum_squares(AdapterId adapter, double* result);
    /// Gradient array of a resident adapter, in backend memory. The caller sees current values:
    /// stale gradients are zeroed first.
    std::span<float> gradient_array(AdapterId adapter);
    /// Call after a microbatch's backward has added to the adapter's gradients in all of its layers
    /// on this stage: the gradients are no longer stale.
    void added_gradients(AdapterId adapter) { states_[index(adapter)].stale = false; }
    /// AdamW step of this stage's parameters; *grad_sumsq is the squared norm over all stages. Each
    /// rate group steps at its multiple of `learning_rate`. Afterwards the gradients are zero or
    /// stale. Stale gradients count as zero: the next backward overwrites them
    /// (LoraSlot::begins_gradients).
    void step(AdapterId adapter, double learning_rate, const double* grad_sumsq);

    /// Host copies of a resident or suspended adapter's tensors on this stage and lane, with PEFT
    /// names, for export and checkpoints.
    using Part = StatePart;
    std::vector<NamedTensor> download(AdapterId adapter, Part part) const;
    /// The values that download() returns, concatenated.
    std::vector<float> numbers(AdapterId adapter, Part part) const;
    /// Inverse of download(); `tensors` are in its order. An absent adapter becomes suspended, with
    /// zeros in its other parts.
    void upload(AdapterId adapter, Part part, const std::vector<NamedTensor>& tensors);
    /// As upload(), from whole tensors in the order of adapter_tensors() for the stage: takes this
    /// lane's cut of each.
    void upload_cut(AdapterId adapter, Part part, std::vector<NamedTensor> whole);

    struct Counters {
        std::int64_t applied_steps = 0;
        std::int64_t skipped_steps = 0;
    };
    Counters counters(AdapterId adapter) const;
    void set_counters(AdapterId adapter, const Counters& counters);

  private:
    static constexpr StatePart suspended_parts[] = {StatePart::parameters, StatePart::first_moments,
                                                    StatePart::second_moments};
    static std::size_t index_of(StatePart part) { return static_cast<std::size_t>(part); }

    struct HostState {
        /// Every part except the gradients.
        std::array<std::vector<float>, state_parts - 1> arrays;
        Counters counters;
    };
    struct State {
        Residence residence = Residence::absent;
        std::array<Buffer, state_parts> arrays;  ///< by StatePart; resident only
        Buffer norms;  ///< norms of rows that operators store for the form; resident only
        std::vector<std::int64_t> first_norm;  ///< per tensor of the layout
        ProjectedFactors projected;            ///< VeRA only; resident only
        HostState suspended;                   ///< suspended only
        std::int64_t version = 0;
        /// Every backward writes all gradients, so they may become stale.
        bool writes_over = false;
        bool stale = false;  ///< gradients are left from the last step and count as zero
        AdapterLayout layout;
        MomentLayout moments;
        /// Of trainable_token_indices: places in vocabulary(); -1: another lane's.
        std::vector<std::int32_t> tokens;
        StateSizes
            planned;  ///< sizes in the plan: of the lane with the largest share of the vocabulary
        std::vector<ArrayRange> partial;  ///< gradients to sum over all lanes
        /// Gradients to sum over lanes with the same key-value heads.
        std::vector<ArrayRange> shared;
        std::vector<ArrayRange> counted;  ///< gradients whose squares this lane counts in the norm
        float* array(Part part) const { return arrays[index_of(part)].as<float>(); }
        std::size_t count(Part part) const { return static_cast<std::size_t>(layout.count(part)); }
        /// Size of an array in fp32 words.
        std::size_t words(Part part) const {
            const bool coded = part == Part::first_moments || part == Part::second_moments;
            return coded ? static_cast<std::size_t>(moments.words()) : count(part);
        }
        std::size_t bytes(Part part) const { return words(part) * sizeof(float); }
        /// Null for a tensor that is not trained.
        float* gradient(const PlacedTensor& tensor) const {
            return layout.is_trained(tensor) ? array(Part::gradients) + tensor.range.first
                                             : nullptr;
        }
    };

    TensorLane lane() const { return {lanes_.index(), lanes_.count()}; }
    void lay_out(AdapterId adapter);
    /// Elements of the tensor on the lane with the largest share of the vocabulary or of experts.
    std::int64_t planned_count(const PlacedTensor& tensor) const;
    void initialise(AdapterId adapter);
    void start(const State& state, const AdapterJob& job, const PlacedTensor& tensor) const;
    void put(const State& state, const PlacedTensor& tensor, const std::vector<float>& cut) const;
    /// Initialises an adapter whose form starts from W (has_residual_start).
    void start_from_weights(AdapterId adapter);
    void free_arrays(State& state) const;
    /// Sum of squares of the gradients that this lane counts (State::counted).
    void sum_own_squares(const State& state, double* result) const;
    /// State of the adapter; an internal error if it is not resident.
    const State& resident(AdapterId adapter) const;
    void check_gradients_are_zero(AdapterId adapter) const;
    void zero_stale_gradients(AdapterId adapter);
    bool is_written_by_every_backward(const AdapterJob& job, const PlacedTensor& tensor) const;
    std::int64_t* counters_of(AdapterId adapter) const {
        return counters_.as<std::int64_t>() + 2 * index(adapter);
    }

    const Job& job_;
    ModelSpec model_;               ///< whole model, not the lane's part
    std::int64_t most_vocabulary_;  ///< largest share of the vocabulary on a lane
    StagePlan stage_;
    std::size_t capacity_;
    Backend& backend_;
    StageLanes lanes_;
    BaseValues base_;
    std::vector<State> states_;
    Buffer counters_;      ///< applied, skipped per adapter
    Buffer lane_squares_;  ///< this lane's term, then the sum of each lane; only with several lanes
};

}  // namespace loratrain
