#include "measure/profile_host.h"

#include <algorithm>
#include <chrono>

#include "base/gemm_shape.h"
#include "data/loader.h"
#include "measure/median.h"
#include "measure/profile_loads.h"
#include "plan/memory/memory_model.h"
#include "plan/schedule/lora_columns.h"

namespace loratrain {

namespace {

using HostClock = std::chrono::steady_clock;

constexpr std::size_t queue_repeats = 5;
constexpr std::size_t layers_number = 0;
constexpr std::size_t head_number = 1;
/// Of an adapter in a layer's forward and backward, estimates.
constexpr double forward_segment = 2e-6;
constexpr double backward_segment = 3e-6;
constexpr NewShapeLine new_rows{0.05, 0.55, 0};
constexpr NewShapeLine new_targets{0.038, 0.0, 0};
/// What MetShapes counts shapes with.
constexpr NewShapeLine a_shape{1.0, 0.0, 0};

template <class Work>
double host_seconds_of(const Work& work) {
    const auto start = HostClock::now();
    work();
    return std::chrono::duration<double>(HostClock::now() - start).count();
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
          terms_{std::vector<double>(microbatch.segments.size(), 1.0), false} {
        const std::int64_t tokens = microbatch.tokens();
        const auto boundary = [&](const Buffer& buffer) {
            return matrix(buffer.data(), backend.compute_dtype(), tokens,
                          view.plan.model.hidden_size);
        };
        d_output_ = boundary(in_);
        d_input_ = boundary(out_);
        backend.fill_random({stage.input(0, tokens), {5, 0.0F, 1.0F}});
        backend.fill_random({d_output_, {6, 0.0F, 1e-3F}});
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

HostLine layer_line(double all, double per_segment, double segments) {
    return {std::max(0.0, all - segments * per_segment), std::min(all / segments, per_segment)};
}

}  // namespace

HostCosts host_costs(const HostTimes& times) {
    const auto& [bare_one, bare_all] = times.without_layers;
    const auto layer = [&](double with, double without) {
        return std::max(0.0, with - without) / times.layers;
    };
    HostCosts host;
    host.forward = line_through(bare_one.forward, bare_all.forward, times.segments);
    host.backward = line_through(bare_one.backward, bare_all.backward, times.segments);
    host.layer_forward = layer_line(layer(times.with_layers.forward, bare_all.forward),
                                    forward_segment, times.segments);
    host.layer_backward = layer_line(layer(times.with_layers.backward, bare_all.backward),
                                     backward_segment, times.segments);
    host.head = std::max(0.0, times.head - bare_all.forward);
    host.new_rows = new_rows;
    host.new_targets = new_targets;
    return host;
}

HostProfile::HostProfile(const Job& job, const ReplicaView& view, Microbatch largest,
                         Backend& backend, std::int32_t layers)
    : job_(job), view_(view), largest_(std::move(largest)), backend_(backend) {
    times_.layers = layers;
    times_.segments = static_cast<double>(largest_.segments.size());
}

void HostProfile::meet(const Microbatch& microbatch, std::optional<double> seconds, bool chose) {
    const std::int64_t tokens = microbatch.tokens();
    if (!prepares_rows(tokens, width_of(microbatch))) return;
    ++rows_;
    if (!seconds || !chose) return;
    new_shapes_.push_back({rows_, static_cast<double>(rows_alike(tokens).largest), *seconds});
}

void HostProfile::meet_targets(std::int64_t targets, std::optional<double> seconds, bool chose) {
    const double shapes =
        counted_.meet_targets(head_number, targets, logits_chunk(view_).rows, a_shape);
    targets_ += shapes;
    if (seconds && chose) new_targets_.push_back({static_cast<std::int64_t>(shapes), *seconds});
}

bool HostProfile::prepares_rows(std::int64_t tokens, std::int64_t width) {
    return counted_.meet_rows(layers_number, tokens, width, a_shape) > 0.0;
}

bool HostProfile::prepares_targets(std::int64_t targets) {
    return counted_.meet_targets(head_number, targets, logits_chunk(view_).rows, a_shape) > 0.0;
}

double HostProfile::profile_layers(Stage& stage) {
    times_.with_layers = queue_times(stage, largest_);
    return times_.with_layers.forward + times_.with_layers.backward;
}

void HostProfile::profile_head(Stage& stage) {
    times_.head = queue_times(stage, largest_).forward;
    head_profiled_ = true;
}

void HostProfile::profile_bare(Stage& stage) {
    times_.without_layers = {queue_times(stage, of_one_adapter()), queue_times(stage, largest_)};
    bare_profiled_ = true;
}

HostCosts HostProfile::costs(const HostCosts& others) const {
    HostTimes times = times_;
    if (!bare_profiled_) {
        const auto bare = [&others](double segments) {
            return QueueTimes{others.forward.seconds(segments), others.backward.seconds(segments)};
        };
        times.without_layers = {bare(1.0), bare(times.segments)};
    }
    HostCosts host = host_costs(times);
    if (!head_profiled_) host.head = others.head;
    host.new_rows = fit_new_shapes(new_shapes_, host.new_rows);
    host.new_targets = fit_new_targets(new_targets_, host.new_targets);
    host.new_rows.met = rows_;
    host.new_targets.met = static_cast<std::int32_t>(targets_);
    return host;
}

/// The same samples.
Microbatch HostProfile::of_one_adapter() const {
    Microbatch microbatch = largest_;
    Segment& first = microbatch.segments.front();
    for (std::size_t i = 1; i < largest_.segments.size(); ++i) {
        const auto& more = largest_.segments[i].samples;
        first.samples.insert(first.samples.end(), more.begin(), more.end());
    }
    microbatch.segments.resize(1);
    microbatch.columns = lora_columns(job_, view_, microbatch.segments);
    return microbatch;
}

QueueTimes HostProfile::queue_times(Stage& stage, const Microbatch& microbatch) const {
    QueuedMicrobatch queued(stage, view_, microbatch, backend_);
    std::vector<double> forward;
    std::vector<double> backward;
    queued.forward();  // warms up
    queued.backward();
    for (std::size_t i = 0; i < queue_repeats; ++i) {
        queued.renew_factors();
        backend_.synchronize();
        forward.push_back(host_seconds_of([&] { queued.forward(); }));
        backward.push_back(host_seconds_of([&] { queued.backward(); }));
    }
    backend_.synchronize();
    return {median(forward), stage.plan().has_head ? 0.0 : median(backward)};
}

}  // namespace loratrain
