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
#include "config/loss_job.h"
#include "config/model_spec.h"
#include "config/module_rules.h"

namespace loratrain {

/// The job file tune.yaml as plain typed values (design.md "The job file"). Paths are absolute
/// or relative to the working directory after reading (the reader resolves them against the job
/// file's folder). Every field has its documented default here.

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
/// How a rate goes from one value to another: of warmup_stable_decay.
enum class LrRamp : std::uint8_t { linear, cosine, one_minus_sqrt };
enum class Tokenizer : std::uint8_t { none, bytes };
enum class Recompute : std::uint8_t { automatic, none, layer };
/// sequential: one adapter after another, in as few microbatches as its batch needs. one_f_one_b
/// ("1f1b"): likewise, in as many as there are stages or more. Both keep as many in flight as
/// stages. mlora: adapters in turn fill the pipeline, a microbatch holds samples of one adapter.
/// balanced: adapters are grouped and share microbatches. (plan/pack/pack_microbatches.h)
enum class SchedulePolicy : std::uint8_t { sequential, one_f_one_b, mlora, balanced };
/// How policy balanced fills microbatches. milp: also by MILP, where greedy filling comes near the
/// best. bucketed pads samples to the lengths of a few buckets.
enum class Packing : std::uint8_t { milp, greedy, bucketed };
/// Which of several replicas computes which samples. balanced: so that all end together. length:
/// each sample goes to replicas of the kind that takes the fewest GPU-seconds for it. uniform: each
/// takes as many samples of a batch. (LobRA, PVLDB 18(8), 2025, section 3)
enum class DispatchRule : std::uint8_t { balanced, length, uniform };
/// Whether a deployment that was found may make way for another one.
enum class Redeploy : std::uint8_t { automatic, never };
/// Who trains where. joint: every adapter on all replicas together. each: on one worker, a group of
/// ranks that shares no rounds with the others; automatic: so too, the planner cuts the ranks.
/// plora: as each, in packed jobs that hold their worker until the longest has ended (PLoRA,
/// Algorithms 1 and 2).
enum class Assignment : std::uint8_t { automatic, joint, each, plora };
enum class CostSource : std::uint8_t { automatic, built_in };
enum class PeftType : std::uint8_t { lora, vera };
/// AdamW, and what it keeps moments in: fp32, or 8-bit codes of blocks (backend.h, AdamW8bit).
enum class Optim : std::uint8_t { adamw_torch, adamw_8bit };
enum class LiveTable : std::uint8_t { automatic, never };
enum class SweepMethod : std::uint8_t { grid, random, list };
enum class SweepObjective : std::uint8_t { eval_loss, exact_match };
enum class SweepExport : std::uint8_t { best, all, none };
/// Halving: whether trials that wait for a decision train on (TrialSearch::speculation).
enum class Speculation : std::uint8_t {
    automatic,  ///< where it costs others little
    always,     ///< in every place that is free
    never,
};
/// How trials are ended early (plan/rungs.h).
enum class TrialScheduler : std::uint8_t { none, halving, asha, median };

/// Which of the layers that would be computed again have their activations copied to host memory
/// instead (plan/memory/offload.h).
struct Offload {
    enum class Kind : std::uint8_t {
        automatic,  ///< on GPUs as many as make a microbatch fastest by costs
        none,
        some,  ///< `layers` of every rank
    };
    Kind kind = Kind::none;
    int layers = 0;  ///< of Kind::some
    friend bool operator==(const Offload&, const Offload&) = default;
};

/// Which layers' frozen weights stay in a rank's own memory; those of the others come from the
/// host's for each use (plan/memory/streamed_layers.h).
struct Residency {
    enum class Kind : std::uint8_t {
        automatic,  ///< all, and on GPUs where they do not fit as many as do
        all,
        stream,  ///< none
        shared,  ///< of alike replicas on one host those of each are others; `sharers` hold the
                 ///< base
        some,    ///< `layers` of every rank
    };
    Kind kind = Kind::automatic;
    int layers = 0;  ///< of Kind::some
    /// No key: ranks that have the base once between them, found by planning (streamed_layers.h).
    int sharers = 1;
    friend bool operator==(const Residency&, const Residency&) = default;
};

struct ModelJob {
    std::string weights{};    ///< HDF5 file of the base model; "" where there are random weights
    std::string synthetic{};  ///< random weights of this preset (model_presets.h), to benchmark
    std::string config{};     ///< random weights of this config.json's shape, for a dry run
    Precision precision = Precision::automatic;
    Residency residency = {};
    /// Written into exported adapter_config.json: the Hugging Face folder or hub name; "" = what
    /// import-hf recorded in `weights` (name_base_model() of session/job_inputs.h), or `synthetic`.
    std::string base_model_name_or_path{};
    /// No key: how that model was quantised ("nf4 of bf16"), for exports; "" = it was not.
    std::string base_quantization{};
    bool has_random_weights() const { return !synthetic.empty() || !config.empty(); }
};

struct RunJob {
    std::string dir;
    std::uint64_t seed = 42;
    BackendKind backend = BackendKind::automatic;
    double max_hours = 0;   ///< stop cleanly (exit 75) before this time is over; 0 = no limit
    int peer_timeout = 30;  ///< seconds without a sign of life that end the job; 0 = no watchdog
};

/// Replicas of the model that are cut alike (parallel.deployment).
struct ReplicaJob {
    int tensor = 1;  ///< "tp": lanes of a stage (plan/tensor_shard.h)
    int stages = 1;  ///< "pp"
    int count = 1;   ///< replicas
    std::optional<std::int64_t> microbatch_tokens = {};  ///< none = auto: as ParallelJob's
    Recompute recompute = Recompute::automatic;          ///< auto: as ParallelJob's
    std::optional<int> recomputed_layers = {};           ///< as ParallelJob's, of theirs
    bool recomputes_least = false;                       ///< likewise
};

struct ParallelJob {
    std::optional<int> pipeline_stages;  ///< none = auto: all ranks, one pipeline
    /// None = auto: what makes a pipeline fastest by simulation and fits in memory; a run that is
    /// continued keeps the size that it had (make_plan.h, search_layout.h).
    std::optional<std::int64_t> microbatch_tokens;
    /// layer: keep only the layers' inputs of a microbatch and run each layer's forward once more
    /// before its backward; auto: only where memory is short, and then of as few layers as it asks.
    Recompute recompute = Recompute::automatic;
    /// With layer: of so many of a stage's layers, the others keep their activations. None = all.
    std::optional<int> recomputed_layers;
    /// Layer is what auto has come to: of as few layers as memory asks.
    bool recomputes_least = false;
    Offload offload = {};
    /// Empty = one pipeline as pipeline_stages says.
    std::vector<ReplicaJob> deployment{};
    /// `deployment: auto`: `deployment` is what find_deployments.h finds, empty until then.
    bool find_deployment = false;
    DispatchRule dispatch = DispatchRule::balanced;
    Assignment assignment = Assignment::joint;
    /// Not given, nor is pipeline_stages: one pipeline, unless another way gains enough
    /// (plan/deployments/usual_way.h). Both false once that is settled.
    bool deployment_open = false;
    bool assignment_open = false;
    std::string settled{};  ///< no key: what came of that and why, for people
    /// auto: a deployment that was found makes way for a faster one, where that pays, as adapters
    /// end or come (plan/deployments/redeploy.h).
    Redeploy redeploy = Redeploy::automatic;

