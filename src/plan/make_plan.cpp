#include "plan/make_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "plan/admission.h"
#include "plan/choose_split.h"
#include "plan/cost_model.h"
#include "plan/fit_memory.h"
#include "plan/memory_model.h"

namespace loratrain {

namespace {

/// Enough rows for the matrix products to run at full speed.
constexpr std::int64_t usual_microbatch_tokens_cpu = 2048;
constexpr std::int64_t usual_microbatch_tokens_cuda = 8192;
constexpr std::int32_t pad_granule = 16;
/// Of the usual microbatch, below which fewer adapters at once are the better choice.
constexpr std::int64_t crowded_share = 8;

/// Sum of ranks in a microbatch beyond which segments are faster than the augmented matrix.
std::int32_t widest_pad(BackendKind backend) {
    return backend == BackendKind::cuda ? 512 : 128;
}

std::int32_t round_up_to_granule(std::int32_t columns) {
    return (columns + pad_granule - 1) / pad_granule * pad_granule;
}

std::string_view device_of(const Cluster& cluster) {
    if (!cluster.device.empty()) return cluster.device;
    return cluster.backend == BackendKind::cuda ? "h100" : "cpu";
}

class Planner {
  public:
    Planner(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
            const Cluster& cluster)
        : job_(job), datasets_(datasets), cluster_(cluster) {
        plan_.model = model;
        plan_.backend = cluster.backend;
        plan_.precision = job.model.precision;
        if (plan_.precision == Precision::automatic) {
            plan_.precision =
                plan_.backend == BackendKind::cuda ? Precision::bf16 : Precision::fp32;
        }
        for (const AdapterJob& adapter : job.adapters) used_.insert(adapter.dataset);
    }

    Plan run() {
        choose_stages();
        check_datasets();
        check_ranks();
        problems_.throw_if_any();
        built_in_ = built_in_costs(plan_.model, plan_.precision, device_of(cluster_));
        plan_.costs = cluster_.costs.value_or(built_in_);
        place_stages(job_.parallel.recompute == Recompute::layer);
        plan_adapters();
        find_sample_bounds();
        choose_lora_columns();
        problems_.throw_if_any();
        admit_first();
        plan_memory();
        problems_.throw_if_any();
        return std::move(plan_);
    }

  private:
    std::string where(std::string_view key) const { return cat(job_.path, ": ", key); }
    const DatasetInfo& data_of(const AdapterJob& adapter) const {
        return datasets_[index(adapter.dataset)];
    }

    void choose_stages() {
        const bool chosen = job_.parallel.pipeline_stages.has_value();
        const auto layers = static_cast<int>(plan_.model.layers);
        const int stages = job_.parallel.pipeline_stages.value_or(cluster_.ranks);
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
        plan_.max_in_flight = std::clamp(stages, 1, layers);
    }

    void place_stages(bool recompute) {
        plan_.replica.stages = choose_split(
            static_cast<std::int32_t>(plan_.model.layers), plan_.max_in_flight, built_in_,
            plan_.costs, usual_load(), recompute ? Recompute::layer : Recompute::none);
    }

    std::int64_t usual_tokens() const {
        return plan_.backend == BackendKind::cuda ? usual_microbatch_tokens_cuda
                                                  : usual_microbatch_tokens_cpu;
    }

    /// A microbatch of usual size with the mix of samples that all adapters' steps have together.
    MicrobatchLoad usual_load() const {
        double tokens = 0.0;
        double squares = 0.0;
        double targets = 0.0;
        for (const AdapterJob& adapter : job_.adapters) {
            const std::vector<SampleInfo>& samples = data_of(adapter).train;
            const auto count = static_cast<double>(samples.size());
            const double share = std::min<double>(adapter.global_batch_size, count) / count;
            for (const SampleInfo& sample : samples) {
                tokens += share * sample.tokens;
                squares += share * sample.tokens * static_cast<double>(sample.tokens);
                targets += share * sample.targets;
            }
        }
        const std::int64_t rows = job_.parallel.microbatch_tokens.value_or(usual_tokens());
        const double scale = static_cast<double>(rows) / tokens;
        return {rows, squares * scale, std::llround(targets * scale)};
    }

    void check_datasets() {
        for (const DatasetId id : used_) {
            const DatasetJob& dataset = job_.dataset(id);
            const std::string key = cat("datasets.", dataset.name);
            const DatasetInfo& info = datasets_[index(id)];
            check_samples(key + ".path", dataset.path, info.train);
            if (!dataset.eval_path.empty()) {
                check_samples(key + ".eval_path", dataset.eval_path, info.eval);
            }
        }
    }

