#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/tensor.h"
#include "config/adapter_form.h"
#include "config/given_paths.h"
#include "config/loss_job.h"
#include "config/model_spec.h"
#include "config/module_rules.h"
#include "config/rewards_job.h"

namespace loratrain {

/// The job file tune.yaml as plain typed values (design.md "The job file"). After reading, paths
/// are absolute or relative to the working directory: the reader resolves them against the job
/// file's folder. Every field has its documented default here.

enum class Precision : std::uint8_t { automatic, fp32, bf16, fp8 };
enum class BackendKind : std::uint8_t { automatic, cpu, cuda };
enum class OverLength : std::uint8_t { error, truncate, drop };
enum class LrSchedule : std::uint8_t {
    constant,
    constant_with_warmup,
    linear,
    cosine,
    cosine_with_restarts,
    cosine_with_min_lr,
    polynomial,
    inverse_sqrt,
    warmup_stable_decay,
};
/// How the rate of warmup_stable_decay goes from one value to another.
enum class LrRamp : std::uint8_t { linear, cosine, one_minus_sqrt };
enum class Tokenizer : std::uint8_t { none, bytes };
enum class Recompute : std::uint8_t { automatic, none, layer };
/// How microbatches are made and ordered (plan/pack/pack_microbatches.h).
/// - sequential: one adapter after another, in as few microbatches as its batch needs, as many in
///   flight as stages;
/// - one_f_one_b ("1f1b"): as sequential, but in at least as many microbatches as stages;
/// - mlora: adapters fill the pipeline in turn; a microbatch holds samples of one adapter;
/// - balanced: adapters are grouped and share microbatches.
enum class SchedulePolicy : std::uint8_t { sequential, one_f_one_b, mlora, balanced };
/// How policy balanced fills microbatches. greedy: by greedy filling. milp: also by MILP, if greedy
/// filling comes near the best. bucketed: pads samples to the lengths of a few buckets.
enum class Packing : std::uint8_t { milp, greedy, bucketed };
/// Which of several replicas computes which samples (LobRA, PVLDB 18(8), 2025, section 3).
/// balanced: all replicas end together. length: each sample goes to replicas of the kind that takes
/// the fewest GPU-seconds for it. uniform: every replica takes the same number of samples of a
/// batch.
enum class DispatchRule : std::uint8_t { balanced, length, uniform };
/// Whether a deployment that the planner found may be replaced during the run.
enum class Redeploy : std::uint8_t { automatic, never };
/// Which ranks train which adapters. A worker is a group of ranks that shares no rounds with other
/// groups.
/// - joint: every adapter trains on all replicas together;
/// - each: every adapter trains on one worker;
/// - automatic: as each, and the planner chooses the workers;
/// - plora: as each, in packed jobs that hold their worker until their longest adapter has ended
///   (PLoRA, Algorithms 1 and 2).
enum class Assignment : std::uint8_t { automatic, joint, each, plora };
enum class CostSource : std::uint8_t { automatic, built_in };
enum class PeftType : std::uint8_t { lora, vera };
/// AdamW, by the type of its moments: fp32, or 8-bit codes of blocks (backend.h, AdamW8bit).
enum class Optim : std::uint8_t { adamw_torch, adamw_8bit };
enum class LiveTable : std::uint8_t { automatic, never };
enum class SweepMethod : std::uint8_t { grid, random, list };
enum class SweepObjective : std::uint8_t { eval_loss, exact_match };
enum class SweepExport : std::uint8_t { best, all, none };
/// Halving: whether trials that wait for a decision continue to train (TrialSearch::speculation).
enum class Speculation : std::uint8_t {
    automatic,  ///< if it costs other trials little
    always,     ///< in every free place
    never,
};
/// Which rule ends trials early (plan/rungs.h).
enum class TrialScheduler : std::uint8_t { none, halving, asha, median };

/// Which recomputed layers copy their activations to host memory instead (plan/memory/offload.h).
struct Offload {
    enum class Kind : std::uint8_t {
        automatic,  ///< on GPUs: the number that makes a microbatch fastest by costs
        none,
        some,  ///< `layers` of every rank
    };
    Kind kind = Kind::none;
    int layers = 0;  ///< of Kind::some
    friend bool operator==(const Offload&, const Offload&) = default;
};

/// Which layers' frozen weights stay in a rank's own memory. For each use, the weights of the other
/// layers come from host memory (plan/memory/streamed_layers.h).
struct Residency {
    enum class Kind : std::uint8_t {
        automatic,  ///< all; on GPUs, if they do not fit, as many as fit
        all,
        stream,  ///< none
        shared,  ///< equal replicas on one host each own some layers; `sharers` of them hold the
                 ///< base once
        some,    ///< `layers` of every rank
    };
    Kind kind = Kind::automatic;
    int layers = 0;  ///< of Kind::some
    /// No key: number of ranks that hold the base once between them, set by planning
    /// (streamed_layers.h).
    int sharers = 1;
    friend bool operator==(const Residency&, const Residency&) = default;
};

struct ModelJob {
    std::string weights{};    ///< HDF5 file of the base model; "" with random weights
    std::string synthetic{};  ///< random weights of this preset (model_presets.h), to benchmark
    std::string config{};     ///< random weights of this config.json's shape, for a dry run
    Precision precision = Precision::automatic;
    Residency residency = {};
    /// Written into exported adapter_config.json: the Hugging Face folder or hub name. "" = the
    /// name that import-hf recorded in `weights` (name_base_model() of session/job_inputs.h), or
    /// `synthetic`.
    std::string base_model_name_or_path{};
    /// No key: how the base model was quantised ("nf4 of bf16"), for exports; "" = it was not.
    std::string base_quantization{};
    bool has_random_weights() const { return !synthetic.empty() || !config.empty(); }
};

struct RunJob {
    std::string dir;
    std::uint64_t seed = 42;
    BackendKind backend = BackendKind::automatic;
    double max_hours =
        0;  ///< stop cleanly (exit 75) before this time of one start is over; 0 = none
    int peer_timeout = 30;  ///< seconds without a heartbeat that end the job; 0 = no watchdog
};

/// Equal replicas of the model: an entry of parallel.deployment.
struct ReplicaJob {
    int tensor = 1;  ///< "tp": lanes of a stage (plan/tensor_shard.h)
    int stages = 1;  ///< "pp"
    int count = 1;   ///< replicas
    std::optional<std::int64_t> microbatch_tokens = {};  ///< none = auto: as in ParallelJob
    Recompute recompute = Recompute::automatic;          ///< auto: as in ParallelJob
    std::optional<int> recomputed_layers = {};  ///< as in ParallelJob, of the replicas' layers
    bool recomputes_least = false;              ///< as in ParallelJob
};

struct ParallelJob {
    std::optional<int> pipeline_stages;  ///< none = auto: all ranks, one pipeline
    /// None = auto: the size that fits in memory and makes a pipeline fastest by simulation. A run
    /// that is resumed keeps its size (make_plan.h, search_layout.h).
    std::optional<std::int64_t> microbatch_tokens;
    /// layer: keeps only the layers' inputs of a microbatch, and runs each layer's forward once
    /// more before its backward. auto: only if memory is short, and then for as few layers as it
    /// requires.
    Recompute recompute = Recompute::automatic;
    /// With recompute: layer, the number of a stage's layers that are recomputed; the others keep
    /// their activations. None = all.
    std::optional<int> recomputed_layers;
    /// No key: recompute was auto and was resolved to layer, for as few layers as memory requires.
    bool recomputes_least = false;
    Offload offload = {};
    /// Empty = one pipeline, as pipeline_stages says.
    std::vector<ReplicaJob> deployment{};
    /// `deployment: auto`: find_deployments.h finds `deployment`, which is empty until then.
    bool find_deployment = false;
    ExpertCut experts = ExpertCut::columns;  ///< how lanes share them
    DispatchRule dispatch = DispatchRule::balanced;
    Assignment assignment = Assignment::joint;
    /// The job gives neither this key nor pipeline_stages: one pipeline, unless another way gains
    /// enough (plan/deployments/usual_way.h). Both flags are false once that is decided.
    bool deployment_open = false;
    bool assignment_open = false;
    std::string settled{};  ///< no key: that decision and its reason, for people
    /// auto: a faster deployment replaces a found one (plan/deployments/redeploy.h).
    Redeploy redeploy = Redeploy::automatic;

