#include "measure/profile_costs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "base/host_pages.h"
#include "base/rng.h"
#include "base/system.h"
#include "data/loader.h"
#include "measure/lone_lane.h"
#include "measure/median.h"
#include "measure/profile_host.h"
#include "measure/profile_loads.h"
#include "measure/profile_subject.h"
#include "model/layer_stream.h"
#include "model/stage.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/fit_costs.h"
#include "plan/memory/holders.h"
#include "plan/memory/memory_model.h"
#include "plan/schedule/lora_columns.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

using Clock = std::chrono::steady_clock;

/// What a profile may take.
struct Effort {
    double wall_seconds;    ///< in all, until it leaves what is left as it is built in
    double budget_seconds;  ///< on its device, beside what chooses algorithms
    double hot_seconds;     ///< until a GPU's clock has come down to what it can sustain
    std::size_t shares;     ///< of the largest load, that many sizes
    std::size_t labels;     ///< of the head, that many numbers of targets
};
constexpr double unlimited = std::numeric_limits<double>::infinity();
constexpr Effort of_processor{unlimited, 0.4, 0.0, 4, 3};
/// Its launches take longer than its work, which leaves a GPU cool; to choose algorithms for one
/// more size takes longer than all that is measured, so what sizes differ in is as built in.
constexpr Effort of_small_model{unlimited, 0.25, 0.05, 1, 1};
constexpr Effort of_large_model{unlimited, 2.0, 1.5, 6, 3};
constexpr double small_model = 1e9;  ///< parameters in matrices

constexpr double limit_seconds = 15.0;
constexpr double prepare_seconds = 15.0;      // of layers, and likewise of the head
constexpr std::int64_t prepared_sample = 64;  // for which no graph of attention is built
constexpr int repeats = 3;
/// Shares of the largest load; of what is to be quick, the first few.
constexpr std::array<double, of_large_model.shares> shares{1.0, 0.25, 0.5, 0.75, 0.375, 0.625};
/// Down to what adapters with small batches have alone, as workers train them.
constexpr std::array<double, of_processor.shares> processor_shares{1.0, 0.25, 0.125, 0.5};
constexpr std::int64_t processor_short_sample = 64;
/// The largest load on a processor is at most so many rows, two of the longest samples, or so much
/// work of the base's products, whichever is the most.
constexpr std::int64_t processor_rows = 512;
constexpr double processor_work = 1e10;  // FLOP of a forward and a backward
/// What sizes on a GPU are short of the shares: they fill the tiles of GEMMs as badly as others do.
constexpr std::array<std::int64_t, shares.size()> shortfalls{64, 16, 112, 32, 96, 48};
constexpr double weak_prior = 0.02;
constexpr std::size_t enough_loads = 4;      // to tell three coefficients
constexpr std::size_t enough_segmented = 6;  // and four
constexpr std::size_t enough_labels = 2;     // to tell two
constexpr std::size_t enough_to_keep = 2;
constexpr double hardly_longer = 1.05;

class CostProfile {
  public:
    CostProfile(const Job& job, const Plan& plan, Backend& backend,
                std::span<const StartShape> start = {}, double small_seconds = unlimited)
        : job_(profile_job(job, plan)),
          plan_(profile_plan(job_, plan)),
          view_(only_replica(plan_)),
          sums_(lane_sums(plan.model, plan.compute, plan.device, view_.replica.tensor)),
          prior_(plan.costs),
          streams_(may_stream(only_replica(plan).replica) && !has_holders(plan)),
          backend_(backend),
          lane_(view_.replica.tensor, backend),
          sharers_(lanes_per_key_value_head(plan.model, view_.replica.tensor), backend),
          clock_(backend.make_clock()),
          start_(on_gpu_ ? start : std::span<const StartShape>{}) {
        add_to_layers(sums_, -1.0, prior_);
        if (!on_gpu_) return;
        const bool small = is_small(plan.model);
        effort_ = small ? of_small_model : of_large_model;
        if (small) effort_.wall_seconds = small_seconds;
        host_.emplace(job_, view_, loads().front(), backend_, profiled_layers);
    }

    ProfiledCosts run() {
        const auto weights = synthetic_base_weights(plan_.model, 1);
        CostModel costs = prior_;
        costs.source = "measured on " + backend_.description();
        profile_layers(*weights, costs);
        profile_head(*weights, costs);
        if (streams_) costs.layer_transfer = profile_transfer();
        if (host_) costs.host = profile_host(*weights);
        add_to_layers(sums_, 1.0, costs);
        return {costs, largest_seconds_, std::min(prepared_layers_, prepared_targets_)};
    }

