#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

/// Where an adapter's state is.
enum class Residence : std::uint8_t {
    absent,     ///< nowhere: it has not begun, or is elsewhere
    resident,   ///< in backend memory: it may train and be evaluated
    suspended,  ///< in host memory, exactly as it was
    released,   ///< given up here: a checkpoint keeps it
};

/// Norms of the rows of W that the lane has, over all of their columns: of a layer counted from the
/// stage's first. Every lane calls it.
using RowNorms = std::function<std::vector<float>(std::int32_t layer, Linear linear)>;

/// What adapters may start from; each may be empty where no form of the job asks for it.
struct BaseValues {
    RowNorms row_norms;
    /// W [out, in] of a layer of the model, whole on every lane.
    std::function<std::vector<float>(std::int64_t layer, Linear linear)> weights;
};

/// All adapters' state in the layers where one stage computes them: fp32 masters, gradients and
/// both moments, each one flat array per adapter (adapter_layout.h; so clipping is one op per
/// adapter, AdamW one per rate group), plus the per-adapter sums and counters. Only resident
/// adapters take backend memory; what is done to one must be done on every stage.
///
/// A lane of a tensor-parallel stage has its cut of every tensor (adapter_layout.h). Tensors that
/// several lanes have stay equal on them to the bit: they begin equal, and every lane steps them
/// with the same sum of gradients and the same norm.
class AdapterBank {
  public:
    /// Makes plan.first_admitted resident; plan.adapter_capacity bounds the adapters that `job`,
    /// which may grow (add_adapters()), ever has. All of them outlive the bank.
    AdapterBank(const Job& job, const ReplicaView& view, const StagePlan& stage, Backend& backend,
                const StageLanes& lanes = one_lane(), BaseValues base = {});

    Residence residence(AdapterId adapter) const { return states_[index(adapter)].residence; }

    /// Brings an adapter into backend memory: a suspended one as it was, an absent one initialised
    /// as its form says, with random numbers of tensor_key(seed, random_name(), module +
    /// ".lora_A"), or from init_from (checked files). Waits for the backend.
    void reside(AdapterId adapter);
    /// Gives a resident adapter the parameters of a PEFT directory (a checked one).
    void read_parameters(AdapterId adapter, const std::string& directory);
    /// Moves a resident adapter's parameters, moments and counters to host memory. Its gradients
    /// must be zero, as they are between two of its global batches. Waits for the backend.
    void suspend(AdapterId adapter);
    /// Suspends whoever is resident and not among `admitted`, then brings those in that are not
    /// resident yet: never more is in backend memory than either set takes.
    void admit(const std::vector<AdapterId>& admitted);
    /// Frees all memory of an adapter that has ended and is exported and in a checkpoint; `then`:
    /// absent where it may come back (load).
    void release(AdapterId adapter, Residence then = Residence::released);
    /// The job has got more adapters; they are absent.
    void add_adapters();

    /// A and B as an op's slot, in experts those of the first, which the others' follow; `layer`
    /// counts from the stage's first layer, of Linear::head it is their number, of
    /// Linear::embedding embedding_layer. Of VeRA B is what projected() makes, with that gradient,
    /// and A has none.
    LoraSlot slot(AdapterId adapter, std::int32_t layer, Linear linear) const;
    /// How the scales of a VeRA adapter's linear make B, and get their gradients from B's. Of each
    /// linear there is one B, of one layer at a time.
    VeraGradients projected(AdapterId adapter, std::int32_t layer, Linear linear) const;
    /// Its form has such a tensor.
    bool has(AdapterId adapter, TensorRole role) const;
    /// Its form is VeRA's (AdapterForm::projects).
    bool projects(AdapterId adapter) const { return job_.adapter(adapter).form.projects; }
    /// And this stage has its scales of the linear.
    bool projects(AdapterId adapter, std::int32_t layer, Linear linear) const;
    /// One of outer_linears.
    bool targets_outer(AdapterId adapter, Linear linear) const {
        return job_.adapter(adapter).targets_linear(linear);
    }
    /// Tokens of the vocabulary whose columns of an embedding's A the lane has.
    Slice vocabulary() const { return lane_vocabulary(model_, lane()); }
    bool targets_group(AdapterId adapter, std::int32_t layer, LinearGroup group) const;

    /// Those of them that are trained.
    std::int64_t parameters(AdapterId adapter) const {
        return states_[index(adapter)].layout.count(StatePart::gradients);
    }

    /// Grows whenever the adapter's parameters change or move: copies made of them can be compared
    /// stale.
    std::int64_t version(AdapterId adapter) const { return states_[index(adapter)].version; }