    /// Whether adapters train on workers (train/workers/).
    bool by_workers() const { return assignment != Assignment::joint; }
};

/// Costs of a message between two ranks. Values that are not given are built in for the device
/// (plan/cost/host_links.h).
struct LinkJob {
    std::optional<double> gigabytes_per_second;  ///< 10^9 bytes/s, from one rank to another
    std::optional<double> microseconds;          ///< latency
};

/// Properties of the machine that the planner cannot query.
struct ClusterJob {
    LinkJob between_hosts{};
    bool any() const { return between_hosts.gigabytes_per_second || between_hosts.microseconds; }
};

/// How rank 0 plans the schedule (plan/).
struct ScheduleJob {
    SchedulePolicy policy = SchedulePolicy::balanced;
    Packing packing = Packing::greedy;
    /// Adapters that train at the same time; none = auto: as many as memory allows. The policies
    /// sequential and 1f1b train one at a time.
    std::optional<int> max_adapters;
    /// Limit of one MILP of Packing::milp; after it the best packing so far is used.
    double solver_seconds = 10.0;
    /// auto: costs measured on this hardware; they are profiled at the start if they are not known.
    CostSource costs = CostSource::automatic;
};

/// Samples held out of a dataset for its evaluation: a number, or a fraction rounded up to whole
/// samples (axolotl's val_set_size). run.seed draws them. They are not trained on.
struct EvalSplit {
    std::int64_t samples = 0;
    double fraction = 0.0;