    void check_samples(const std::string& key, const std::string& path,
                       const std::vector<SampleInfo>& samples) {
        const bool any_target = std::any_of(samples.begin(), samples.end(),
                                            [](const SampleInfo& s) { return s.targets > 0; });
        if (samples.empty()) {
            problems_.add(where(key), cat(path, " has no samples"),
                          "an empty file, or over_length: drop dropped them all");
        } else if (!any_target) {
            problems_.add(where(key), cat(path, " has no label to train on"),
                          "all labels are -100, or every sample has one token");
        }
        const std::int64_t most =
            job_.parallel.microbatch_tokens.value_or(std::numeric_limits<std::int64_t>::max());
        check_lengths(key, samples, most);
    }

    void check_lengths(const std::string& key, const std::vector<SampleInfo>& samples,
                       std::int64_t most) {
        const auto longest = std::max_element(
            samples.begin(), samples.end(),
            [](const SampleInfo& a, const SampleInfo& b) { return a.tokens < b.tokens; });
        if (longest == samples.end() || longest->tokens <= most) return;
        const auto too_long = std::count_if(samples.begin(), samples.end(),
                                            [&](const SampleInfo& s) { return s.tokens > most; });
        problems_.add(
            where(key),
            cat(too_long, too_long == 1 ? " sample has" : " samples have",
                " more tokens than parallel.microbatch_tokens ", most, "; the longest is ",
                longest - samples.begin(), " with ", longest->tokens),
            cat("use microbatch_tokens: ", longest->tokens,
                " or auto, or a smaller max_seq_len with over_length: truncate"));
    }

    void check_ranks() {
        for (const AdapterJob& adapter : job_.adapters) {
            std::vector<std::string> too_small;
            std::int64_t most = std::numeric_limits<std::int64_t>::max();
            for (int i = 0; i < linear_count; ++i) {
                const auto linear = static_cast<Linear>(i);
                const LinearShape shape = linear_shape(plan_.model, linear);
                const std::int64_t side = std::min(shape.in, shape.out);
                if (!adapter.targets_linear(linear) || adapter.r <= side) continue;
                too_small.push_back(cat(module_name(linear), " [", shape.out, ", ", shape.in, "]"));
                most = std::min(most, side);
            }
            if (too_small.empty()) continue;
            problems_.add(where(cat("adapters.", adapter.name, ".r")),
                          cat("rank ", adapter.r, " is larger than the smaller side of ",
                              join(too_small, ", ")),
                          cat("use at most ", most));
        }
    }

    void plan_adapters() {
        for (const AdapterJob& adapter : job_.adapters) {
            const std::vector<SampleInfo>& samples = data_of(adapter).train;
            AdapterPlan result;
            result.name = adapter.name;
            result.samples = std::ssize(samples);
            const std::int64_t batch = adapter.global_batch_size;
            result.steps_per_epoch =
                static_cast<std::int32_t>((result.samples + batch - 1) / batch);
            result.total_steps = total_steps(adapter, result.steps_per_epoch);
            plan_.adapters.push_back(result);
        }
        plan_.adapter_capacity = static_cast<std::int32_t>(plan_.adapters.size()) + spare_adapters;
    }

    std::int32_t total_steps(const AdapterJob& adapter, std::int32_t steps_per_epoch) {
        const double steps = adapter.max_steps
                                 ? static_cast<double>(*adapter.max_steps)
                                 : std::ceil(adapter.num_train_epochs * steps_per_epoch);
        const bool possible = steps >= 1.0 && steps <= std::numeric_limits<std::int32_t>::max();
        if (!possible) {
            problems_.add(where(cat("adapters.", adapter.name,
                                    adapter.max_steps ? ".max_steps" : ".num_train_epochs")),
                          cat("leads to ", steps, " optimizer steps"));
        }
        return possible ? static_cast<std::int32_t>(steps) : 1;
    }

    static std::int64_t tokens_of(const std::vector<SampleInfo>& samples) {
        return std::accumulate(
            samples.begin(), samples.end(), std::int64_t{0},
            [](std::int64_t sum, const SampleInfo& s) { return sum + s.tokens; });
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
        for (const DatasetId id : used_) {
            for (const SampleInfo& s : datasets_[index(id)].train) {
                bounds.longest = std::max<std::int64_t>(bounds.longest, s.tokens);
                bounds.shortest = std::min<std::int64_t>(bounds.shortest, s.tokens);
            }
        }
        for (std::size_t a = 0; a < plan_.adapters.size(); ++a) {
            bounds.per_round += std::min<std::int64_t>(job_.adapters[a].global_batch_size,
                                                       plan_.adapters[a].samples);
        }
    }

    /// Tokens of the largest round: a larger microbatch cannot be filled.
    std::int64_t largest_round() const {
        std::int64_t tokens = 0;
        for (const AdapterJob& adapter : job_.adapters) {
            tokens += largest_batch(adapter, data_of(adapter).train);
        }
        return tokens;
    }