    std::size_t prepare() {
        if (!host_) return 0;
        const auto weights = synthetic_base_weights(plan_.model, 1);
        {
            Layers layers(*this, *weights);
            prepare_layers(layers);
        }
        Stage head = stage(head_stage, *weights);
        prepare_head(head, loads().front());
        return std::min(prepared_layers_, prepared_targets_);
    }

    double probe() {
        const auto weights = synthetic_base_weights(plan_.model, 1);
        Layers layers(*this, *weights);
        const auto [forward, backward] = time_layers(layers, loads().front());
        return forward + backward;
    }

  private:
    struct Layers {
        Layers(CostProfile& of, const WeightSource& weights)
            : stage(of.stage(layer_stage, weights)),
              gradient_in(of.backend_.allocate(boundary_bytes(of.view_), "profile")),
              gradient_out(of.backend_.allocate(boundary_bytes(of.view_), "profile")) {}
        Stage stage;
        Buffer gradient_in;
        Buffer gradient_out;
    };

    Stage stage(std::size_t number, const WeightSource& weights) {
        return {job_, view_, number, weights, backend_, objective_of, {&lane_, &sharers_}};
    }
    bool late() const { return spent_seconds_ > effort_.budget_seconds; }
    bool too_late() const { return spent_seconds_ > limit_seconds || out_of_time(); }
    bool out_of_time() const { return seconds_since(begin_) > effort_.wall_seconds; }
    /// Whether `count` loads, of which so many were wanted, must do.
    bool must_do(std::size_t count, std::size_t wanted) const {
        return count > 0 && (too_late() || (late() && count >= wanted));
    }
    /// Whether there is time for one more after `times`; the first of them only warms up.
    bool may_repeat(int times) const { return times == 0 || (times == 1 ? !too_late() : !late()); }
    std::int64_t largest_load() const {
        const std::int64_t tokens = view_.replica.microbatch_tokens;
        if (on_gpu_) return tokens;
        const std::int64_t longest = longest_profiled(plan_);
        const std::int64_t head = plan_.model.vocab_size * plan_.model.hidden_size;
        const double of_row = 4.0 * static_cast<double>(matmul_parameters(plan_.model) - head);
        const auto worked = static_cast<std::int64_t>(processor_work / of_row);
        return std::min(tokens, std::max({processor_rows, 2 * longest, worked}));
    }

    /// Of several sizes, each in samples of mixed lengths up to the job's longest and in short
    /// ones; on a processor the short ones of every other size of one adapter, the others of all,
    /// as most are that train: their factors cost more for every token, which the form leaves out.
    std::vector<Microbatch> loads() const {
        const auto largest = static_cast<double>(largest_load());
        std::vector<Microbatch> result;
        for (std::size_t i = 0; i < effort_.shares; ++i) {
            const auto whole =
                std::max<std::int64_t>(1, static_cast<std::int64_t>(share(i) * largest));
            const std::int64_t tokens = whole - (on_gpu_ ? std::min(shortfalls[i], whole / 16) : 0);
            const std::int64_t longest = std::min(tokens, longest_profiled(plan_));
            const std::int64_t shortest =
                std::clamp<std::int64_t>(std::min(longest, usual_longest_sample) / 8, 1,
                                         on_gpu_ ? longest : processor_short_sample);
            for (const std::int64_t from : {longest, shortest}) {
                const bool all = on_gpu_ || result.size() % 4 != 1;
                result.push_back(microbatch_of(sample_lengths(tokens, from, shortest),
                                               all ? job_.adapters.size() : 1));
                result.back().columns = lora_columns(job_, view_, result.back().segments);
            }
        }
        return result;
    }

    double share(std::size_t i) const { return on_gpu_ ? shares[i] : processor_shares[i]; }

    /// Of one layer's weights from host memory.
    double profile_transfer() {
        const StreamedLayer layout = streamed_layer(view_);
        const HostPages host(host_block_bytes(layout));
        const Buffer buffer = backend_.allocate(layout.buffer_bytes, "profile");
        const std::unique_ptr<HostCopies> link = backend_.make_host_copies(1);
        link->pin(host.data(), host.bytes());
        const auto copies = layer_copies(layout, buffer.as<char>(), host.data());
        return repeat<1>([&](std::size_t) {
            link->load(0, copies);
            link->await(0);
        })[0];
    }