    bool any() const { return samples > 0 || fraction > 0; }
};

inline constexpr int usual_kl_batch_size = 8;

/// One of several files of a dataset.
struct DataFile {
    std::string path;
    std::string name;     ///< in metrics
    double weight = 1.0;  ///< how often an epoch uses each sample (plan/pack/sample_order.h)
    friend bool operator==(const DataFile&, const DataFile&) = default;
};

struct DatasetJob {
    std::string name;
    std::string path;                       ///< .jsonl or .h5; the first of several files
    std::string eval_path;                  ///< "" = eval_split; the first of several files
    Tokenizer tokenizer = Tokenizer::none;  ///< bytes: {"prompt","completion"} or {"text"} lines
    std::int64_t max_seq_len = 2048;
    OverLength over_length = OverLength::error;
    bool shuffle = true;
    /// kto, whose examples have a label: number of neighbouring samples in a group
    /// (data/kl_groups.h).
    int kl_batch_size = usual_kl_batch_size;
    /// 0.05 or 200: held-out samples for the evaluation, instead of eval_path. The default is
    /// eval.split. Without eval_path and a split there is no evaluation.
    EvalSplit eval_split{};
    std::vector<DataFile> files{};       ///< empty = only `path`, each sample once per epoch
    std::vector<DataFile> eval_files{};  ///< empty = only `eval_path`
    /// No key: an adapter with rewards writes what comes into the folder.
    bool made_in_job = false;
    /// No key: adapters only take prompts from it; no adapter trains on it. Its samples need no
    /// targets.
    bool only_prompts = false;

