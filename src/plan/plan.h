#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/weight_format.h"
#include "config/job.h"
#include "config/model_spec.h"
#include "plan/costs.h"

namespace loratrain {

/// Meaning of a job's `model.precision` on a backend: compute type and format of the base weights.
struct NumberTypes {
    DType compute = DType::f32;
    WeightFormat weights = WeightFormat::f32;
    bool fp8_linears = false;  ///< Plan::fp8_linears
};

/// - fp32: both fp32.
/// - bf16: both bf16 on CUDA; on the CPU weights are bf16, computation is fp32.
/// - automatic: bf16 on CUDA, fp32 on the CPU.
/// - fp8: as bf16, with the linears of the layers in e4m3.
NumberTypes number_types(Precision precision, BackendKind backend);

/// Plans: everything the runtime needs to know, decided once on rank 0 and broadcast as bytes
/// (text/plan_fields.h, schedule/window_fields.h). The runtime interprets them and decides nothing.

/// A sample as planning knows it: tokens after the over-length policy, and targets, the labels that
/// are trained (label != -100 at positions 1 .. tokens-1, since labels shift by one).
struct SampleInfo {
    std::int32_t tokens = 0;
    std::int32_t targets = 0;
    bool undesirable = false;  ///< an example whose label is false
};

/// A file's share of an epoch, in samples (sample_counts.h).
struct FileShare {
    std::int64_t samples = 0;  ///< in the file
    std::int64_t taken = 0;    ///< in an epoch
};

/// Batches that have arrived of a dataset that grows (DatasetJob::grows), for its one adapter. A
/// batch has samples of one file. DatasetInfo::train does not have these samples: it has one batch
/// of the size that plans expect.
struct Arrivals {
    /// The batch of an optimizer step. Its samples are numbered from step x global_batch_size on,
    /// so that their numbers do not depend on where a run went on.
    struct Batch {
        std::vector<SampleInfo> samples;
        std::int32_t file = 0;     ///< number of its file
        std::int32_t of_file = 0;  ///< number of earlier batches of the same file
        bool ends_file = false;    ///< no later batch has samples of its file
        /// Samples that were left out (LossJob::max_staleness) before it; with `ends_file` also
        /// those behind it in its file.
        std::int32_t stale = 0;
    };
    std::int32_t first_step = 0;  ///< of batches.front(); batches before it are trained
    std::deque<Batch> batches;
    /// Number of steps whose batches have arrived, from step 0 on.
    std::int32_t steps() const { return first_step + static_cast<std::int32_t>(batches.size()); }
    bool has(std::int32_t step) const { return step >= first_step && step < steps(); }
    const Batch& of(std::int32_t step) const {
        return batches.at(static_cast<std::size_t>(step - first_step));
    }
};

/// Lengths of a dataset's samples in file order, without dropped samples.
struct DatasetInfo {
    std::vector<SampleInfo> train;
    std::vector<SampleInfo> eval;
    /// Neighbours in both lists that belong together (AdapterPlan::group_samples): 2 for pairs, 2k
    /// for k examples with labels and their k KL samples (at least 4, data/kl_groups.h), else 1.
    std::int32_t group_samples = 1;
    bool rollouts = false;  ///< samples to train on have advantages (TokenFile::is_rollouts)
    /// Per sample: sum of its targets' weights. Empty: every target weighs 1.
    std::vector<double> train_weights = {};
    std::vector<double> eval_weights = {};
    std::vector<FileShare> files = {};          ///< as AdapterPlan::files
    std::vector<std::int64_t> eval_files = {};  ///< as AdapterPlan::eval_files
    std::optional<Arrivals> arrivals = {};      ///< of a dataset that grows
    std::int64_t train_tokens() const;          ///< in an epoch
};
bool any_grow(std::span<const DatasetInfo> datasets);

/// Kind of a dataset's samples, by the size of their groups.
enum class DataKind : std::uint8_t { single, pairs, labelled };
inline DataKind data_kind(std::int32_t group_samples) {
    if (group_samples > 2) return DataKind::labelled;
    return group_samples == 2 ? DataKind::pairs : DataKind::single;
}
/// Samples that have to share one microbatch: a group; for LossJob::is_contrastive a global batch,
/// of which the last one of an epoch may have fewer.
inline std::int64_t packed_samples(const AdapterJob& adapter, std::int32_t group_samples) {
    const std::int64_t groups = adapter.loss.is_contrastive() ? adapter.global_batch_size : 1;
    return groups * group_samples;
}
/// Number of examples of a group in a global batch's size: 1 for a pair; KL samples do not count.
inline std::int32_t group_examples(std::int32_t group_samples) {
    return data_kind(group_samples) == DataKind::labelled ? group_samples / 2 : 1;
}

/// Tokens of each group of `size` neighbours, in order.
std::vector<std::int64_t> tokens_of_groups(const std::vector<SampleInfo>& samples,
                                           std::int32_t size);

/// The machine that a plan is made for.
struct Cluster {
    int ranks = 1;
    int ranks_per_node = std::numeric_limits<int>::max();  ///< all on one host
    /// Number of each rank's host; empty = hosts of `ranks_per_node` ranks each (hosts_of()).
    std::vector<std::int32_t> hosts = {};
    std::uint64_t bytes_per_rank = 0;  ///< memory that a rank may use; 0 = unknown, not checked
    /// GPUs: host memory that a rank may use for streamed layers and activations; 0 = unknown, not
    /// checked.
    std::uint64_t host_bytes_per_rank = 0;
    BackendKind backend = BackendKind::cpu;
    /// Device whose built-in costs count, "h200" and so on (built_in_costs.h); "" = "cpu" or "h100"
    /// by backend.
    std::string device;
    std::optional<CostModel> costs;  ///< measured; none = built in for `device`
};

/// StagePlan::resident_layers if no layer streams.
inline constexpr std::int32_t all_layers = std::numeric_limits<std::int32_t>::max();

/// A stage: consecutive layers on the ranks of its lanes. The first stage embeds; the last one has
/// head and loss. Two neighbours may share the layer between them: both hold its frozen weights;
/// each adapter has its factors there, and is computed, on one of the two (partition_layers.h).
struct StagePlan {
    std::int32_t rank = 0;  ///< of lane 0; lane t has rank + t
    std::int32_t first_layer = 0;
    std::int32_t layer_count = 0;
    bool has_embedding = false;
    bool has_head = false;
    AdapterSpan first_layer_adapters = {};  ///< adapters computed in the first layer
    AdapterSpan last_layer_adapters = {};  ///< in the last one; layers between compute all adapters
    /// Most layers whose frozen weights stay in the rank's memory. The others stream
    /// (plan/memory/streamed_layers.h).
    std::int32_t resident_layers = all_layers;
    /// With ReplicaPlan::recompute: number of first layers that keep their activations.
    std::int32_t kept_layers = 0;
    /// Ranks (of lane 0) that share these layers' frozen weights: layer l is resident on
    /// owners[l % count], and the others read it there. Empty: each rank has all
    /// (plan/memory/streamed_layers.h).
    std::vector<std::int32_t> owners = {};
    /// With ReplicaPlan::recompute: most layers, of those that do not keep their activations, whose
    /// activations are in host memory between forward and backward (plan/memory/offload.h).
    std::int32_t offloaded_layers = 0;
};

/// Texts that adapters write at a time where nothing more is known.
inline constexpr std::int64_t few_texts = 64;

/// A replica: one pipeline that holds the whole model. Each stage has `tensor` lanes; a lane is a
/// rank.
struct ReplicaPlan {
    std::int32_t tensor = 1;             ///< lanes per stage (tensor_shard.h)
    std::vector<StagePlan> stages;       ///< at least one
    std::int64_t microbatch_tokens = 0;  ///< most tokens of a microbatch
    /// Never automatic. layer: a slot keeps all activations of StagePlan::kept_layers and only the
    /// inputs of the other layers. Backward runs their forward again, into activations that all
    /// layers and microbatches share, except for StagePlan::offloaded_layers.
    Recompute recompute = Recompute::none;
    std::int32_t max_in_flight = 1;  ///< most microbatches between forward and backward on stage 0
    /// LoRA pad columns R of the augmented matrix. A microbatch with more goes by segment.
    std::int32_t pad_columns = 0;
    std::int32_t saved_columns = 0;  ///< columns of S kept per linear and token
    /// Most texts that adapters write at a time (deploy/text_batches.h).
    std::int64_t texts_at_once = few_texts;
    /// By LinearGroup: one forward product computes all its linears (deploy/join_products.h).
    /// Products of codes (Plan::fp8_linears) need no plan for that.
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
    /// Size of a group: neighbours in the dataset, from a multiple of this number on, that share a
    /// microbatch since their losses depend on each other, as the pairs of a preference loss. Some
    /// losses need whole batches together (packed_samples()).
    std::int32_t group_samples = 1;
    /// The dataset's files in their order. Empty: an epoch has every sample once.
    std::vector<FileShare> files = {};
    /// Eval samples per file. Empty: losses are not reported by file.
    std::vector<std::int64_t> eval_files = {};
    std::int64_t epoch_samples() const;
};

/// Memory of one rank in bytes; exact for what a stage allocates, an upper bound in `engine`.
struct MemoryPlan {
    std::uint64_t weights = 0;  ///< frozen base incl. LoRA pads
    /// Masters, gradients and moments of the adapters admitted first, or of the largest adapter if
    /// that is more.
    std::uint64_t adapters = 0;
    std::uint64_t activations = 0;  ///< all slots
    std::uint64_t workspace = 0;    ///< scratch shared by all layers, logits chunk, message buffers
    std::uint64_t engine = 0;       ///< the CUDA backend's own memory (engine_memory.h)
    /// Host memory, not in total(): the rank's share of the frozen weights of streamed layers, of
    /// which the ranks of a host have one copy.
    std::uint64_t host = 0;
    /// Host memory, not in total(): offloaded activations (offload.h).
    std::uint64_t host_activations = 0;
    std::uint64_t total() const { return weights + adapters + activations + workspace + engine; }
};

/// Most adapters that may be added while the job runs.
inline constexpr std::int32_t spare_adapters = 256;

/// Costs of a lane if a stage has `tensor` lanes.
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
    /// (design.md "fp8 products"), whatever `weights` and `compute` are. Set only by `precision:
    /// fp8`; `auto` never selects it.
    bool fp8_linears = false;
    /// The codes are stored in one order only, since both do not fit; each backward transposes a
    /// group's codes into scratch.
    bool fp8_one_order = false;
    /// Some adapter has LoRA in experts from the start; only then later ones may.
    bool expert_lora = false;
    /// Slots keep what mixers and MLPs add to the residual stream, because an adapter of the first
    /// plan reads it in backward (reads_outputs() in config/job.h). Adapters that are added later
    /// read it too; if slots do not keep it, they compute it again.
    bool dora_outputs = false;
    /// Device whose built-in costs packings are made with: the cluster's; for a continued run the
    /// device that it began on, so that packings repeat.
    std::string device;
    std::int64_t longest_sample = 0;   ///< training samples, in tokens
    std::uint64_t bytes_per_rank = 0;  ///< as Cluster::bytes_per_rank
    CostModel costs;  ///< the first replica's lanes: Cluster::costs, or built in for its device
    std::vector<DegreeCosts> other_costs;  ///< replicas with other numbers of lanes
    /// Measured costs of lanes, for predictions only: plans with lanes or several replicas are made
    /// with built-in costs. Not in plan.yaml. Empty = the costs above.
    std::vector<DegreeCosts> measured;
    std::vector<ReplicaPlan> replicas;  ///< the deployment: by falling `tensor` (place.h)
    bool joint = false;                 ///< several replicas, even if not all of them are known yet
    std::vector<AdapterPlan> adapters;
    /// Adapters that sums, counters and message tails have room for.
    std::int32_t adapter_capacity = 0;
    std::vector<AdapterId> first_admitted;  ///< adapters that train from the start (admission.h)
    std::vector<MemoryPlan> memory;         ///< per rank
};