    /// Adapters train on workers (train/workers/).
    bool by_workers() const { return assignment != Assignment::joint; }
};

/// What a message takes on its way; what is not given is built in for the device
/// (plan/cost/host_links.h).
struct LinkJob {
    std::optional<double> gigabytes_per_second;  ///< of 10^9 bytes, from one rank to another
    std::optional<double> microseconds;          ///< latency
};

/// The machine that plans are made for, where it is not asked.
struct ClusterJob {
    LinkJob between_hosts{};
    bool any() const { return between_hosts.gigabytes_per_second || between_hosts.microseconds; }
};

/// How rank 0 plans (plan/).
struct ScheduleJob {
    SchedulePolicy policy = SchedulePolicy::balanced;
    Packing packing = Packing::greedy;
    /// Adapters that train at the same time; none = auto: as many as memory allows. The policies
    /// sequential and 1f1b take one.
    std::optional<int> max_adapters;
    double solver_seconds = 10.0;  ///< safety limit of one MILP; the greedy packing stands in
    /// auto: costs measured on this hardware (profiled at the start unless they are known).
    CostSource costs = CostSource::automatic;
};

/// Samples held out of a dataset for its evaluation: so many, or this fraction, rounded up to whole
/// samples (axolotl's val_set_size). run.seed draws them; they are not trained on.
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
    double weight = 1.0;  ///< how often an epoch has its samples (plan/pack/sample_order.h)
    friend bool operator==(const DataFile&, const DataFile&) = default;
};