    bool has_eval() const { return !eval_path.empty() || eval_split.any(); }
    /// `path` is a folder, written with / at its end: rollouts come into it while the job runs.
    bool grows() const { return files.empty() && path.ends_with('/'); }
    std::vector<std::string> paths() const;
    std::vector<std::string> eval_paths() const;
    /// Whether losses are reported per file, both of training and of evaluation.
    bool has_several_files() const { return files.size() > 1; }
    const std::vector<DataFile>& evaluated_files() const {
        return eval_path.empty() ? files : eval_files;
    }
};

/// Parameters of Hugging Face's schedules other than warm-up and length, by their names; an absent
/// value means their default (train/learning_rate.h).
struct LrSchedulerKwargs {
    std::optional<double> num_cycles;
    std::optional<double> min_lr;
    std::optional<double> min_lr_rate;
    std::optional<double> lr_end;
    std::optional<double> power;
    std::optional<double> timescale;  ///< steps, as the next two
    std::optional<double> num_decay_steps;
    std::optional<double> num_stable_steps;
    std::optional<double> min_lr_ratio;
    LrRamp warmup_type = LrRamp::linear;
    LrRamp decay_type = LrRamp::cosine;
    friend bool operator==(const LrSchedulerKwargs&, const LrSchedulerKwargs&) = default;
};
/// Value of ref_adapter for the adapter's own start.
inline constexpr const char* ref_is_start = "init_from";
inline constexpr double usual_lr_end = 1e-7;

struct AdapterJob {
    std::string name;
    DatasetId dataset{};
    int r = 16;
    double lora_alpha = 32.0;
    double lora_dropout = 0.0;
    /// Linears that have LoRA in some layer; an upper bound if there are `modules`.
    std::array<bool, linear_count> targets = all_linears();
    bool targets_head = false;                            ///< lm_head has LoRA too
    bool targets_embedding = false;                       ///< embed_tokens has LoRA too
    std::vector<std::int32_t> trainable_token_indices{};  ///< have rows of their own; none twice
    /// Targets, ranks and alphas that differ between layers; null = all layers are equal.
    std::shared_ptr<const ModuleTable> modules{};
    PeftType peft_type = PeftType::lora;
    /// VeRA, which has no alpha (its scaling is 1): the initial value of scale_d, the seed of the
    /// projections (io/adapters/exported_adapter.h), and whether exports contain the projections.
    double d_initial = 0.1;
    std::uint64_t projection_prng_key = 0;
    bool save_projection = true;
    bool use_rslora = false;
    bool use_dora = false;
    /// LoRA+ (Hayou et al., 2024): the learning rate of B and of vectors divided by the rate of A.
    /// Weight decay is the same for all, as in PEFT's create_loraplus_optimizer.
    double loraplus_lr_ratio = 1.0;
    /// Initial value of A, or of A and B with pissa and olora.
    Initial init_lora_weights = Initial::uniform;
    /// pissa_niter_N: iterations of a randomised decomposition. None: as many as it takes.
    std::optional<int> pissa_niter;
    /// The tensors that the keys above ask for (form_of()).
    AdapterForm form = lora_form();
    std::string init_from;  ///< PEFT directory, "" = fresh
    /// PEFT directory of the adapter that losses with a reference compare with; "" = the base
    /// alone.
    std::string ref_adapter;
    LossJob loss{};
    RewardsJob rewards{};
    /// NEFTune: scale of the noise on the embeddings of training samples (backend/ops/random.h,
    /// AddNoise).
    double neftune_noise_alpha = 0.0;
    double learning_rate = 2.0e-4;
    LrSchedule lr_scheduler_type = LrSchedule::cosine;
    LrSchedulerKwargs lr_scheduler_kwargs{};
    /// Number of steps; below 1, a fraction of the adapter's steps (train/learning_rate.h).
    double warmup_steps = 0.0;
    Optim optim = Optim::adamw_torch;
    double weight_decay = 0.0;
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
    double adam_epsilon = 1.0e-8;
    double max_grad_norm = 1.0;  ///< 0 = no clipping
    int global_batch_size = 8;
    double num_train_epochs = 1.0;
    std::optional<int> max_steps;  ///< replaces num_train_epochs
    std::uint64_t seed = 42;       ///< defaults to run.seed
    int priority = 0;
    /// A trial of a sweep. Trials are ranked. Their random numbers do not depend on their names, so
    /// that trials of the same seed and rank begin with the same A and drop the same inputs.
    bool trial = false;
    /// The adapter had ended when the deployment was made; the deployment need not hold its
    /// samples.
    bool ended = false;
    /// ExportJob::scaling is plain; no key of its own.
    bool plain_export = false;
    DType export_dtype = DType::f32;  ///< ExportJob::dtype; no key of its own