    /// All that may train at once, or when they do not fit as many of the first as do: if possible
    /// beside microbatches of a fair size.
    void admit_first() {
        std::vector<AdapterId> all =
            admission_order(job_, std::vector<AdapterClaim>(job_.adapters.size()));
        all.resize(std::min(all.size(), most_admitted(job_)));
        for (const bool with_fair_size : {true, false}) {
            for (std::size_t count = all.size(); count > 0; --count) {
                plan_.first_admitted.assign(all.begin(),
                                            all.begin() + static_cast<std::ptrdiff_t>(count));
                place_stages(job_.parallel.recompute == Recompute::layer);
                choose_microbatches();
                const bool fair = count == all.size() || !with_fair_size || has_fair_size();
                const std::int64_t tokens = plan_.microbatch_tokens;
                if (fair && fits_memory(job_, plan_, tokens, plan_.recompute)) return;
            }
        }
    }

    bool has_fair_size() const {
        return job_.parallel.microbatch_tokens ||
               plan_.microbatch_tokens >= std::min(usual_tokens(), largest_round()) / crowded_share;
    }

    /// Recomputation makes layers cost more, so they are split anew when it turns out necessary.
    void choose_microbatches() {
        plan_.bytes_per_rank = cluster_.bytes_per_rank;
        choose_microbatch_size();
        if (job_.parallel.recompute != Recompute::automatic) return;
        if (plan_.recompute != Recompute::layer) return;
        place_stages(true);
        choose_microbatch_size();
    }

    void choose_microbatch_size() {
        const std::int64_t longest = longest_sample();
        if (plan_.bytes_per_rank > 0) {
            plan_.fitting.none = largest_fitting_tokens(job_, plan_, Recompute::none, longest);
            plan_.fitting.layer = largest_fitting_tokens(job_, plan_, Recompute::layer, longest);
        }
        const MicrobatchChoice choice =
            choose_microbatch(job_, plan_, std::min(usual_tokens(), largest_round()), longest);
        plan_.microbatch_tokens = choice.tokens;
        plan_.recompute = choice.recompute;
    }

    /// No microbatch has a larger sum of ranks than all adapters: one segment per adapter.
    void choose_lora_columns() {
        std::int32_t ranks = 0;
        std::int32_t largest_rank = 0;
        for (const AdapterJob& adapter : job_.adapters) {
            ranks += adapter.r;
            largest_rank = std::max(largest_rank, adapter.r);
        }
        const std::int32_t pad = round_up_to_granule(ranks);
        const std::int32_t widest = widest_pad(plan_.backend);
        const std::int32_t compact = round_up_to_granule(largest_rank);
        plan_.pad_columns = compact <= widest ? std::min(pad, widest) : 0;
        plan_.saved_columns = std::max(plan_.pad_columns, compact);
    }

    void plan_memory() {
        for (std::size_t s = 0; s < plan_.replica.stages.size(); ++s) {
            plan_.memory.push_back(stage_memory(job_, plan_, s));
        }
        if (cluster_.bytes_per_rank == 0) return;
        for (std::size_t s = 0; s < plan_.memory.size(); ++s) {
            const MemoryPlan& memory = plan_.memory[s];
            if (memory.total() <= cluster_.bytes_per_rank) continue;
            problems_.add(
                where("parallel"),
                cat("rank ", plan_.replica.stages[s].rank, " needs ", human_bytes(memory.total()),
                    " (weights ", human_bytes(memory.weights), ", adapters ",
                    human_bytes(memory.adapters), ", activations ", human_bytes(memory.activations),
                    ", workspace ", human_bytes(memory.workspace), ", engine ",
                    human_bytes(memory.engine), "), but has ", human_bytes(cluster_.bytes_per_rank),
                    ", ", human_bytes(memory.total() - cluster_.bytes_per_rank), " too little"),
                memory_hint(job_, plan_, longest_sample()));
        }
    }

    const Job& job_;
    std::span<const DatasetInfo> datasets_;
    const Cluster& cluster_;
    std::set<DatasetId> used_;
    Problems problems_;
    CostModel built_in_;
    Plan plan_;
};

}  // namespace

Plan make_plan(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
               const Cluster& cluster) {
    LORATRAIN_CHECK(datasets.size() == job.datasets.size(), "one DatasetInfo per dataset");
    LORATRAIN_CHECK(!job.adapters.empty(), "a job has at least one adapter");
    LORATRAIN_CHECK(cluster.backend != BackendKind::automatic, "the backend is chosen before");
    return Planner(job, model, datasets, cluster).run();
}

}  // namespace loratrain