    HostCosts profile_host(const WeightSource& weights) {
        if (!out_of_time()) {
            Stage bare = stage(bare_stage, weights);
            host_->profile_bare(bare);
        }
        return host_->costs(prior_.host);
    }

    void profile_layers(const WeightSource& weights, CostModel& costs) {
        Layers layers(*this, weights);
        std::vector<CostObservation> forward;
        std::vector<CostObservation> backward;
        std::vector<Microbatch> microbatches = loads();
        warm_up(layers, microbatches);
        for (const Microbatch& microbatch : microbatches) {
            if (must_do(forward.size(), on_gpu_ ? enough_loads : enough_segmented)) break;
            const AdapterLoads load = loads_of(microbatch, AttentionSpan(view_.plan.model));
            const auto rows = static_cast<double>(load.total.tokens);
            // A GPU's kernels go by rows; for its host segments are told apart (profile_host.h).
            const double segments = on_gpu_ ? 0.0 : static_cast<double>(load.segments());
            const auto [f, b] = time_layers(layers, microbatch);
            if (forward.empty()) largest_seconds_ = f + b;
            forward.push_back({rows, load.total.squares, f / profiled_layers, segments});
            backward.push_back({rows, load.total.squares, b / profiled_layers, segments});
        }
        if (host_) {
            leave_out_held_up(host_->profile_layers(layers.stage), forward, backward);
        }
        costs.layer_forward = fit(forward, prior_.layer_forward);
        costs.layer_backward = fit(backward, prior_.layer_backward);
        profile_steps(layers.stage, costs);
        prepare_layers(layers);
    }

    /// What took no longer than the host needs to queue it tells nothing of the device, where
    /// something else does.
    static void leave_out_held_up(double queue_seconds, std::vector<CostObservation>& forward,
                                  std::vector<CostObservation>& backward) {
        const double limit = hardly_longer * queue_seconds / profiled_layers;
        std::vector<CostObservation> kept_forward;
        std::vector<CostObservation> kept_backward;
        for (std::size_t i = 0; i < forward.size(); ++i) {
            if (forward[i].seconds + backward[i].seconds <= limit) continue;
            kept_forward.push_back(forward[i]);
            kept_backward.push_back(backward[i]);
        }
        if (kept_forward.size() < enough_to_keep) return;
        forward = std::move(kept_forward);
        backward = std::move(kept_backward);
    }

    /// Calls work(run), where run(0) is a forward of the microbatch and run(1) a backward: with two
    /// slots of that before, as in a pipeline, where activations have left a processor's caches.
    template <class Work>
    auto with_layers(Layers& layers, const Microbatch& microbatch, const Work& work) {
        const PackedBatch packed = pack_layout(microbatch);
        const MicrobatchRows rows{{}, {}, packed.positions, packed.sample_ids, packed.offsets};
        const std::int64_t tokens = microbatch.tokens();
        const LossTerms terms{std::vector<double>(microbatch.segments.size(), 1.0), false};
        const TensorView d_output = boundary(layers.gradient_in, tokens);
        const TensorView d_input = boundary(layers.gradient_out, tokens);
        Stage& stage = layers.stage;
        const std::int32_t slots = stage.slots();
        for (std::int32_t slot = 0; slot < slots; ++slot) {
            backend_.fill_random(stage.input(slot, tokens), {1, 0.0F, 1.0F});
        }
        backend_.fill_random(d_output, {2, 0.0F, 1e-3F});
        std::int32_t next = 0;
        const auto forward = [&] {
            stage.forward(next, microbatch, rows, terms);
            next = (next + 1) % slots;
        };
        for (std::int32_t before = 1; before < slots; ++before) forward();
        return work([&](std::size_t part) {
            if (part == 0) forward();
            if (part == 1) stage.backward(next, d_output, d_input);
        });
    }

    std::array<double, 2> time_layers(Layers& layers, const Microbatch& microbatch) {
        return with_layers(layers, microbatch, [&](const auto& run) { return repeat<2>(run); });
    }

    /// Chooses the algorithms for all loads, then computes until the GPU is as slow as in training.
    /// Loads for which no time is left leave.
    void warm_up(Layers& layers, std::vector<Microbatch>& microbatches) {
        if (!host_) return;
        std::size_t met = 0;
        for (; met < microbatches.size() && (met == 0 || !out_of_time()); ++met) {
            const std::int64_t before = backend_.first_uses().gemms;
            const auto seconds = with_layers(layers, microbatches[met], [&](const auto& run) {
                return seconds_at_first([&] {
                    run(0);
                    run(1);
                });
            });
            host_->meet(microbatches[met], seconds, backend_.first_uses().gemms > before);
        }
        microbatches.resize(met);
        with_layers(layers, microbatches.front(), [&](const auto& run) { heat<2>(run); });
    }

