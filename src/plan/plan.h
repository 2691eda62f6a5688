#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/weight_format.h"
#include "config/job.h"
#include "config/model_spec.h"
#include "plan/costs.h"

namespace loratrain {

/// What a job's `model.precision` stands for on a backend: the type that it computes in, and the
/// format of the base weights there.
struct NumberTypes {
    DType compute = DType::f32;
    WeightFormat weights = WeightFormat::f32;
    bool fp8_linears = false;  ///< Plan::fp8_linears
};

/// fp32: both. bf16: both on CUDA, storage alone on the CPU, which computes in fp32.
/// automatic: bf16 on CUDA, fp32 on the CPU. fp8: as bf16, with the linears of the layers in e4m3.
NumberTypes number_types(Precision precision, BackendKind backend);

/// Everything the runtime needs to know, decided once on rank 0 and broadcast (plan_text.h,
/// window_fields.h). Immutable after planning; the runtime interprets it and never re-decides.

/// What planning knows of one sample: tokens after the over-length policy, and targets = labels
/// that are trained (label != -100 at positions 1 .. tokens-1, since labels shift by one).
struct SampleInfo {
    std::int32_t tokens = 0;
    std::int32_t targets = 0;
    bool undesirable = false;  ///< of an example with a label: that is false
};

/// What an epoch has of a file (sample_counts.h), in samples.
struct FileShare {
    std::int64_t samples = 0;  ///< that the file has
    std::int64_t taken = 0;    ///< in an epoch
};

/// Lengths of a dataset's samples in file order (dropped ones are not in it).
struct DatasetInfo {
    std::vector<SampleInfo> train;
    std::vector<SampleInfo> eval;
    /// Neighbours that belong together (AdapterPlan::group_samples), in both lists: 2 of pairs; of
    /// k examples with labels and their k KL samples 2k, at least 4 (data/kl_groups.h).
    std::int32_t group_samples = 1;
    /// Of each sample the sum of its targets' weights; empty: every target weighs 1.
    std::vector<double> train_weights = {};
    std::vector<double> eval_weights = {};
    std::vector<FileShare> files = {};          ///< as AdapterPlan's
    std::vector<std::int64_t> eval_files = {};  ///< as AdapterPlan's
    std::int64_t train_tokens() const;          ///< of an epoch
};

/// What the samples of a dataset are, by the size of their groups.
enum class DataKind : std::uint8_t { single, pairs, labelled };
inline DataKind data_kind(std::int32_t group_samples) {
    if (group_samples > 2) return DataKind::labelled;
    return group_samples == 2 ? DataKind::pairs : DataKind::single;
}
/// Samples that one microbatch must have together: a group, or the global batch of an adapter that
/// compares all of it (LossJob::is_contrastive), of which the last of an epoch may have fewer.
inline std::int64_t packed_samples(const AdapterJob& adapter, std::int32_t group_samples) {
    const std::int64_t groups = adapter.loss.is_contrastive() ? adapter.global_batch_size : 1;
    return groups * group_samples;
}
/// Of a global batch's size a group counts as so many: a pair as one, of KL samples neither.
inline std::int32_t group_examples(std::int32_t group_samples) {
    return data_kind(group_samples) == DataKind::labelled ? group_samples / 2 : 1;
}

/// Tokens of the groups of `size` neighbours, in order; a microbatch has a group as a whole.
std::vector<std::int64_t> tokens_of_groups(const std::vector<SampleInfo>& samples,
                                           std::int32_t size);

/// The machine that a plan is made for.
struct Cluster {
    int ranks = 1;
    int ranks_per_node = std::numeric_limits<int>::max();  ///< all on one host
    /// A number of each rank's host; empty = of `ranks_per_node` each, in order (hosts_of()).
    std::vector<std::int32_t> hosts = {};
    std::uint64_t bytes_per_rank = 0;  ///< memory one rank may use; 0 = unknown, not checked
    /// Of the host's memory, on GPUs, what one rank may take for layers that stream and for
    /// activations; 0 as above.
    std::uint64_t host_bytes_per_rank = 0;
    BackendKind backend = BackendKind::cpu;
    /// "h200" and so on (built_in_costs.h), for the costs built in; "" = "cpu" or "h100" by
    /// backend.
    std::string device;
    std::optional<CostModel> costs;  ///< measured ones; none = those built in for `device`
};

/// StagePlan::resident_layers where no layer streams.
inline constexpr std::int32_t all_layers = std::numeric_limits<std::int32_t>::max();

/// A contiguous range of layers on the ranks of its lanes. First stage embeds, last stage has the
/// head and loss. Two neighbours may share the layer between them: both hold its frozen weights,
/// and each adapter is computed in it, and has its factors, on one of the two (share_layers.h).
struct StagePlan {
    std::int32_t rank = 0;  ///< of lane 0; lane t has rank + t
    std::int32_t first_layer = 0;
    std::int32_t layer_count = 0;
    bool has_embedding = false;
    bool has_head = false;
    AdapterSpan first_layer_adapters = {};  ///< computed in the first layer; in the others all are
    AdapterSpan last_layer_adapters = {};   ///< and in the last one
    /// Most layers whose frozen weights stay in the rank's memory; others stream from the host's
    /// (plan/memory/streamed_layers.h).
    std::int32_t resident_layers = all_layers;
    /// With ReplicaPlan::recompute: the first so many layers keep their activations all the same.
    std::int32_t kept_layers = 0;
    /// Ranks (of lane 0) that own these layers' frozen weights between them: layer l is resident on
    /// owners[l % count], the others read it there. Empty: each rank has its own
    /// (plan/memory/streamed_layers.h).
    std::vector<std::int32_t> owners = {};
    /// With ReplicaPlan::recompute: of the layers that do not keep their activations, at most so
    /// many have them in host memory between forward and backward (plan/memory/offload.h).
    std::int32_t offloaded_layers = 0;
};

/// One pipeline that holds the whole model: stages of `tensor` lanes each. Every lane is a rank.
struct ReplicaPlan {
    std::int32_t tensor = 1;             ///< lanes per stage (tensor_shard.h)
    std::vector<StagePlan> stages;       ///< at least one
    std::int64_t microbatch_tokens = 0;  ///< most tokens of a microbatch
    /// Never automatic. layer: a slot keeps only the inputs of its layers but the kept ones, and
    /// backward runs each of the others' forward again into activations that they and all
    /// microbatches share, unless it is one of StagePlan::offloaded_layers.
    Recompute recompute = Recompute::none;
    std::int32_t max_in_flight = 1;  ///< forwarded, not yet backwarded microbatches at stage 0
    /// LoRA pad columns R of the augmented matrix; microbatches with more go by segment.
    std::int32_t pad_columns = 0;
    std::int32_t saved_columns = 0;  ///< columns of S kept per linear and token
    /// By LinearGroup: the forward products of its linears are one (deploy/join_products.h). Not
    /// those of codes (Plan::fp8_linears), which need no plan for it.
    std::array<bool, linear_group_count> joined{};
};

/// Words for ReplicaPlan::joined.
std::vector<std::string> joined_groups(const ReplicaPlan& replica);

/// One adapter's training in numbers.
struct AdapterPlan {
    std::string name;
    std::int64_t samples = 0;          ///< of its dataset
    std::int32_t steps_per_epoch = 0;  ///< ceil(groups of samples / groups of a batch)
    std::int32_t total_steps = 0;      ///< optimizer steps
    /// Neighbours in the dataset, from a multiple of this number on, that every microbatch has all
    /// of or none: samples whose losses depend on each other, as the pairs of a preference loss.
    /// Whole batches may be more (packed_samples()).
    std::int32_t group_samples = 1;
    /// Its dataset's files in their order; empty: an epoch has every sample once.
    std::vector<FileShare> files = {};
    /// Samples of each file that it is evaluated on; empty where that is reported of all alone.
    std::vector<std::int64_t> eval_files = {};
    std::int64_t epoch_samples() const;
};

/// Memory of one rank in bytes; exact for what a stage allocates, an upper bound in `engine`.
struct MemoryPlan {
    std::uint64_t weights = 0;  ///< frozen base incl. LoRA pads
    /// Masters, gradients and moments of the adapters admitted first, at least of the largest one.
    std::uint64_t adapters = 0;
    std::uint64_t activations = 0;  ///< all slots
    std::uint64_t workspace = 0;    ///< scratch shared by all layers, logits chunk, message buffers
    std::uint64_t engine = 0;       ///< what the CUDA backend takes for itself (engine_memory.h)
    /// Of the host's memory, beside all these: frozen weights of layers that stream, of which the
    /// ranks of a host have one copy; of each its share.
    std::uint64_t host = 0;
    /// Of the host's memory too: activations that layers have there (offload.h).
    std::uint64_t host_activations = 0;
    std::uint64_t total() const { return weights + adapters + activations + workspace + engine; }
};

/// Adapters that may be added while the job runs.
inline constexpr std::int32_t spare_adapters = 256;

/// Costs of a lane where a stage has so many.
struct DegreeCosts {
    std::int32_t tensor = 1;
    CostModel costs;
};

struct Plan {
    ModelSpec model;
    BackendKind backend = BackendKind::cpu;    ///< never automatic
    DType compute = DType::f32;                ///< type that the backend computes in
    WeightFormat weights = WeightFormat::f32;  ///< of the dense base weights on the backend
    /// The linears of the layers multiply e4m3 codes of weights, activations and gradients
    /// (design.md "fp8 products"), whatever `weights` and `compute` are elsewhere. Never by itself.
    bool fp8_linears = false;
    /// Their codes lie in one order alone, and each backward transposes a group's into scratch:
    /// where both orders do not fit.
    bool fp8_one_order = false;
    /// Some adapter of the beginning has LoRA in experts; only then later ones may.
    bool expert_lora = false;
    /// Whose built-in costs packings are made with: the cluster's, or of a run that is continued
    /// the one that it began on, so that packings repeat.
    std::string device;
    std::int64_t longest_sample = 0;   ///< of those to train on, in tokens
    std::uint64_t bytes_per_rank = 0;  ///< as Cluster's
    CostModel costs;  ///< of the first replica's lanes: as Cluster's, or built in for its device
    std::vector<DegreeCosts> other_costs;  ///< of replicas with other numbers of lanes
    /// What lanes were measured to take, for predictions alone: plans of lanes and of several
    /// replicas are made with costs that are built in. Not in texts; empty = the costs above.
    std::vector<DegreeCosts> measured;
    std::vector<ReplicaPlan> replicas;  ///< the deployment: by falling `tensor` (place.h)
    bool joint = false;                 ///< several replicas, also while they are not all known
    std::vector<AdapterPlan> adapters;
    /// Adapters that sums, counters and message tails have room for.
    std::int32_t adapter_capacity = 0;
    std::vector<AdapterId> first_admitted;  ///< those that train from the start (admission.h)
    std::vector<MemoryPlan> memory;         ///< per rank
};

/// A sample as a microbatch refers to it.
struct SampleRef {
    std::int32_t index = 0;    ///< in the dataset
    std::int32_t tokens = 0;   ///< rows it takes: more than it has where it is padded
    std::int32_t targets = 0;  ///< as SampleInfo's
    bool undesirable = false;  ///< as SampleInfo's
};

/// Consecutive rows of one adapter inside a microbatch: whole samples of one global batch.
struct Segment {
    AdapterId adapter{};
    std::int32_t step = 0;  ///< the adapter's optimizer step (0-based) these samples belong to
    std::vector<SampleRef> samples;
    std::int64_t tokens() const;
};

/// Where the S of a microbatch's segments stands behind its rows, and how LoRA is computed with it
/// (lora_columns.h).
struct LoraColumns {
    /// The pads of weight matrices hold the factors of all segments side by side, one product does
    /// base and LoRA; else LoRA goes by segment.
    bool augmented = false;
    std::int32_t width = 0;           ///< columns per linear, a multiple of 16
    std::vector<std::int32_t> first;  ///< per segment: its first column
    /// Per AdapterId: first column that it has in every microbatch; the pads hold all of them.
    /// Empty where the pads hold the segments' alone. The same in all microbatches of a window.
    std::vector<std::int32_t> lasting;
};

/// What one forward handles. At most one segment per adapter.
struct Microbatch {
    std::vector<Segment> segments;
    LoraColumns columns = {};
    bool evaluation = false;  ///< eval samples, of evaluation batches alone: it has no backward
    std::int64_t tokens() const;
    std::int64_t samples() const;
};

/// A global batch (a, j) of the window, or an evaluation of an adapter: all its eval samples,
/// forward only, with the weights after its first `step` optimizer steps. Counts are of the whole
/// batch, whichever replicas have its samples; microbatches are the replica's.
struct BatchPlan {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::int32_t round = 0;  ///< of the run: in a round every active adapter takes a step
    std::int32_t epoch = 0;
    std::int32_t samples = 0;
    std::int64_t tokens = 0;          ///< that its samples have
    std::int64_t padding = 0;         ///< rows that they take beyond them
    std::int64_t targets = 0;         ///< labels that are trained
    std::int64_t chosen_targets = 0;  ///< of the chosen samples of pairs
    double target_weight = 0.0;       ///< sum of the targets' weights, in the batch's order
    double denominator = 0.0;         ///< of the sum of its losses (sample_counts.h)
    /// The same of the losses of each file, where these are reported.
    std::vector<double> file_denominators = {};
    MicrobatchId first_microbatch{};  ///< first and last microbatch that hold samples of it, or -1
    MicrobatchId last_microbatch{};
    bool last_of_adapter = false;
    bool evaluation = false;
    /// Whether the replica of the window has samples of it.
    bool is_here() const { return number(first_microbatch) >= 0; }
    /// Of a batch of pairs; 0 where nothing is chosen.
    double pairs_per_chosen_target() const {
        return chosen_targets > 0 ? denominator / static_cast<double>(chosen_targets) : 0.0;
    }
};

enum class ActionKind : std::uint8_t {
    recv_forward,   ///< activations of `microbatch` from the stage before
    forward,        ///< run this stage's layers; last stage: loss and its gradient as well
    send_forward,   ///< activations to the next stage
    recv_backward,  ///< gradient of this stage's output from the next stage
    backward,       ///< run this stage's layers backwards, accumulate adapter gradients
    send_backward,  ///< gradient of this stage's input to the stage before
    step,           ///< optimizer step of batch `batch` on this stage
    reduce,         ///< sum the complete gradients of `batch` over all replicas
    recv_norms,     ///< end of window: gradient-norm totals of `carried` from the stage before
    send_norms,     ///< end of window: the same to the next stage
};

/// One thing a stage does. `carried` lists batches (numbers in the stream):
///   send_backward / recv_backward: partial sums of squared gradients (this stage and above) and
///     loss sums of batches whose last backward this is ("ride down": pipeline_actions.h);
///   send_forward / recv_forward and send_norms / recv_norms: their totals ("ride up").
struct Action {
    ActionKind kind{};
    MicrobatchId microbatch{};
    std::int32_t batch = -1;  ///< step only; number in the stream, as all of `carried`
    /// Activation slot of the microbatch: of forward, backward and the messages of forward.
    std::int32_t slot = -1;
    /// Message buffer: of the messages of backward and norms; backward reads the one received into
    /// and writes the one sent from, both of this number. None without neighbours.
    std::int32_t buffer = -1;
    std::int32_t peer = -1;  ///< of messages: rank at the other end (lane 0 to lane 0)
    std::vector<std::int32_t> carried;
};

/// A part of the schedule: the next rounds (in a round every active adapter takes one optimizer
/// step). Windows follow each other as a stream that the pipeline is never emptied for: numbers of
/// batches and microbatches count from the window that `begins` with an empty pipeline, actions
/// may refer to those of the windows before, and what is under way at the end of a window is ended
/// by the next ones, up to the one that `drains`. Microbatches do not depend on where windows are
/// cut (plan_window.h).
struct Window {
    std::int32_t first_round = 0;
    std::int32_t rounds = 0;
    bool begins = true;                 ///< from an empty pipeline
    bool drains = true;                 ///< to an empty pipeline, every batch stepped
    std::int32_t first_batch = 0;       ///< number of batches[0] in the stream
    std::int32_t first_microbatch = 0;  ///< number of microbatches[0] in the stream
    std::vector<BatchPlan> batches;
    std::vector<Microbatch> microbatches;
    std::vector<std::vector<Action>> actions;  ///< per stage
    std::vector<std::int32_t> peak_in_flight;  ///< per stage, since the stream began
};

/// What all replicas do in the same rounds: a window of each, in the order of Plan::replicas, of
/// the same batches under the same numbers. With several replicas no sums travel with messages;
/// instead all stages of all replicas reduce the batches in one order, and by the end of a window
/// every one has reduced those that were in the windows before, and all but its last round's.
struct JointWindow {
    std::vector<Window> replicas;
    std::vector<std::int32_t> reductions;  ///< its batches in the order in which they are reduced

    /// What does not depend on the replica.
    const Window& common() const { return replicas.front(); }
};

}  // namespace loratrain