/// A sample as a microbatch refers to it.
struct SampleRef {
    std::int32_t index = 0;    ///< in the dataset
    std::int32_t tokens = 0;   ///< rows that it takes, with padding
    std::int32_t targets = 0;  ///< as SampleInfo::targets
    bool undesirable = false;  ///< as SampleInfo::undesirable
};

/// Consecutive rows of one adapter in a microbatch: whole samples of one global batch, one after
/// another in this order.
struct Segment {
    AdapterId adapter{};
    std::int32_t step = 0;  ///< the adapter's optimizer step (0-based) these samples belong to
    std::vector<SampleRef> samples;
    std::int64_t tokens() const;
};

/// Columns of S behind the rows of a microbatch, and how LoRA is computed with them
/// (lora_columns.h).
struct LoraColumns {
    /// True: the pads of weight matrices hold the factors of all segments side by side, and one
    /// product computes base and LoRA. False: LoRA goes by segment.
    bool augmented = false;
    std::int32_t width = 0;           ///< columns per linear, a multiple of 16
    std::vector<std::int32_t> first;  ///< per segment: its first column
    /// Per AdapterId: its first column in every microbatch, if the pads hold the factors of all
    /// adapters. Empty if they hold those of the segments only. The same in all microbatches of a
    /// window.
    std::vector<std::int32_t> lasting;
};