    /// The PEFT directories that the adapter reads, each once.
    std::vector<std::string> directories() const;
    /// The text that, with the seed, keys the adapter's random numbers (base/rng.h, tensor_key).
    const std::string& random_name() const;
    bool targets_linear(Linear linear) const {
        if (linear == Linear::embedding) return targets_embedding;
        return linear == Linear::head ? targets_head : targets[static_cast<std::size_t>(linear)];
    }
    bool& targets_outer(Linear linear) {
        return linear == Linear::embedding ? targets_embedding : targets_head;
    }
    bool targets_outer() const { return targets_head || targets_embedding; }
    bool targets_linear(std::int64_t layer, Linear linear) const { return rank(layer, linear) > 0; }
    /// The choice of `modules` for a linear. `modules` must not be null.
    ModuleChoice choice(std::int64_t layer, Linear linear) const;
    /// Rank on a linear; 0 = not a target.
    int rank(std::int64_t layer, Linear linear) const;
    /// The largest rank on any linear.
    int largest_rank() const { return modules ? modules->largest_rank(r) : r; }
    bool is_vera() const { return peft_type == PeftType::vera; }
    /// Scaling on a target, with its rank and alpha: lora_alpha / r, or lora_alpha / sqrt(r) with
    /// use_rslora; 1 for VeRA.
    double scaling(std::int64_t layer, Linear linear) const;
};

/// Rank on a linear of a model; 0 = no LoRA there. all-linear does not include linears of experts.
int target_rank(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layer,
                Linear linear);
/// Whether the adapter has this tensor of its form for a linear.
bool has_tensor(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layer,
                Linear linear, const FormTensor& tensor);
/// Whether the adapter has LoRA on linears of experts.
bool targets_experts(const AdapterJob& adapter, const ModelSpec& model);
/// Whether the adapter has LoRA on MLPs of a model with experts, in experts or beside them.
bool targets_mlps_of_experts(const AdapterJob& adapter, const ModelSpec& model);

/// The tensors that an adapter's keys ask for.
AdapterForm form_of(const AdapterJob& adapter);

/// Values that adapters use unless they give their own (`defaults` of the job file).
struct AdapterDefaults {
    AdapterJob adapter;
    bool has_dataset = false;  ///< `defaults` has the key dataset
};

struct CheckpointJob {
    int every_steps = 200;      ///< 0 = never by steps
    double every_minutes = 30;  ///< 0 = never by time
    int keep = 2;
};

inline constexpr std::int64_t usual_new_tokens = 256;
inline constexpr int most_new_tokens = 1'000'000;

/// Texts that an adapter generates when it ends, from the prompts of its evaluation data.
struct GenerateJob {
    std::int64_t samples = 0;  ///< number of samples, from the first on; 0 = none
    std::int64_t max_new_tokens = usual_new_tokens;
    std::vector<std::int32_t> stop_tokens{};  ///< end a text, as do the stop tokens of the base

