#include "measure/profile_costs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "base/rng.h"
#include "base/system.h"
#include "data/loader.h"
#include "model/stage.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/fit_costs.h"
#include "plan/memory/memory_model.h"
#include "plan/schedule/lora_columns.h"

namespace loratrain {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double budget_seconds = 2.0;
constexpr double processor_budget_seconds = 0.4;
constexpr double limit_seconds = 15.0;
constexpr int repeats = 3;
constexpr std::int32_t profiled_layers = 2;
constexpr std::int64_t longest_profiled = 4096;
/// Shares of the largest load; processors, which are slow, run the first few.
constexpr std::array<double, 6> shares{1.0, 0.25, 0.5, 0.75, 0.375, 0.625};
constexpr std::size_t processor_shares = 3;
constexpr std::int64_t processor_short_sample = 64;
/// From so many rows on, and with two of the longest samples, a token costs a processor the same.
constexpr std::int64_t processor_rows = 512;
/// What sizes on a GPU are short of the shares: they fill the tiles of GEMMs as badly as others do.
constexpr std::array<std::int64_t, shares.size()> shortfalls{64, 16, 112, 32, 96, 48};
constexpr double hot_seconds = 1.5;  ///< until a GPU's clock has come down to what it can sustain
constexpr std::size_t most_adapters = 8;
constexpr double weak_prior = 0.02;
constexpr std::size_t enough_loads = 4;   // to tell three coefficients
constexpr std::size_t enough_labels = 2;  // to tell two
constexpr std::size_t layer_stage = 0;
constexpr std::size_t head_stage = 1;
constexpr int small_messages = 20;
constexpr int large_messages = 4;

double median(std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// The job's adapters that share a microbatch, as fresh ones.
Job profile_job(const Job& job, const Plan& plan) {
    Job result = job;
    result.adapters.clear();
    const bool share = job.schedule.policy == SchedulePolicy::balanced;
    for (const AdapterId id : plan.first_admitted) {
        result.adapters.push_back(job.adapter(id));
        result.adapters.back().init_from.clear();
        if (!share || result.adapters.size() == most_adapters) break;
    }
    return result;
}

/// A stage of layers alone, and one of the head alone.
Plan profile_plan(const Job& job, const Plan& plan) {
    Plan result = plan;
    ReplicaPlan replica = only_replica(plan).replica;
    replica.recompute = Recompute::none;
    replica.max_in_flight = 1;
    result.model.layers = profiled_layers;
    result.adapters.assign(job.adapters.size(), {});
    result.first_admitted.clear();
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        result.first_admitted.push_back(static_cast<AdapterId>(a));
    }
    replica.stages = {{0, 0, profiled_layers, false, false}, {0, profiled_layers, 0, false, true}};
    result.replicas = {replica};
    return result;
}

/// So many tokens in samples as long as `longest`, half as long and so on down to `shortest`, and
/// again.
std::vector<std::int64_t> sample_lengths(std::int64_t tokens, std::int64_t longest,
                                         std::int64_t shortest) {
    std::vector<std::int64_t> lengths;
    std::int64_t next = longest;
    for (; tokens > 0; tokens -= lengths.back()) {
        lengths.push_back(std::min(next, tokens));
        next = next / 2 >= shortest ? next / 2 : longest;
    }
    return lengths;
}

/// Samples of those lengths, shared out among the adapters.
Microbatch microbatch_of(const std::vector<std::int64_t>& lengths, std::size_t adapters) {
    const std::size_t samples = lengths.size();
    const std::size_t segments = std::min(adapters, samples);
    Microbatch microbatch;
    for (std::size_t i = 0; i < segments; ++i) {
        Segment segment;
        segment.adapter = static_cast<AdapterId>(i);
        for (std::size_t s = samples * i / segments; s < samples * (i + 1) / segments; ++s) {
            segment.samples.push_back(
                {static_cast<std::int32_t>(s), static_cast<std::int32_t>(lengths[s])});
        }
        microbatch.segments.push_back(segment);
    }
    return microbatch;
}

class CostProfile {
  public:
    CostProfile(const Job& job, const Plan& plan, Backend& backend)
        : job_(profile_job(job, plan)),
          plan_(profile_plan(job_, plan)),
          view_(only_replica(plan_)),
          prior_(plan.costs),
          backend_(backend),
          clock_(backend.make_clock()) {}

    ProfiledCosts run() {
        const auto weights = synthetic_base_weights(plan_.model, 1);
        CostModel costs = prior_;
        costs.source = "measured on " + backend_.description();
        profile_layers(*weights, costs);
        profile_head(*weights, costs);
        return {costs, largest_seconds_};
    }

