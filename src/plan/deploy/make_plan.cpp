#include "plan/deploy/make_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "plan/cost/cost_model.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/choose_split.h"
#include "plan/deploy/fit_layers.h"
#include "plan/deploy/search_layout.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/memory_model.h"
#include "plan/number_types.h"
#include "plan/replica_view.h"
#include "plan/schedule/admission.h"

namespace loratrain {

namespace {

/// Enough rows for the matrix products to run at full speed.
constexpr std::int64_t usual_microbatch_tokens_cpu = 2048;
constexpr std::int64_t usual_microbatch_tokens_cuda = 8192;
/// Of the usual microbatch, below which fewer adapters at once are the better choice.
constexpr std::int64_t crowded_share = 8;

/// Sum of ranks in a microbatch beyond which segments are faster than the augmented matrix.
std::int32_t widest_pad(BackendKind backend) {
    return backend == BackendKind::cuda ? 512 : 128;
}

std::string_view device_of(const Cluster& cluster) {
    if (!cluster.device.empty()) return cluster.device;
    return cluster.backend == BackendKind::cuda ? "h100" : "cpu";
}

class Planner {
  public:
    Planner(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
            const Cluster& cluster, const Plan* former)
        : job_(job),
          sized_job_(job),
          datasets_(datasets),
          cluster_(cluster),
          checks_(job, model, job.path, problems_) {
        plan_.model = model;
        plan_.replicas.resize(1);
        plan_.backend = cluster.backend;
        const NumberTypes types = number_types(job.model.precision, plan_.backend);
        plan_.compute = types.compute;
        plan_.weights = types.weights;
        for (const AdapterJob& adapter : job.adapters) used_.insert(adapter.dataset);
        longest_sample_ = longest_sample();
        if (former != nullptr) keep_sizes(only_replica(*former).replica);
    }

    Plan run() {
        choose_stages();
        check_datasets();
        check_ranks();
        problems_.throw_if_any();
        built_in_ = built_in_costs(plan_.model, plan_.compute, device_of(cluster_));
        plan_.costs = cluster_.costs.value_or(built_in_);
        usual_loads_ = usual_loads();
        largest_round_ = largest_round();
        place_stages(job_.parallel.recompute == Recompute::layer);
        plan_adapters();
        find_sample_bounds();
        choose_lora_columns();
        problems_.throw_if_any();
        admit_first();
        search_sizes();
        share_layers_where_they_fit();
        choose_depth();
        plan_memory();
        problems_.throw_if_any();
        return std::move(plan_);
    }

  private:
    ReplicaPlan& replica() { return plan_.replicas.front(); }
    const ReplicaPlan& replica() const { return plan_.replicas.front(); }
    ReplicaView view() const { return only_replica(plan_); }

    std::string where(std::string_view key) const { return cat(job_.path, ": ", key); }
    const DatasetInfo& data_of(const AdapterJob& adapter) const {
        return datasets_[index(adapter.dataset)];
    }

    int stages_wanted() const { return job_.parallel.pipeline_stages.value_or(cluster_.ranks); }

    void choose_stages() {
        const bool chosen = job_.parallel.pipeline_stages.has_value();
        const auto layers = static_cast<int>(plan_.model.layers);
        const int stages = stages_wanted();
        const std::string key = where("parallel.pipeline_stages");
        if (stages < 1) problems_.add(key, cat(stages, " stages"), "use at least 1, or auto");
        if (stages > layers) {
            problems_.add(
                key, cat(stages, " stages, but the model has ", layers, " layers"),
                chosen ? cat("use at most ", layers) : cat("start at most ", layers, " ranks"));
        }
        if (stages > cluster_.ranks) {
            problems_.add(key, cat(stages, " stages, but only ", cluster_.ranks, " ranks"),
                          cat("start ", stages, " ranks (mpirun -np ", stages, ")"));
        }
        if (stages >= 1 && stages < cluster_.ranks) {
            problems_.add(key,
                          cat(cluster_.ranks - stages, " of ", cluster_.ranks,
                              " ranks would stay unused by ", stages, " stages"),
                          cat("start ", stages, " ranks, or set pipeline_stages to auto"));
        }
        replica().max_in_flight = std::clamp(stages, 1, layers);
    }

    void place_stages(bool recompute) {
        replica().stages =
            split(replica().max_in_flight, recompute ? Recompute::layer : Recompute::none);
    }

    std::vector<StagePlan> split(std::int32_t stages, Recompute recompute) const {
        return choose_split(static_cast<std::int32_t>(plan_.model.layers), stages, built_in_,
                            plan_.costs, usual_loads_.total, recompute);
    }