    bool wanted() const { return samples > 0; }
};

struct EvalJob {
    int every_steps = 0;     ///< 0 = only before the first and after the last step
    bool keep_best = false;  ///< also export an adapter's state of lowest eval loss, as best/
    /// Evaluations without improvement that end an adapter; 0 = never.
    int early_stopping_patience = 0;
    double early_stopping_threshold = 0.0;  ///< a smaller decrease does not count as improvement
    EvalSplit split{};  ///< eval_split of datasets without one and without eval_path
    GenerateJob generate{};
};

/// How exports give an adapter's scaling. peft: as the job does, with use_rslora and patterns.
/// plain: by lora_alpha and r alone (io/adapters/exported_adapter.h).
enum class ExportScaling : std::uint8_t { peft, plain };

struct ExportJob {
    ExportScaling scaling = ExportScaling::peft;
    DType dtype = DType::f32;  ///< type of the tensors
    bool tokenizer = true;     ///< also copy the tokenizer files of the base's folder
    int every_steps = 0;       ///< of an adapter, between exports while it trains; 0 = none
    int keep = 2;              ///< of an adapter, the newest of these
};

struct LoggingJob {
    int every_steps = 1;
    /// auto: on a terminal, a table redrawn in place replaces the lines of every_steps.
    LiveTable live = LiveTable::automatic;
    bool tensorboard = false;  ///< event files in <run.dir>/tensorboard
    bool trace = false;        ///< <run.dir>/trace.json: what every rank did when (Chrome trace)
};

/// How trials (AdapterJob::trial) compete. The reader expands the keys that make trials into
/// adapters (sweep_space.h).
struct SweepJob {
    SweepObjective objective = SweepObjective::eval_loss;
    int top_k = 1;  ///< length of the leaderboard, and number of exports with SweepExport::best
    SweepExport exports = SweepExport::best;
    std::string reference;  ///< adapter that the best trial is compared with; "" = none
    TrialScheduler scheduler = TrialScheduler::none;
    int rungs = 3;  ///< the last rung is a trial's end
    /// From one rung to the next, of the number of trials and of their lengths.
    int reduction_factor = 3;
    /// Number of samples, from the first on, at rungs before the last; 0 = all.
    std::int64_t rung_eval_samples = 0;
    Speculation speculate = Speculation::automatic;
    /// Of training over all starts, after which the sweep ends; 0 = no limit.
    double budget_hours = 0;
    double wait_minutes = 0;  ///< to wait for trials from the inbox when nothing is left to train
};

struct Job {
    std::string path;  ///< the job file, for messages
    GivenPaths given_paths{};
    ModelJob model;
    RunJob run;
    ParallelJob parallel;
    ClusterJob cluster;
    ScheduleJob schedule;
    std::vector<DatasetJob> datasets;
    std::vector<AdapterJob> adapters;
    AdapterDefaults defaults;  ///< merged into `adapters`; also for adapters added later
    CheckpointJob checkpoint;
    EvalJob eval;
    ExportJob exports;
    LoggingJob logging;
    std::optional<SweepJob> sweep;

    const AdapterJob& adapter(AdapterId id) const { return adapters[index(id)]; }
    const DatasetJob& dataset(DatasetId id) const { return datasets[index(id)]; }
    bool any_grows() const;  ///< DatasetJob::grows
    /// Whether the steps of an adapter have details besides their loss: rewards, a contrastive
    /// loss, ratios of rollouts, or losses per file.
    bool has_step_details(AdapterId id) const {
        const LossJob& loss = adapter(id).loss;
        return loss.has_rewards() || loss.is_contrastive() || loss.is_of_rollouts() ||
               dataset(adapter(id).dataset).has_several_files();
    }
};

/// Whether an adapter of the job has LoRA on linears of experts.
bool targets_experts(const Job& job, const ModelSpec& model);
/// Whether the backward of an adapter of the job reads what mixers and MLPs add to the residual
/// stream: with DoRA, without dropout, on their last linears, which have no bias.
bool reads_outputs(const Job& job, const ModelSpec& model);

/// Most adapters that may train at once, whatever the memory: one with the policies sequential and
/// 1f1b, otherwise schedule.max_adapters.
std::size_t most_admitted(const Job& job);

}  // namespace loratrain