    double probe() {
        const auto weights = synthetic_base_weights(plan_.model, 1);
        Layers layers(job_, view_, *weights, backend_);
        const auto [forward, backward] = time_layers(layers, loads().front());
        return forward + backward;
    }

  private:
    struct Layers {
        Layers(const Job& job, const ReplicaView& view, const WeightSource& weights,
               Backend& backend)
            : stage(job, view, layer_stage, weights, backend),
              gradient_in(backend.allocate(boundary_bytes(view), "profile")),
              gradient_out(backend.allocate(boundary_bytes(view), "profile")) {}
        Stage stage;
        Buffer gradient_in;
        Buffer gradient_out;
    };

    bool late() const {
        return spent_seconds_ > (on_gpu_ ? budget_seconds : processor_budget_seconds);
    }
    bool too_late() const { return spent_seconds_ > limit_seconds; }
    /// Whether `count` loads, of which so many were wanted, must do.
    bool must_do(std::size_t count, std::size_t wanted) const {
        return count > 0 && (too_late() || (late() && count >= wanted));
    }
    /// Whether there is time for one more after `times`; the first of them only warms up.
    bool may_repeat(int times) const { return times == 0 || (times == 1 ? !too_late() : !late()); }
    std::int64_t largest_load() const {
        const std::int64_t tokens = view_.replica.microbatch_tokens;
        const std::int64_t longest = std::min(plan_.samples.longest, longest_profiled);
        return on_gpu_ ? tokens : std::min(tokens, std::max(processor_rows, 2 * longest));
    }

    /// Of several sizes, each in samples of mixed lengths up to the job's longest and in short
    /// ones.
    std::vector<Microbatch> loads() const {
        const auto largest = static_cast<double>(largest_load());
        std::vector<Microbatch> result;
        for (std::size_t i = 0; i < (on_gpu_ ? shares.size() : processor_shares); ++i) {
            const auto whole =
                std::max<std::int64_t>(1, static_cast<std::int64_t>(shares[i] * largest));
            const std::int64_t tokens = whole - (on_gpu_ ? std::min(shortfalls[i], whole / 16) : 0);
            const std::int64_t longest = std::min(
                {tokens, longest_profiled, std::max<std::int64_t>(1, plan_.samples.longest)});
            const std::int64_t shortest = std::clamp<std::int64_t>(
                longest / 8, 1, on_gpu_ ? longest : processor_short_sample);
            for (const std::int64_t from : {longest, shortest}) {
                result.push_back(
                    microbatch_of(sample_lengths(tokens, from, shortest), job_.adapters.size()));
                result.back().columns = lora_columns(job_, view_, result.back().segments);
            }
        }
        return result;
    }

    void profile_layers(const WeightSource& weights, CostModel& costs) {
        Layers layers(job_, view_, weights, backend_);
        std::vector<CostObservation> forward;
        std::vector<CostObservation> backward;
        const std::vector<Microbatch> microbatches = loads();
        warm_up(layers, microbatches);
        for (const Microbatch& microbatch : microbatches) {
            if (must_do(forward.size(), enough_loads)) break;
            const MicrobatchLoad load = load_of(microbatch);
            const auto rows = static_cast<double>(load.tokens);
            const auto [f, b] = time_layers(layers, microbatch);
            if (forward.empty()) largest_seconds_ = f + b;
            forward.push_back({rows, load.squares, f / profiled_layers});
            backward.push_back({rows, load.squares, b / profiled_layers});
        }
        costs.layer_forward = fit(forward, prior_.layer_forward);
        costs.layer_backward = fit(backward, prior_.layer_backward);
        profile_steps(layers.stage, costs);
    }

    /// Calls work(run), where run(0) is a forward of the microbatch and run(1) its backward.
    template <class Work>
    auto with_layers(Layers& layers, const Microbatch& microbatch, const Work& work) {
        const PackedBatch packed = pack_layout(microbatch);
        const MicrobatchRows rows{{}, {}, packed.positions, packed.sample_ids, packed.offsets};
        const std::int64_t tokens = microbatch.tokens();
        const LossTerms terms{std::vector<std::int64_t>(microbatch.segments.size(), 1), false};
        const TensorView d_output = boundary(layers.gradient_in, tokens);
        const TensorView d_input = boundary(layers.gradient_out, tokens);
        Stage& stage = layers.stage;
        backend_.fill_random(stage.input(0, tokens), {1, 0.0F, 1.0F});
        backend_.fill_random(d_output, {2, 0.0F, 1e-3F});
        return work([&](std::size_t part) {
            if (part == 0) stage.forward(0, microbatch, rows, terms);
            if (part == 1) stage.backward(0, d_output, d_input);
        });
    }