    /// Where every adapter trains from the start: with some waiting, which ones load a stage would
    /// change as they end.
    void share_layers_where_they_fit() {
        if (take_stages_that_fit(former_stages_)) return;
        if (plan_.first_admitted.size() < job_.adapters.size()) return;
        take_stages_that_fit(choose_split(static_cast<std::int32_t>(plan_.model.layers),
                                          replica().max_in_flight, built_in_, plan_.costs,
                                          usual_loads_, replica().recompute));
    }

    bool take_stages_that_fit(const std::vector<StagePlan>& stages) {
        if (stages.empty()) return false;
        ReplicaPlan trial = replica();
        trial.stages = stages;
        if (!fits_memory(job_, view().with(trial), replica().microbatch_tokens,
                         replica().recompute))
            return false;
        replica().stages = stages;
        find_fitting_tokens();
        return true;
    }

    /// 1F1B and mLoRA are defined by as many microbatches in flight as stages.
    void choose_depth() {
        if (job_.schedule.policy != SchedulePolicy::balanced) return;
        if (!fits_memory(job_, view(), replica().microbatch_tokens, replica().recompute)) return;
        ReplicaPlan former = replica();
        former.max_in_flight = former_depth_;
        const bool kept = former_depth_ >= replica().max_in_flight &&
                          fits_memory(job_, view().with(former), replica().microbatch_tokens,
                                      replica().recompute);
        replica().max_in_flight =
            kept ? former_depth_ : search_depth(job_, plan_, datasets_, built_in_);
        find_fitting_tokens();
    }

    std::int64_t usual_tokens() const {
        return plan_.backend == BackendKind::cuda ? usual_microbatch_tokens_cuda
                                                  : usual_microbatch_tokens_cpu;
    }

    /// A microbatch of usual size with the mix of samples that all adapters' steps have together.
    AdapterLoads usual_loads() const {
        struct Step {
            double tokens = 0.0;
            double squares = 0.0;
            double targets = 0.0;
        };
        std::vector<Step> steps;
        double tokens = 0.0;
        for (const AdapterJob& adapter : job_.adapters) {
            const std::vector<SampleInfo>& samples = data_of(adapter).train;
            const auto count = static_cast<double>(samples.size());
            const double share = std::min<double>(adapter.global_batch_size, count) / count;
            Step& step = steps.emplace_back();
            for (const SampleInfo& sample : samples) {
                step.tokens += share * sample.tokens;
                step.squares += share * sample.tokens * static_cast<double>(sample.tokens);
                step.targets += share * sample.targets;
            }
            tokens += step.tokens;
        }
        const std::int64_t rows = job_.parallel.microbatch_tokens.value_or(usual_tokens());
        const double scale = static_cast<double>(rows) / tokens;
        AdapterLoads loads;
        for (std::size_t a = 0; a < steps.size(); ++a) {
            const Step& step = steps[a];
            loads.add(static_cast<AdapterId>(a),
                      {std::llround(step.tokens * scale), step.squares * scale,
                       std::llround(step.targets * scale)});
        }
        return loads;
    }

    void check_datasets() {
        const std::int64_t most =
            job_.parallel.microbatch_tokens.value_or(std::numeric_limits<std::int64_t>::max());
        for (const DatasetId id : used_) checks_.dataset(id, datasets_[index(id)], most);
    }

    void check_ranks() {
        for (const AdapterJob& adapter : job_.adapters) checks_.rank(adapter);
    }

    void plan_adapters() {
        for (const AdapterJob& adapter : job_.adapters) {
            plan_.adapters.push_back(checks_.plan(adapter, data_of(adapter)));
        }
        plan_.adapter_capacity = static_cast<std::int32_t>(plan_.adapters.size()) + spare_adapters;
    }

    /// Most tokens that a global batch of the adapter can have.
    static std::int64_t largest_batch(const AdapterJob& adapter,
                                      const std::vector<SampleInfo>& samples) {
        std::vector<std::int64_t> lengths;
        lengths.reserve(samples.size());
        for (const SampleInfo& sample : samples) lengths.push_back(sample.tokens);
        const auto size = std::min<std::int64_t>(adapter.global_batch_size, std::ssize(lengths));
        std::partial_sort(lengths.begin(), lengths.begin() + size, lengths.end(), std::greater<>());
        return std::accumulate(lengths.begin(), lengths.begin() + size, std::int64_t{0});
    }