    /// What work takes for the first time beyond a second one, where that is of interest.
    template <class Work>
    std::optional<double> seconds_at_first(const Work& work) {
        const double first = seconds_alone(work);
        if (effort_.shares == of_small_model.shares) return std::nullopt;
        return first - seconds_alone(work);
    }

    template <class Work>
    double seconds_alone(const Work& work) {
        backend_.synchronize();
        const Clock::time_point start = Clock::now();
        work();
        backend_.synchronize();
        return seconds_since(start);
    }

    /// Has algorithms chosen for what training begins with.
    void prepare_layers(Layers& layers) {
        const Clock::time_point begin = Clock::now();
        for (const StartShape& shape : start_) {
            if (seconds_since(begin) > prepare_seconds) return;
            const bool fits = shape.tokens <= view_.replica.microbatch_tokens &&
                              shape.width <= view_.replica.pad_columns;
            if (!fits) return;
            ++prepared_layers_;
            const bool rows = host_->prepares_rows(shape.tokens, shape.width);
            if (!rows && shape.lengths.empty()) continue;
            Microbatch microbatch =
                microbatch_of(shape.lengths.empty()
                                  ? sample_lengths(shape.tokens, prepared_sample, prepared_sample)
                                  : shape.lengths,
                              1);
            microbatch.columns.augmented = shape.width > 0;
            microbatch.columns.width = std::max(padded_columns(job_.adapters[0].largest_rank()),
                                                static_cast<std::int32_t>(shape.width));
            microbatch.columns.first = {0};
            with_layers(layers, microbatch, [&](const auto& run) {
                run(0);
                run(1);
            });
            backend_.synchronize();
        }
    }

    /// On a GPU, the parts again and again until it is hot.
    template <std::size_t parts, class Work>
    void heat(const Work& work) {
        if (!on_gpu_) return;
        const Clock::time_point start = Clock::now();
        while (seconds_since(start) < effort_.hot_seconds) {
            for (std::size_t part = 0; part < parts; ++part) work(part);
            backend_.synchronize();
        }
    }

    void profile_steps(Stage& stage, CostModel& costs) {
        std::vector<CostObservation> observations;
        for (std::size_t a = 0; a < job_.adapters.size() && (a == 0 || !out_of_time()); ++a) {
            const auto adapter = static_cast<AdapterId>(a);
            const auto times = repeat<1>([&](std::size_t) {
                stage.finish_batch(adapter, false);
                stage.step(adapter, 1e-4);
            });
            observations.push_back(
                {static_cast<double>(stage.bank().parameters(adapter)), 0.0, times[0]});
        }
        const CostLine line = fit(observations, {prior_.step_fixed, prior_.step_per_parameter, 0});
        costs.step_fixed = line.fixed;
        costs.step_per_parameter = line.per_token;
    }

    void profile_head(const WeightSource& weights, CostModel& costs) {
        if (out_of_time()) return;
        Stage stage = this->stage(head_stage, weights);
        std::vector<CostObservation> observations;
        const Microbatch microbatch = loads().front();
        const std::int64_t tokens = microbatch.tokens();
        const PackedBatch packed = pack_layout(microbatch);
        const LossTerms terms{
            std::vector<double>(microbatch.segments.size(), static_cast<double>(tokens)), false};
        backend_.fill_random(stage.input(0, tokens), {3, 0.0F, 1.0F});
        for (const std::int64_t labels : {tokens, (tokens + 3) / 4, (tokens + 1) / 2}) {
            if (observations.size() == effort_.labels) break;
            if (must_do(observations.size(), enough_labels)) break;
            const std::vector<std::int32_t> targets = random_targets(tokens, labels);
            const MicrobatchRows rows{
                {}, targets, packed.positions, packed.sample_ids, packed.offsets};
            const auto run = [&](std::size_t) { stage.forward(0, microbatch, rows, terms); };
            if (host_) {
                const std::int64_t before = backend_.first_uses().gemms;
                const auto seconds = seconds_at_first([&] { run(0); });
                host_->meet_targets(labels, seconds, backend_.first_uses().gemms > before);
            }
            if (observations.empty()) heat<1>(run);
            const auto times = repeat<1>(run);
            observations.push_back({static_cast<double>(labels), 0.0, times[0]});
        }
        costs.head = fit(observations, prior_.head);
        if (host_ && !out_of_time()) host_->profile_head(stage);
        prepare_head(stage, microbatch);
    }