    std::array<double, 2> time_layers(Layers& layers, const Microbatch& microbatch) {
        return with_layers(layers, microbatch, [&](const auto& run) { return repeat<2>(run); });
    }

    /// Chooses the algorithms for all loads, then computes until the GPU is as slow as in training.
    void warm_up(Layers& layers, const std::vector<Microbatch>& microbatches) {
        if (!on_gpu_) return;
        for (const Microbatch& microbatch : microbatches) {
            with_layers(layers, microbatch, [&](const auto& run) {
                run(0);
                run(1);
            });
        }
        with_layers(layers, microbatches.front(), [&](const auto& run) { heat<2>(run); });
    }

    /// On a GPU, the parts again and again for hot_seconds.
    template <std::size_t parts, class Work>
    void heat(const Work& work) {
        if (!on_gpu_) return;
        const Clock::time_point start = Clock::now();
        while (seconds_since(start) < hot_seconds) {
            for (std::size_t part = 0; part < parts; ++part) work(part);
            backend_.synchronize();
        }
    }

    void profile_steps(Stage& stage, CostModel& costs) {
        std::vector<CostObservation> observations;
        for (std::size_t a = 0; a < job_.adapters.size(); ++a) {
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
        Stage stage(job_, view_, head_stage, weights, backend_);
        std::vector<CostObservation> observations;
        const Microbatch microbatch = loads().front();
        const std::int64_t tokens = microbatch.tokens();
        const PackedBatch packed = pack_layout(microbatch);
        const LossTerms terms{std::vector<std::int64_t>(microbatch.segments.size(), tokens), false};
        backend_.fill_random(stage.input(0, tokens), {3, 0.0F, 1.0F});
        for (const std::int64_t labels : {tokens, (tokens + 3) / 4, (tokens + 1) / 2}) {
            if (must_do(observations.size(), enough_labels)) break;
            const std::vector<std::int32_t> targets = random_targets(tokens, labels);
            const MicrobatchRows rows{
                {}, targets, packed.positions, packed.sample_ids, packed.offsets};
            const auto run = [&](std::size_t) { stage.forward(0, microbatch, rows, terms); };
            if (observations.empty()) heat<1>(run);
            const auto times = repeat<1>(run);
            observations.push_back({static_cast<double>(labels), 0.0, times[0]});
        }
        costs.head = fit(observations, prior_.head);
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
    CostModel prior_;
    Backend& backend_;
    std::unique_ptr<StreamClock> clock_;
    bool on_gpu_ = backend_.native_stream() != nullptr;
    double spent_seconds_ = 0.0;
    double largest_seconds_ = 0.0;
};

/// Seconds of one way of `count` messages to and fro, after a first that is not counted.
double message_seconds(int rank, Communicator& communicator, Backend& backend, const Buffer& buffer,
                       std::size_t bytes, int count) {
    const int other = 1 - rank;
    Clock::time_point start;
    for (int i = 0; i <= count; ++i) {
        if (i == 1) {
            backend.synchronize();
            start = Clock::now();
        }
        for (const int sender : {0, 1}) {
            // A channel goes one way.
            const Channel channel = sender == 0 ? Channel::forward : Channel::backward;
            const auto transfer = sender == rank
                                      ? communicator.send(buffer.data(), bytes, other, channel)
                                      : communicator.receive(buffer.data(), bytes, other, channel);
            transfer->wait();
        }
    }
    backend.synchronize();
    return seconds_since(start) / (2.0 * count);
}

}  // namespace

ProfiledCosts profile_costs(const Job& job, const Plan& plan, Backend& backend) {
    return CostProfile(job, plan, backend).run();
}

double probe_seconds(const Job& job, const Plan& plan, Backend& backend) {
    return CostProfile(job, plan, backend).probe();
}

void profile_messages(const Plan& plan, int rank, Communicator& communicator, Backend& backend,
                      CostModel& costs) {
    const bool on_device = backend.native_stream() != nullptr;  // built-in costs do there
    const ReplicaView view = only_replica(plan);
    if (view.replica.stages.size() < 2 || rank > 1 || on_device) return;
    const std::size_t large = boundary_bytes(view);
    constexpr std::size_t small = 64;
    const Buffer buffer = backend.allocate(large, "profile of messages");
    const double fixed =
        message_seconds(rank, communicator, backend, buffer, small, small_messages);
    const double whole =
        message_seconds(rank, communicator, backend, buffer, large, large_messages);
    costs.message_fixed = fixed;
    costs.message_per_byte = std::max(0.0, whole - fixed) / static_cast<double>(large);
}

}  // namespace loratrain