/// The rows of one forward: the segments one after another, at most one per adapter
/// (pack_layout() in data/loader.h places each row). pack_microbatches() (pack/pack_microbatches.h)
/// decides which samples share a microbatch; evaluations.h does for eval samples.
struct Microbatch {
    std::vector<Segment> segments;
    LoraColumns columns = {};
    bool evaluation = false;  ///< eval samples only; it has no backward
    std::int64_t tokens() const;
    std::int64_t samples() const;
};

/// A global batch (a, j) of the window, or an evaluation of an adapter: all its eval samples,
/// forward only, with the weights after its first `step` optimizer steps. Counts are of the whole
/// batch over all replicas; microbatches are those of the window's replica.
struct BatchPlan {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::int32_t round = 0;  ///< of the run; in a round every active adapter takes one step
    std::int32_t epoch = 0;
    std::int32_t samples = 0;
    std::int64_t tokens = 0;          ///< of its samples
    std::int64_t padding = 0;         ///< rows beyond these tokens
    std::int64_t targets = 0;         ///< labels that are trained
    std::int64_t chosen_targets = 0;  ///< of the chosen samples of pairs
    double target_weight = 0.0;       ///< sum of the targets' weights, in the batch's order
    double denominator = 0.0;         ///< of the sum of its losses (sample_counts.h)
    /// Denominator per file, if losses are reported by file.
    std::vector<double> file_denominators = {};
    MicrobatchId first_microbatch{};  ///< first and last microbatch with samples of it, or -1
    MicrobatchId last_microbatch{};
    bool last_of_adapter = false;
    bool evaluation = false;
    /// True if the replica of the window has samples of it.
    bool is_here() const { return number(first_microbatch) >= 0; }
    /// For batches of pairs; 0 without chosen targets.
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

/// An action of a stage. `carried` lists batches (numbers in the stream):
///   send_backward / recv_backward: partial sums of squared gradients (this stage and above) and
///     loss sums of batches whose last backward this is ("ride down": pipeline_actions.h);
///   send_forward / recv_forward and send_norms / recv_norms: their totals ("ride up").
struct Action {
    ActionKind kind{};
    MicrobatchId microbatch{};
    std::int32_t batch = -1;  ///< step only; number in the stream, as all of `carried`
    /// Activation slot of the microbatch: of forward, backward and the messages of forward.
    std::int32_t slot = -1;
    /// Message buffer of backward and norms: backward reads the receive buffer and writes the send
    /// buffer of this number. -1 without neighbours.
    std::int32_t buffer = -1;
    std::int32_t peer = -1;  ///< of messages: rank at the other end (lane 0 to lane 0)
    std::vector<std::int32_t> carried;
};

/// A window: the schedule of the next rounds on one replica. Windows follow each other as a stream,
/// from one that `begins` with an empty pipeline to one that `drains` it; the pipeline is not empty
/// between them. Batches and microbatches are numbered within the stream. Actions may refer to
/// earlier windows, and later windows end what is in flight. Microbatches do not depend on where
/// windows are cut (schedule_stream.h).
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

/// The windows of all replicas for the same rounds, in the order of Plan::replicas, with the same
/// batches under the same numbers. With several replicas no sums travel with messages: all stages
/// of all replicas reduce the batches in one order. By the end of a window each stage has reduced
/// all batches of earlier windows, and those of this one except its last round.
struct JointWindow {
    std::vector<Window> replicas;
    std::vector<std::int32_t> reductions;  ///< batches in the order of reduction

    /// The window of any replica, for members that are the same in all.
    const Window& common() const { return replicas.front(); }
};

}  // namespace loratrain
