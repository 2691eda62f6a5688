#include "measure/profile_costs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/rank_group.h"
#include "base/pages.h"
#include "base/system.h"
#include "data/loader.h"
#include "measure/profile_host.h"
#include "measure/profile_loads.h"
#include "measure/profile_subject.h"
#include "measure/profile_timer.h"
#include "model/layer_stream.h"
#include "model/stage.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/fit_costs.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/streamed_layers.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

/// Lane 0 of `size` lanes, computing alone for timing: a sum is its own part, and a gather repeats
/// its own part for the missing lanes. The backend outlives it.
class LoneLane final : public RankGroup {
  public:
    LoneLane(std::int32_t size, Backend& backend) : size_(size), backend_(backend) {}

    std::int32_t index() const override { return 0; }
    std::int32_t size() const override { return size_; }
    void all_reduce(const TensorView& /*values*/) override {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const auto view = [bytes](void* data) {
            return matrix(data, DType::f32, 1, static_cast<std::int64_t>(bytes / sizeof(float)));
        };
        const TensorView from = view(const_cast<void*>(own));  // NOLINT(*-const-cast)
        for (std::int32_t lane = 0; lane < size_; ++lane) {
            void* to = static_cast<char*>(all) + static_cast<std::size_t>(lane) * bytes;
            if (to != own) backend_.copy({view(to), from});
        }
    }

  private:
    std::int32_t size_;
    Backend& backend_;
};

using Clock = std::chrono::steady_clock;

/// What a profile may take, and measures for it.
struct Effort {
    ProfileEffort time;
    std::size_t sizes = most_processor_sizes;  ///< of loads
    std::size_t labels = 3;                    ///< of the head, that many numbers of targets
};

/// A small model's launches take longer than its work, which leaves a GPU cool; to choose
/// algorithms for one more size takes longer than all that is measured, so what sizes differ in is
/// as built in.
Effort gpu_effort(const ModelSpec& model, double small_seconds) {
    if (is_small(model)) return {{small_seconds, 0.25, 0.05}, 1, 1};
    return {{.budget_seconds = 2.0, .hot_seconds = 1.5}, most_gpu_sizes, 3};
}

constexpr double small_model = 1e9;       // parameters in matrices
constexpr double prepare_seconds = 15.0;  // of layers, and likewise of the head
constexpr double weak_prior = 0.02;
constexpr std::size_t enough_loads = 4;      // to tell three coefficients
constexpr std::size_t enough_segmented = 6;  // and four
constexpr std::size_t enough_labels = 2;     // to tell two
constexpr std::size_t enough_to_keep = 2;
constexpr double hardly_longer = 1.05;