    std::int64_t longest_sample() const {
        std::int64_t longest = 0;
        for (const DatasetId id : used_) {
            const DatasetInfo& info = datasets_[index(id)];
            for (const SampleInfo& s : info.train)
                longest = std::max<std::int64_t>(longest, s.tokens);
            for (const SampleInfo& s : info.eval)
                longest = std::max<std::int64_t>(longest, s.tokens);
        }
        return longest;
    }

    void find_sample_bounds() {
        SampleBounds& bounds = plan_.samples;
        bounds.shortest = std::numeric_limits<std::int64_t>::max();
        for (const DatasetId id : used_) widen(bounds, datasets_[index(id)]);
        bounds.per_round = samples_per_round(job_, plan_);
    }

    /// Tokens of the largest round: a larger microbatch cannot be filled.
    std::int64_t largest_round() const {
        std::int64_t tokens = 0;
        for (const AdapterJob& adapter : job_.adapters) {
            tokens += largest_batch(adapter, data_of(adapter).train);
        }
        return tokens;
    }

    void keep_sizes(const ReplicaPlan& former) {
        if (former.stages.size() == static_cast<std::size_t>(stages_wanted())) {
            former_depth_ = former.max_in_flight;
            former_stages_ = former.stages;
        }
        if (!job_.parallel.microbatch_tokens && former.microbatch_tokens >= longest_sample_) {
            sized_job_.parallel.microbatch_tokens = former.microbatch_tokens;
        }
        if (job_.parallel.recompute == Recompute::automatic) {
            sized_job_.parallel.recompute = former.recompute;
        }
    }

    void admit_first() {
        if (admit_fitting()) return;
        if (admit_on_former_stages()) return;
        sized_job_.parallel = job_.parallel;
        if (!admit_fitting()) split_by_memory();
    }

    /// The last resort: the split that costs least does not fit even beside one adapter.
    void split_by_memory() {
        const std::int64_t tokens = job_.parallel.microbatch_tokens.value_or(longest_sample_);
        for (const Recompute recompute : {Recompute::layer, Recompute::none}) {
            if (!may_use(job_, recompute)) continue;
            const bool admitted = admit_most([&] {
                place_stages(recompute == Recompute::layer);
                std::vector<StagePlan> stages = fit_layers(job_, view(), tokens, recompute);
                if (!stages.empty()) replica().stages = std::move(stages);
                choose_microbatch_size();
            });
            if (admitted) return;
        }
    }

    bool admit_fitting() {
        return admit_most([&] {
            place_stages(job_.parallel.recompute == Recompute::layer);
            choose_microbatches();
        });
    }

    bool admit_on_former_stages() {
        if (former_stages_.empty()) return false;
        return admit_most([&] {
            replica().stages = former_stages_;
            choose_microbatch_size();
        });
    }

    /// All that may train at once, or when they do not fit as many of the first as do: if possible
    /// beside microbatches of a fair size. `lay_out`: places the stages and chooses the
    /// microbatches for them. False when not even one fits.
    bool admit_most(const std::function<void()>& lay_out) {
        std::vector<AdapterId> all =
            admission_order(job_, std::vector<AdapterClaim>(job_.adapters.size()));
        all.resize(std::min(all.size(), most_admitted(job_)));
        for (const bool with_fair_size : {true, false}) {
            for (std::size_t count = all.size(); count > 0; --count) {
                plan_.first_admitted.assign(all.begin(),
                                            all.begin() + static_cast<std::ptrdiff_t>(count));
                lay_out();
                const bool fair = count == all.size() || !with_fair_size || has_fair_size();
                const std::int64_t tokens = replica().microbatch_tokens;
                if (fair && fits_memory(job_, view(), tokens, replica().recompute)) return true;
            }
        }
        return false;
    }

    /// Where sizes are free. By the costs built in: measured ones differ from time to time. What
    /// does not fit is left to plan_memory.
    void search_sizes() {
        if (sized_job_.parallel.microbatch_tokens) return;
        if (!fits_memory(job_, view(), replica().microbatch_tokens, replica().recompute)) return;
        plan_.trials = search_layout(job_, plan_, datasets_, built_in_,
                                     std::min(usual_tokens(), largest_round_), longest_sample_);
        if (plan_.trials.empty()) return;
        const LayoutTrial& best = plan_.trials.front();
        replica().microbatch_tokens = best.microbatch_tokens;
        plan_.first_admitted =
            admission_order(job_, std::vector<AdapterClaim>(job_.adapters.size()));
        plan_.first_admitted.resize(static_cast<std::size_t>(best.adapters));
    }

