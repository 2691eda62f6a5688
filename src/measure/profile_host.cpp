#include "measure/profile_host.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "data/loader.h"
#include "measure/profile_loads.h"
#include "plan/memory/memory_model.h"
#include "plan/schedule/lora_columns.h"

namespace loratrain {

namespace {

using HostClock = std::chrono::steady_clock;

constexpr std::size_t queue_repeats = 5;
constexpr double alike = 1e-9;  // as good as one observation
constexpr std::size_t layers_number = 0;
constexpr std::size_t head_number = 1;
constexpr double shorter = 0.7;  // of the longest sample: another graph
/// What MetShapes counts with: graphs, shapes, shares of the first.
constexpr HostCosts a_graph{{}, {}, {}, {}, 0.0, 1.0, {}, {}};
constexpr HostCosts a_shape{{}, {}, {}, {}, 0.0, 0.0, {1.0, 0.0, 0}, {1.0, 0.0, 0}};
constexpr HostCosts a_share{{}, {}, {}, {}, 0.0, 0.0, {0.0, 1.0, 0}, {0.0, 1.0, 0}};

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
    return host;
}

double fit_new_attention(std::span<const NewShapesTime> times) {
    std::vector<double> each;
    for (const NewShapesTime& time : times) {
        if (time.graphs > 0.0 && time.shapes == 0.0) each.push_back(time.seconds / time.graphs);
    }
    return each.empty() ? 0.0 : middle_of(std::move(each));
}

NewShapeLine fit_new_shapes(std::span<const NewShapesTime> times, double attention) {
    double cc = 0.0;
    double cw = 0.0;
    double ww = 0.0;
    double cy = 0.0;
    double wy = 0.0;
    for (const NewShapesTime& time : times) {
        if (time.shapes == 0.0) continue;
        const double seconds = std::max(0.0, time.seconds - time.graphs * attention);
        cc += time.shapes * time.shapes;
        cw += time.shapes * time.shares_of_first;
        ww += time.shares_of_first * time.shares_of_first;
        cy += time.shapes * seconds;
        wy += time.shares_of_first * seconds;
    }
    if (ww == 0.0) return {};
    const double determinant = cc * ww - cw * cw;
    if (!(determinant > alike * cc * ww)) return {0.0, wy / ww, 0};
    const double each = (cy * ww - wy * cw) / determinant;
    const double first = (wy * cc - cy * cw) / determinant;
    if (each < 0.0) return {0.0, wy / ww, 0};
    return first < 0.0 ? NewShapeLine{cy / cc, 0.0, 0} : NewShapeLine{each, first, 0};
}

HostProfile::HostProfile(const Job& job, const ReplicaView& view, Microbatch largest,
                         Backend& backend, std::int32_t layers)
    : job_(job), view_(view), largest_(std::move(largest)), backend_(backend) {
    times_.layers = layers;
    times_.segments = static_cast<double>(largest_.segments.size());
}

void HostProfile::meet(const Microbatch& microbatch, const std::function<void()>& work) {
    NewShapesTime time;
    time.graphs = counted_[0].meet(layers_number, 0, a_graph, microbatch);
    time.shapes = counted_[1].meet(layers_number, 0, a_shape, microbatch);
    time.shares_of_first = counted_[2].meet(layers_number, 0, a_share, microbatch);
    if (time.graphs + time.shapes == 0.0) return;
    time.seconds = first_seconds(work);
    new_rows_.push_back(time);
}

void HostProfile::meet_targets(std::int64_t targets, const std::function<void()>& work) {
    const std::int64_t at_once = logits_chunk(view_).rows;
    NewShapesTime time;
    time.shapes = counted_[1].meet_targets(head_number, targets, at_once, a_shape.new_targets);
    time.shares_of_first =
        counted_[2].meet_targets(head_number, targets, at_once, a_share.new_targets);
    if (time.shapes == 0.0) return;
    time.seconds = first_seconds(work);
    new_targets_.push_back(time);
}

double HostProfile::profile_layers(Stage& stage) {
    const Microbatch one = of_one_adapter();
    meet_on(stage, one);
    meet_on(stage, of_shorter_samples());
    times_.with_layers = {queue_times(stage, one), queue_times(stage, largest_)};
    return times_.with_layers[1].forward + times_.with_layers[1].backward;
}

void HostProfile::profile_head(Stage& stage) {
    times_.head = queue_times(stage, largest_).forward;
}

void HostProfile::profile_bare(Stage& stage) {
    times_.without_layers = {queue_times(stage, of_one_adapter()), queue_times(stage, largest_)};
}

HostCosts HostProfile::costs() const {
    const auto sum = [](const std::vector<NewShapesTime>& times) {
        double shapes = 0.0;
        for (const NewShapesTime& time : times) shapes += time.shapes;
        return static_cast<std::int32_t>(shapes);
    };
    HostCosts host = host_costs(times_);
    host.new_attention = fit_new_attention(new_rows_);
    host.new_rows = fit_new_shapes(new_rows_, host.new_attention);
    host.new_targets = fit_new_shapes(new_targets_, 0.0);
    host.new_rows.met = sum(new_rows_);
    host.new_targets.met = sum(new_targets_);
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

/// As many tokens.
Microbatch HostProfile::of_shorter_samples() const {
    std::int64_t longest = 1;
    for (const Segment& segment : largest_.segments) {
        for (const SampleRef& sample : segment.samples) {
            longest = std::max<std::int64_t>(longest, sample.tokens);
        }
    }
    const auto length = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(shorter * static_cast<double>(longest)));
    Microbatch microbatch =
        microbatch_of(sample_lengths(largest_.tokens(), length, length), largest_.segments.size());
    microbatch.columns = lora_columns(job_, view_, microbatch.segments);
    return microbatch;
}

void HostProfile::meet_on(Stage& stage, const Microbatch& microbatch) {
    QueuedMicrobatch queued(stage, view_, microbatch, backend_);
    meet(microbatch, [&] {
        queued.renew_factors();
        queued.forward();
        queued.backward();
    });
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
    return {middle_of(forward), stage.plan().has_head ? 0.0 : middle_of(backward)};
}

double HostProfile::first_seconds(const std::function<void()>& work) const {
    const auto once = [&] {
        backend_.synchronize();
        return host_seconds_of([&] {
            work();
            backend_.synchronize();
        });
    };
    const double first = once();
    return std::max(0.0, first - once());
}

}  // namespace loratrain