    void prepare_head(Stage& stage, const Microbatch& microbatch) {
        const std::int64_t tokens = microbatch.tokens();
        const PackedBatch packed = pack_layout(microbatch);
        const LossTerms terms{
            std::vector<double>(microbatch.segments.size(), static_cast<double>(tokens)), false};
        const Clock::time_point begin = Clock::now();
        for (const StartShape& shape : start_) {
            if (seconds_since(begin) > prepare_seconds) return;
            ++prepared_targets_;
            const std::int64_t labels = std::min(shape.targets, tokens);
            if (labels == 0 || !host_->prepares_targets(labels)) continue;
            const std::vector<std::int32_t> targets = random_targets(tokens, labels);
            stage.forward(0, microbatch,
                          {{}, targets, packed.positions, packed.sample_ids, packed.offsets},
                          terms);
            backend_.synchronize();
        }
    }

    /// Every n-th row has a target.
    std::vector<std::int32_t> random_targets(std::int64_t rows, std::int64_t labels) const {
        std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), -100);
        const auto vocab = static_cast<std::uint64_t>(plan_.model.vocab_size);
        for (std::int64_t i = 0; i < labels; ++i) {
            targets[static_cast<std::size_t>(i * rows / labels)] =
                static_cast<std::int32_t>(uniform_int(4, static_cast<std::uint64_t>(i), vocab));
        }
        return targets;
    }

    /// Median seconds of the parts of a piece of work, after a first time that is not counted
    /// unless there is no time for a second. On a GPU the first time, in which algorithms are
    /// chosen, costs no budget: training needs them too.
    template <std::size_t parts, class Work>
    std::array<double, parts> repeat(const Work& work) {
        std::array<std::vector<double>, parts> seconds;
        for (int i = 0; i <= repeats && may_repeat(i); ++i) {
            if (i == 1) {
                for (auto& of_part : seconds) of_part.clear();
            }
            backend_.synchronize();
            clock_->mark();
            for (std::size_t part = 0; part < parts; ++part) {
                work(part);
                clock_->mark();
            }
            const std::vector<double> points = clock_->read();
            if (i > 0 || !on_gpu_) spent_seconds_ += points.back();
            for (std::size_t part = 0; part < parts; ++part) {
                seconds[part].push_back(points[part + 1] - points[part]);
            }
        }
        std::array<double, parts> result{};
        for (std::size_t part = 0; part < parts; ++part) result[part] = median(seconds[part]);
        return result;
    }

    static CostLine fit(const std::vector<CostObservation>& observations, const CostLine& prior) {
        if (observations.size() >= enough_loads) return *fit_cost_line(observations);
        CostFit scaled(prior, weak_prior);
        for (const CostObservation& observation : observations) scaled.add(observation);
        return scaled.refined();
    }

    TensorView boundary(const Buffer& buffer, std::int64_t tokens) const {
        return matrix(buffer.data(), backend_.compute_dtype(), tokens, plan_.model.hidden_size);
    }

    Job job_;
    Plan plan_;
    ReplicaView view_;
    CostLine sums_;    ///< over lanes, which are not measured
    CostModel prior_;  ///< without them
    bool streams_;     ///< layers do
    Backend& backend_;
    LoneLane lane_;
    LoneLane sharers_;
    std::unique_ptr<StreamClock> clock_;
    bool on_gpu_ = backend_.native_stream() != nullptr;
    Effort effort_ = of_processor;
    std::optional<HostProfile> host_;  ///< of a GPU
    Clock::time_point begin_ = Clock::now();
    double spent_seconds_ = 0.0;
    double largest_seconds_ = 0.0;
    std::span<const StartShape> start_;
    std::size_t prepared_layers_ = 0;
    std::size_t prepared_targets_ = 0;
};

}  // namespace

bool is_small(const ModelSpec& model) {
    return static_cast<double>(matmul_parameters(model)) < small_model;
}

ProfiledCosts profile_costs(const Job& job, const Plan& plan, Backend& backend,
                            std::span<const StartShape> start, double small_seconds) {
    return CostProfile(job, plan, backend, start, small_seconds).run();
}

std::size_t prepare_shapes(const Job& job, const Plan& plan, Backend& backend,
                           std::span<const StartShape> start) {
    return CostProfile(job, plan, backend, start).prepare();
}

double probe_seconds(const Job& job, const Plan& plan, Backend& backend) {
    return CostProfile(job, plan, backend).probe();
}

}  // namespace loratrain