    bool has_fair_size() const {
        return sized_job_.parallel.microbatch_tokens ||
               replica().microbatch_tokens >=
                   std::min(usual_tokens(), largest_round_) / crowded_share;
    }

    /// Recomputation makes layers cost more, so they are split anew when it turns out necessary.
    void choose_microbatches() {
        plan_.bytes_per_rank = cluster_.bytes_per_rank;
        choose_microbatch_size();
        if (job_.parallel.recompute != Recompute::automatic) return;
        if (replica().recompute != Recompute::layer) return;
        place_stages(true);
        choose_microbatch_size();
    }

    void find_fitting_tokens() {
        if (plan_.bytes_per_rank == 0) return;
        plan_.fitting.none = largest_fitting_tokens(job_, view(), Recompute::none, longest_sample_);
        plan_.fitting.layer =
            largest_fitting_tokens(job_, view(), Recompute::layer, longest_sample_);
    }

    void choose_microbatch_size() {
        find_fitting_tokens();
        const MicrobatchChoice choice = choose_microbatch(
            sized_job_, view(), std::min(usual_tokens(), largest_round_), longest_sample_);
        replica().microbatch_tokens = choice.tokens;
        replica().recompute = choice.recompute;
    }

    /// Most adapters in a microbatch of training.
    std::size_t most_segments() const {
        return job_.schedule.policy == SchedulePolicy::mlora ? 1 : most_admitted(job_);
    }

    void choose_lora_columns() {
        std::vector<std::int32_t> ranks;
        for (const AdapterJob& adapter : job_.adapters) ranks.push_back(adapter.r);
        std::sort(ranks.begin(), ranks.end(), std::greater<>());
        const auto columns = [&] {
            return padded_columns(std::accumulate(ranks.begin(), ranks.end(), 0));
        };
        const std::int32_t compact = padded_columns(ranks.front());
        const std::int32_t widest = widest_pad(plan_.backend);
        if (columns() > free_columns) ranks.resize(std::min(ranks.size(), most_segments()));
        replica().pad_columns = compact <= widest ? std::min(columns(), widest) : 0;
        replica().saved_columns = std::max(replica().pad_columns, compact);
    }

    void plan_memory() {
        for (std::size_t s = 0; s < replica().stages.size(); ++s) {
            plan_.memory.push_back(stage_memory(job_, view(), s));
        }
        if (cluster_.bytes_per_rank == 0) return;
        const LayerSplit by_this = [&](std::int32_t stages, Recompute recompute) {
            return split(stages, recompute);
        };
        std::string hint;
        for (std::size_t s = 0; s < plan_.memory.size(); ++s) {
            const MemoryPlan& memory = plan_.memory[s];
            if (memory.total() <= cluster_.bytes_per_rank) continue;
            if (hint.empty()) hint = memory_hint(job_, view(), longest_sample_, by_this);
            problems_.add(
                where("parallel"),
                cat("rank ", replica().stages[s].rank, " needs ", human_bytes(memory.total()),
                    " (weights ", human_bytes(memory.weights), ", adapters ",
                    human_bytes(memory.adapters), ", activations ", human_bytes(memory.activations),
                    ", workspace ", human_bytes(memory.workspace), ", engine ",
                    human_bytes(memory.engine), "), but has ", human_bytes(cluster_.bytes_per_rank),
                    ", ", human_bytes(memory.total() - cluster_.bytes_per_rank), " too little"),
                hint);
        }
    }

    const Job& job_;
    Job sized_job_;                  ///< with the sizes of the former plan, while these fit
    std::int32_t former_depth_ = 0;  ///< of the former plan, when that has as many stages
    std::vector<StagePlan> former_stages_;
    AdapterLoads usual_loads_;
    std::int64_t longest_sample_ = 0;
    std::int64_t largest_round_ = 0;
    std::span<const DatasetInfo> datasets_;
    const Cluster& cluster_;
    std::set<DatasetId> used_;
    Problems problems_;
    CostModel built_in_;
    AdapterChecks checks_;
    Plan plan_;
};

}  // namespace

Plan make_plan(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
               const Cluster& cluster, const Plan* former) {
    LORATRAIN_CHECK(datasets.size() == job.datasets.size(), "one DatasetInfo per dataset");
    LORATRAIN_CHECK(!job.adapters.empty(), "a job has at least one adapter");
    LORATRAIN_CHECK(cluster.backend != BackendKind::automatic, "the backend is chosen before");
    return Planner(job, model, datasets, cluster, former).run();
}

}  // namespace loratrain
