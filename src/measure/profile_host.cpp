#include "measure/profile_host.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/attention_shape.h"
#include "data/loader.h"
#include "measure/profile_loads.h"
#include "plan/memory/memory_model.h"
#include "plan/schedule/lora_columns.h"

namespace loratrain {

namespace {

using HostClock = std::chrono::steady_clock;

constexpr std::size_t queue_repeats = 5;
/// Of the longest sample and of all tokens: far enough to be other shapes.
constexpr double shorter = 0.7;
constexpr double shortest = 0.55;
constexpr std::array fewer{0.8, 0.65};

double middle_of(std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

template <class Work>
double host_seconds_of(const Work& work) {
    const auto start = HostClock::now();
    work();
    return std::chrono::duration<double>(HostClock::now() - start).count();
}

/// A share of a number that is at least 1.
std::int64_t share_of(std::int64_t number, double share) {
    return std::max<std::int64_t>(1,
                                  static_cast<std::int64_t>(share * static_cast<double>(number)));
}

/// What samples of such a length take of cuDNN's.
double graphs_of(std::int64_t length) {
    const auto tokens = static_cast<double>(length);
    return (tokens > cudnn_forward_length ? 1.0 : 0.0) +
           (tokens > cudnn_backward_length ? 1.0 : 0.0);
}

/// A microbatch on a stage with all that a forward and a backward need.
class QueuedMicrobatch {
  public:
    QueuedMicrobatch(Stage& stage, const ReplicaView& view, const Microbatch& microbatch,
                     Backend& backend)
        : stage_(stage),
          microbatch_(microbatch),
          in_(backend.allocate(boundary_bytes(view), "profile")),
          out_(backend.allocate(boundary_bytes(view), "profile")),
          packed_(pack_layout(microbatch)),
          targets_(packed_.positions.size(), 1),
          rows_{{}, targets_, packed_.positions, packed_.sample_ids, packed_.offsets},
          terms_{std::vector<std::int64_t>(microbatch.segments.size(), 1), false} {
        const std::int64_t tokens = microbatch.tokens();
        const auto boundary = [&](const Buffer& buffer) {
            return matrix(buffer.data(), backend.compute_dtype(), tokens,
                          view.plan.model.hidden_size);
        };
        d_output_ = boundary(in_);
        d_input_ = boundary(out_);
        backend.fill_random(stage.input(0, tokens), {5, 0.0F, 1.0F});
        backend.fill_random(d_output_, {6, 0.0F, 1e-3F});
    }
    QueuedMicrobatch(const QueuedMicrobatch&) = delete;
    QueuedMicrobatch& operator=(const QueuedMicrobatch&) = delete;

    void forward() { stage_.forward(0, microbatch_, rows_, terms_); }
    void backward() {
        if (!stage_.plan().has_head) stage_.backward(0, d_output_, d_input_);
    }
    /// Of all its adapters: copies of them are stale from now on.
    void renew_factors() {
        if (stage_.plan().layer_count == 0) return;
        for (const Segment& segment : microbatch_.segments) stage_.step(segment.adapter, 0.0);
    }

  private:
    Stage& stage_;
    Microbatch microbatch_;
    Buffer in_;
    Buffer out_;
    PackedBatch packed_;
    std::vector<std::int32_t> targets_;
    MicrobatchRows rows_;
    LossTerms terms_;
    TensorView d_output_;
    TensorView d_input_;
};

HostLine line_through(double one, double all, double segments) {
    HostLine line;
    if (segments > 1.0) line.per_segment = std::max(0.0, all - one) / (segments - 1.0);
    line.fixed = std::max(0.0, one - line.per_segment);
    return line;
}

}  // namespace

HostCosts host_costs(const HostTimes& times) {
    const auto& [one, all] = times.with_layers;
    const auto& [bare_one, bare_all] = times.without_layers;
    const auto layer = [&](double with, double without) {
        return std::max(0.0, with - without) / times.layers;
    };
    HostCosts host;
    host.forward = line_through(bare_one.forward, bare_all.forward, times.segments);
    host.backward = line_through(bare_one.backward, bare_all.backward, times.segments);
    host.layer_forward = line_through(layer(one.forward, bare_one.forward),
                                      layer(all.forward, bare_all.forward), times.segments);
    host.layer_backward = line_through(layer(one.backward, bare_one.backward),
                                       layer(all.backward, bare_all.backward), times.segments);
    host.head = std::max(0.0, times.head - bare_all.forward);
    host.new_attention = times.new_attention;
    host.new_rows = times.new_rows;
    host.new_targets = times.new_targets;
    return host;
}

HostProfile::HostProfile(const Job& job, const ReplicaView& view, std::int64_t tokens,
                         Backend& backend, std::int32_t layers)
    : job_(job),
      view_(view),
      tokens_(tokens),
      longest_(std::clamp<std::int64_t>(view.plan.samples.longest, 1,
                                        std::min(longest_profiled, tokens))),
      backend_(backend) {
    times_.layers = layers;
    const std::int64_t samples = (tokens_ + longest_ - 1) / longest_;
    times_.segments = static_cast<double>(std::min(samples, std::ssize(job.adapters)));
}

double HostProfile::profile_layers(Stage& stage) {
    times_.with_layers = of_one_and_all(stage);
    return times_.with_layers[1].forward + times_.with_layers[1].backward;
}

/// New lengths, of which the first loads what graphs need, then new tokens as well.
void HostProfile::profile_new_shapes(Stage& stage) {
    const std::size_t adapters = job_.adapters.size();
    const auto seconds = [&](std::int64_t tokens, double length) {
        return new_shape_seconds(stage, microbatch(tokens, share_of(longest_, length), adapters));
    };
    const double graphs = graphs_of(share_of(longest_, shortest));
    seconds(tokens_, shorter);
    const double attention = seconds(tokens_, shortest);
    times_.new_attention = graphs > 0.0 ? attention / graphs : 0.0;
    std::array<double, fewer.size()> both{};
    for (std::size_t i = 0; i < fewer.size(); ++i) {
        both[i] = seconds(share_of(tokens_, fewer[i]), shortest);
    }
    // Kernels that are loaded as they are first tried count once, not for every shape.
    const double least = *std::min_element(both.begin(), both.end());
    times_.new_rows = std::max(0.0, least - graphs * times_.new_attention);
}

/// Of targets that are as many as the tokens.
void HostProfile::profile_head(Stage& stage) {
    const std::size_t adapters = job_.adapters.size();
    times_.head = queue_times(stage, microbatch(tokens_, longest_, adapters)).forward;
    std::array<double, fewer.size()> seconds{};
    for (std::size_t i = 0; i < fewer.size(); ++i) {
        seconds[i] =
            new_shape_seconds(stage, microbatch(share_of(tokens_, fewer[i]), longest_, adapters));
    }
    times_.new_targets = *std::min_element(seconds.begin(), seconds.end());
}

void HostProfile::profile_bare(Stage& stage) {
    times_.without_layers = of_one_and_all(stage);
}

std::array<QueueTimes, 2> HostProfile::of_one_and_all(Stage& stage) const {
    return {queue_times(stage, microbatch(tokens_, longest_, 1)),
            queue_times(stage, microbatch(tokens_, longest_, job_.adapters.size()))};
}

/// Samples of that length, the last one of what is left.
Microbatch HostProfile::microbatch(std::int64_t tokens, std::int64_t length,
                                   std::size_t adapters) const {
    Microbatch microbatch = microbatch_of(sample_lengths(tokens, length, length), adapters);
    microbatch.columns = lora_columns(job_, view_, microbatch.segments);
    return microbatch;
}

QueueTimes HostProfile::queue_times(Stage& stage, const Microbatch& microbatch) const {
    QueuedMicrobatch queued(stage, view_, microbatch, backend_);
    std::vector<double> forward;
    std::vector<double> backward;
    queued.forward();  // meets shapes
    queued.backward();
    for (std::size_t i = 0; i < queue_repeats; ++i) {
        queued.renew_factors();
        backend_.synchronize();
        forward.push_back(host_seconds_of([&] { queued.forward(); }));
        backward.push_back(host_seconds_of([&] { queued.backward(); }));
    }
    backend_.synchronize();
    return {middle_of(forward), stage.plan().has_head ? 0.0 : middle_of(backward)};
}

double HostProfile::new_shape_seconds(Stage& stage, const Microbatch& microbatch) const {
    QueuedMicrobatch queued(stage, view_, microbatch, backend_);
    const auto once = [&] {
        queued.renew_factors();
        backend_.synchronize();
        return host_seconds_of([&] {
            queued.forward();
            queued.backward();
            backend_.synchronize();
        });
    };
    const double first = once();
    return std::max(0.0, first - once());
}

}  // namespace loratrain