struct DatasetJob {
    std::string name;
    std::string path;                       ///< .jsonl or .h5; of several files the first
    std::string eval_path;                  ///< "" = eval_split; of several files the first
    Tokenizer tokenizer = Tokenizer::none;  ///< bytes: {"prompt","completion"} or {"text"} lines
    std::int64_t max_seq_len = 2048;
    OverLength over_length = OverLength::error;
    bool shuffle = true;
    /// Of examples with a label, for kto: so many neighbours make a group (data/kl_groups.h).
    int kl_batch_size = usual_kl_batch_size;
    /// 0.05 or 200: evaluated on instead of an eval_path; defaults to eval.split. Without both
    /// there is no evaluation.
    EvalSplit eval_split{};
    std::vector<DataFile> files{};       ///< empty = path alone, once an epoch
    std::vector<DataFile> eval_files{};  ///< empty = eval_path alone

    bool has_eval() const { return !eval_path.empty() || eval_split.any(); }
    std::vector<std::string> paths() const;
    std::vector<std::string> eval_paths() const;
    /// Losses are reported by file: of those that it is trained on, and evaluated on.
    bool has_several_files() const { return files.size() > 1; }
    const std::vector<DataFile>& evaluated_files() const {
        return eval_path.empty() ? files : eval_files;
    }
};

/// What Hugging Face's schedules take beside warm-up and length, by their names and with their
/// defaults where there is no value (train/learning_rate.h).
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
/// As ref_adapter: the adapter's own start.
inline constexpr const char* ref_is_start = "init_from";
inline constexpr double usual_lr_end = 1e-7;

struct AdapterJob {
    std::string name;
    DatasetId dataset{};
    int r = 16;
    double lora_alpha = 32.0;
    double lora_dropout = 0.0;
    /// The linears that it is on in some layer; with `modules` at most.
    std::array<bool, linear_count> targets = all_linears();
    bool targets_head = false;       ///< it is on lm_head too
    bool targets_embedding = false;  ///< and on embed_tokens
    /// What is not alike in all layers; null = everything is.
    std::shared_ptr<const ModuleTable> modules{};
    PeftType peft_type = PeftType::lora;
    /// Of VeRA, which has no alpha (its scaling is 1): what scale_d starts with, the seed of the
    /// projections (io/adapters/vera_projections.h), and whether exports have them.
    double d_initial = 0.1;
    std::uint64_t projection_prng_key = 0;
    bool save_projection = true;
    bool use_rslora = false;
    bool use_dora = false;
    /// LoRA+ (Hayou et al., 2024): the rate of B and of vectors over that of A. All decay alike, as
    /// with PEFT's create_loraplus_optimizer.
    double loraplus_lr_ratio = 1.0;
    /// Of A, or with pissa and olora of A and B.
    Initial init_lora_weights = Initial::uniform;
    /// pissa_niter_N: iterations of a randomised decomposition; none: all that it takes.
    std::optional<int> pissa_niter;
    /// Of the above (form_of).
    AdapterForm form = lora_form();
    std::string init_from;  ///< PEFT directory, "" = fresh
    /// PEFT directory of the adapter that losses with a reference compare with; "" = the base
    /// alone.
    std::string ref_adapter;
    LossJob loss{};
    /// NEFTune: noise on the embeddings of samples that are trained on (backend/ops/random.h,
    /// AddNoise).
    double neftune_noise_alpha = 0.0;
    double learning_rate = 2.0e-4;
    LrSchedule lr_scheduler_type = LrSchedule::cosine;
    LrSchedulerKwargs lr_scheduler_kwargs{};
    /// Whole, or below 1 a fraction of the adapter's steps (train/learning_rate.h).
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
    /// One of a sweep: it is ranked, and its random numbers do not depend on its name, so that
    /// trials of the same seed and rank begin with the same A and drop the same inputs.
    bool trial = false;
    /// It had ended when the deployment was made, which need not hold its samples.
    bool ended = false;
    /// ExportJob::scaling is plain; no key of its own.
    bool plain_export = false;
    DType export_dtype = DType::f32;  ///< ExportJob::dtype; no key of its own

    /// The PEFT directories that it reads, each once.
    std::vector<std::string> directories() const;
    /// What keys its random numbers beside the seed (base/rng.h, tensor_key).
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
    /// What `modules` say of a linear; with modules alone.
    ModuleChoice choice(std::int64_t layer, Linear linear) const;
    /// Rank on a linear; 0 = none of its targets.
    int rank(std::int64_t layer, Linear linear) const;
    /// The largest rank on any.
    int largest_rank() const { return modules ? modules->largest_rank(r) : r; }
    bool is_vera() const { return peft_type == PeftType::vera; }
    /// On a target, with its rank and alpha: lora_alpha / r, or lora_alpha / sqrt(r) with
    /// use_rslora; of VeRA 1.
    double scaling(std::int64_t layer, Linear linear) const;
};