    /// Completes the gradients of a global batch: adds up what the lanes of the stage have of those
    /// that they all have. Every lane calls it, once per batch, and waits for the others: a simple
    /// form, whose time nothing hides.
    void sum_over_lanes(AdapterId adapter);
    /// Sum of squares of the adapter's complete gradients on this stage, equal bits on all its
    /// lanes, into *result (backend memory). Every lane calls it.
    void sum_squares(AdapterId adapter, double* result);
    /// The array of a resident adapter's gradients, in backend memory; no longer stale.
    std::span<float> gradient_array(AdapterId adapter);
    /// A microbatch's backward has added to the adapter's gradients in all of its layers here.
    void added_gradients(AdapterId adapter) { states_[index(adapter)].stale = false; }
    /// AdamW on this stage's part with the norm total at *grad_sumsq. The gradients are 0 then, or
    /// stale: taken for 0 and written over by the next backward (LoraSlot::begins_gradients). Rate
    /// groups step at their multiples of `learning_rate`.
    void step(AdapterId adapter, double learning_rate, const double* grad_sumsq);

    /// Host copies for export and checkpoints: tensors of this stage and lane with PEFT names. Of
    /// resident and suspended adapters.
    using Part = StatePart;
    std::vector<NamedTensor> download(AdapterId adapter, Part part) const;
    /// The same, one tensor after the other.
    std::vector<float> numbers(AdapterId adapter, Part part) const;
    /// The reverse; `values` in the order of download(). An absent adapter becomes suspended by it,
    /// with zeros in the other parts.
    void upload(AdapterId adapter, Part part, const std::vector<NamedTensor>& tensors);
    /// What this lane has of these: whole tensors, as adapter_tensors() lists the stage's.
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
        std::array<std::vector<float>, state_parts - 1> arrays;  ///< all but the gradients
        Counters counters;
    };
    struct State {
        Residence residence = Residence::absent;
        std::array<Buffer, state_parts> arrays;  ///< by StatePart; resident only
        Buffer norms;  ///< of the form's rows, whose squares operators keep there; resident only
        std::vector<std::int64_t> first_norm;  ///< per tensor of the layout
        ProjectedFactors projected;            ///< of a form that has them; resident only
        HostState suspended;                   ///< suspended only
        std::int64_t version = 0;
        bool writes_over = false;  ///< each backward adds to all gradients, which may become stale
        bool stale = false;        ///< gradients are those of the last step
        AdapterLayout layout;
        MomentLayout moments;
        StateSizes planned;               ///< for the lane with most rows of the vocabulary
        std::vector<ArrayRange> partial;  ///< gradients to be summed over all lanes
        std::vector<ArrayRange> shared;   ///< over those with the same key-value heads
        std::vector<ArrayRange> counted;  ///< those whose squares this lane adds
        float* array(Part part) const { return arrays[index_of(part)].as<float>(); }
        std::size_t count(Part part) const { return static_cast<std::size_t>(layout.count(part)); }
        /// fp32 words of an array.
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
    /// Of a tensor on the lane with most rows of the vocabulary.
    std::int64_t planned_count(const PlacedTensor& tensor) const;
    void initialise(AdapterId adapter);
    void start(const State& state, const AdapterJob& job, const PlacedTensor& tensor) const;
    void put(const State& state, const PlacedTensor& tensor, const std::vector<float>& cut) const;
    /// Of an adapter with a residual start (has_residual_start).
    void start_from_weights(AdapterId adapter);
    void free_arrays(State& state) const;
    /// Of what this lane counts.
    void sum_own_squares(const State& state, double* result) const;
    /// The state of an adapter that must be resident.
    const State& resident(AdapterId adapter) const;
    void check_gradients_are_zero(AdapterId adapter) const;
    void zero_stale_gradients(AdapterId adapter);
    bool is_written_by_every_backward(const AdapterJob& job, const PlacedTensor& tensor) const;
    std::int64_t* counters_of(AdapterId adapter) const {
        return counters_.as<std::int64_t>() + 2 * index(adapter);
    }

    const Job& job_;
    ModelSpec model_;               ///< the whole one
    std::int64_t most_vocabulary_;  ///< of any lane
    StagePlan stage_;
    std::size_t capacity_;
    Backend& backend_;
    StageLanes lanes_;
    BaseValues base_;
    std::vector<State> states_;
    Buffer counters_;      ///< applied, skipped per adapter
    Buffer lane_squares_;  ///< a term, then every lane's sum; only with several lanes
};

}  // namespace loratrain