class CostProfile {
  public:
    CostProfile(const Job& job, const Plan& plan, Backend& backend,
                std::span<const StartShape> start = {},
                double small_seconds = ProfileEffort().wall_seconds)
        : job_(profile_job(job, plan)),
          plan_(profile_plan(job_, plan)),
          view_(only_replica(plan_)),
          layers_(static_cast<double>(plan_.model.layers)),
          sums_(lane_sums(plan.model, plan.compute, lane_link(plan.device), view_.replica.tensor)),
          prior_(plan.costs),
          streams_(may_stream(only_replica(plan).replica) && !has_layer_owners(plan)),
          backend_(backend),
          lane_(view_.replica.tensor, backend),
          sharers_(lanes_per_key_value_head(plan.model, view_.replica.tensor), backend),
          on_gpu_(backend.native_stream() != nullptr),
          effort_(on_gpu_ ? gpu_effort(plan.model, small_seconds) : Effort()),
          timer_(backend, effort_.time),
          start_(on_gpu_ ? start : std::span<const StartShape>{}) {
        add_to_layers(sums_, -1.0, prior_);
        prior_.between_hosts.reset();  // profile_links.h measures them
        if (!on_gpu_) return;
        host_.emplace(job_, view_, loads().front(), backend_,
                      static_cast<std::int32_t>(plan_.model.layers));
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
    std::vector<Microbatch> loads() const {
        return profiled_loads(job_, view_, on_gpu_, effort_.sizes);
    }

    /// Of one layer's weights from host memory.
    double profile_transfer() {
        const StreamedLayer layout = streamed_layer(view_);
        const HostPages host(host_layer_bytes(layout));
        const Buffer buffer = backend_.allocate(layout.buffer_bytes, "profile");
        const std::unique_ptr<HostCopies> link = backend_.make_host_copies(1);
        link->pin(host.data(), host.bytes());
        const auto copies = layer_copies(layout, buffer.as<char>(), host.data());
        return timer_.repeat<1>([&](std::size_t) {
            link->load(0, copies);
            link->await(0);
        })[0];
    }

    HostCosts profile_host(const WeightSource& weights) {
        if (!timer_.out_of_time()) {
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
            if (timer_.must_do(forward.size(), on_gpu_ ? enough_loads : enough_segmented)) break;
            const AdapterLoads load = loads_of(microbatch, AttentionSpan(view_.plan.model));
            const auto rows = static_cast<double>(load.total.tokens);
            // A GPU's kernels go by rows; for its host segments count too (profile_host.h).
            const double segments = on_gpu_ ? 0.0 : static_cast<double>(load.segments());
            const auto [f, b] = time_layers(layers, microbatch);
            if (forward.empty()) largest_seconds_ = f + b;
            forward.push_back({rows, load.total.squares, f / layers_, segments});
            backward.push_back({rows, load.total.squares, b / layers_, segments});
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
    void leave_out_held_up(double queue_seconds, std::vector<CostObservation>& forward,
                           std::vector<CostObservation>& backward) const {
        const double limit = hardly_longer * queue_seconds / layers_;
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
            backend_.fill_random({stage.input(slot, tokens), {1, 0.0F, 1.0F}});
        }
        backend_.fill_random({d_output, {2, 0.0F, 1e-3F}});
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
        return with_layers(layers, microbatch,
                           [&](const auto& run) { return timer_.repeat<2>(run); });
    }

    /// Chooses the algorithms for all loads, then computes until the GPU is as slow as in training.
    /// Loads for which no time is left leave.
    void warm_up(Layers& layers, std::vector<Microbatch>& microbatches) {
        if (!host_) return;
        std::size_t met = 0;
        for (; met < microbatches.size() && (met == 0 || !timer_.out_of_time()); ++met) {
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
        with_layers(layers, microbatches.front(), [&](const auto& run) { timer_.heat<2>(run); });
    }

    /// What work takes for the first time beyond a second one, where that is of interest.
    template <class Work>
    std::optional<double> seconds_at_first(const Work& work) {
        const double first = timer_.seconds_alone(work);
        if (is_small(plan_.model)) return std::nullopt;
        return first - timer_.seconds_alone(work);
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
            if (!host_->prepares_rows(shape.tokens, shape.width)) continue;
            with_layers(layers, start_microbatch(job_, shape), [&](const auto& run) {
                run(0);
                run(1);
            });
            backend_.synchronize();
        }
    }

    void profile_steps(Stage& stage, CostModel& costs) {
        std::vector<CostObservation> observations;
        for (std::size_t a = 0; a < job_.adapters.size() && (a == 0 || !timer_.out_of_time());
             ++a) {
            const auto adapter = static_cast<AdapterId>(a);
            const auto times = timer_.repeat<1>([&](std::size_t) {
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
        if (timer_.out_of_time()) return;
        Stage stage = this->stage(head_stage, weights);
        std::vector<CostObservation> observations;
        const Microbatch microbatch = loads().front();
        const std::int64_t tokens = microbatch.tokens();
        const PackedBatch packed = pack_layout(microbatch);
        const LossTerms terms{
            std::vector<double>(microbatch.segments.size(), static_cast<double>(tokens)), false};
        backend_.fill_random({stage.input(0, tokens), {3, 0.0F, 1.0F}});
        for (const std::int64_t labels : {tokens, (tokens + 3) / 4, (tokens + 1) / 2}) {
            if (observations.size() == effort_.labels) break;
            if (timer_.must_do(observations.size(), enough_labels)) break;
            const std::vector<std::int32_t> targets =
                random_targets(tokens, labels, plan_.model.vocab_size);
            const MicrobatchRows rows{
                {}, targets, packed.positions, packed.sample_ids, packed.offsets};
            const auto run = [&](std::size_t) { stage.forward(0, microbatch, rows, terms); };
            if (host_) {
                const std::int64_t before = backend_.first_uses().gemms;
                const auto seconds = seconds_at_first([&] { run(0); });
                host_->meet_targets(labels, seconds, backend_.first_uses().gemms > before);
            }
            if (observations.empty()) timer_.heat<1>(run);
            const auto times = timer_.repeat<1>(run);
            observations.push_back({static_cast<double>(labels), 0.0, times[0]});
        }
        costs.head = fit(observations, prior_.head);
        if (host_ && !timer_.out_of_time()) host_->profile_head(stage);
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
            const std::vector<std::int32_t> targets =
                random_targets(tokens, labels, plan_.model.vocab_size);
            stage.forward(0, microbatch,
                          {{}, targets, packed.positions, packed.sample_ids, packed.offsets},
                          terms);
            backend_.synchronize();
        }
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
    double layers_;    ///< that are profiled
    CostLine sums_;    ///< over lanes, which are not measured
    CostModel prior_;  ///< without them
    bool streams_;     ///< layers do
    Backend& backend_;
    LoneLane lane_;
    LoneLane sharers_;
    bool on_gpu_;
    Effort effort_;
    ProfileTimer timer_;
    std::optional<HostProfile> host_;  ///< of a GPU
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