/// Its rank on a linear of a model, 0 where it has no LoRA there: of those in experts on the ones
/// that it names, as all-linear means none of them.
int target_rank(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layer,
                Linear linear);
/// Some in experts.
bool targets_experts(const AdapterJob& adapter, const ModelSpec& model);

/// The tensors that an adapter's keys ask for.
AdapterForm form_of(const AdapterJob& adapter);

/// What adapters share unless they say otherwise (`defaults` of the job file).
struct AdapterDefaults {
    AdapterJob adapter;
    bool has_dataset = false;  ///< the dataset was named
};

struct CheckpointJob {
    int every_steps = 200;      ///< 0 = never by steps
    double every_minutes = 30;  ///< 0 = never by time
    int keep = 2;
};

inline constexpr std::int64_t usual_new_tokens = 256;

/// Texts that adapters write behind the prompts of their evaluation data when they end.
struct GenerateJob {
    std::int64_t samples = 0;  ///< the first so many; 0 = none
    std::int64_t max_new_tokens = usual_new_tokens;
    std::vector<std::int32_t> stop_tokens{};  ///< that end a text, beside those that the base names

    bool wanted() const { return samples > 0; }
};

struct EvalJob {
    int every_steps = 0;     ///< 0 = only before the first and after the last step
    bool keep_best = false;  ///< export an adapter's state of lowest eval loss as best/ too
    int early_stopping_patience = 0;  ///< evaluations without improvement that end an adapter; 0 =
                                      ///< none do
    double early_stopping_threshold = 0.0;  ///< a smaller decrease is no improvement
    EvalSplit split{};  ///< eval_split of datasets that have neither that nor an eval_path
    GenerateJob generate{};
};

/// How exports tell what adapters are scaled by: as the job has it, with use_rslora and patterns
/// (`peft`), or by lora_alpha and r alone (`plain`; io/adapters/exported_adapter.h).
enum class ExportScaling : std::uint8_t { peft, plain };

struct ExportJob {
    ExportScaling scaling = ExportScaling::peft;
    DType dtype = DType::f32;  ///< of the tensors
    bool tokenizer = true;     ///< with the tokenizer files of a base's folder
};

struct LoggingJob {
    int every_steps = 1;
    /// auto: on a terminal, one table drawn anew in place stands for the lines of every_steps.
    LiveTable live = LiveTable::automatic;
    bool tensorboard = false;  ///< event files in <run.dir>/tensorboard
    bool trace = false;        ///< <run.dir>/trace.json: what every rank did when (Chrome trace)
};

/// How the adapters with AdapterJob::trial compete; what `space` says is expanded into them
/// (sweep_space.h).
struct SweepJob {
    SweepObjective objective = SweepObjective::eval_loss;
    int top_k = 1;  ///< places of the leaderboard, and exports with SweepExport::best
    SweepExport exports = SweepExport::best;
    std::string reference;  ///< an adapter that the best is compared with; "" = none
    TrialScheduler scheduler = TrialScheduler::none;
    int rungs = 3;             ///< the last one is a trial's end
    int reduction_factor = 3;  ///< of trials from one rung to the next, and of their lengths
    std::int64_t rung_eval_samples = 0;  ///< the first so many at rungs before the last; 0 = all
    Speculation speculate = Speculation::automatic;
    double budget_hours = 0;  ///< of training, over all starts, that end the sweep; 0 = no limit
    double wait_minutes = 0;  ///< to wait for more through the inbox when nothing is left to train
};

struct Job {
    std::string path;  ///< the job file, for messages
    ModelJob model;
    RunJob run;
    ParallelJob parallel;
    ClusterJob cluster;
    ScheduleJob schedule;
    std::vector<DatasetJob> datasets;
    std::vector<AdapterJob> adapters;
    AdapterDefaults defaults;  ///< merged into `adapters`; for those added later
    CheckpointJob checkpoint;
    EvalJob eval;
    ExportJob exports;
    LoggingJob logging;
    std::optional<SweepJob> sweep;

    const AdapterJob& adapter(AdapterId id) const { return adapters[index(id)]; }
    const DatasetJob& dataset(DatasetId id) const { return datasets[index(id)]; }
    /// The steps of an adapter have details beside their loss: rewards, a contrastive loss, or
    /// losses of files.
    bool has_step_details(AdapterId id) const {
        const LossJob& loss = adapter(id).loss;
        return loss.has_rewards() || loss.is_contrastive() ||
               dataset(adapter(id).dataset).has_several_files();
    }
};

/// Adapters that may train at once whatever the memory: one with the policies sequential and 1f1b,
/// else schedule.max_adapters.
std::size_t most_admitted(const Job& job);

}  // namespace loratrain
