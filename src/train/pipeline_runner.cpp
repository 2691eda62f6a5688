#include "train/pipeline_runner.h"

#include "backend/range.h"
#include "base/activity.h"
#include "base/error.h"
#include "train/learning_rate.h"

namespace loratrain {

namespace {

constexpr std::size_t gradient_buffers = 2;

activity::Task task_of(ActionKind kind) {
    switch (kind) {
        case ActionKind::recv_forward:
            return activity::Task::receive_input;
        case ActionKind::forward:
        case ActionKind::no_op:
            return activity::Task::forward;
        case ActionKind::send_forward:
            return activity::Task::send_output;
        case ActionKind::recv_backward:
            return activity::Task::receive_gradient;
        case ActionKind::backward:
            return activity::Task::backward;
        case ActionKind::send_backward:
            return activity::Task::send_gradient;
        case ActionKind::step:
            return activity::Task::step;
        case ActionKind::recv_norms:
            return activity::Task::receive_norms;
        case ActionKind::send_norms:
            return activity::Task::send_norms;
    }
    return activity::Task::forward;
}

/// The number that words of the task are followed by; -1 = none.
std::int32_t number_of(const Action& action) {
    switch (action.kind) {
        case ActionKind::step:
            return action.batch;
        case ActionKind::recv_norms:
        case ActionKind::send_norms:
            return -1;
        default:
            return number(action.microbatch);
    }
}

}  // namespace

PipelineRunner::PipelineRunner(const Job& job, const ReplicaView& view, std::size_t stage_index,
                               Stage& stage, Communicator& communicator, Backend& backend)
    : job_(job),
      view_(view),
      stage_index_(stage_index),
      stage_(stage),
      communicator_(communicator),
      backend_(backend),
      on_device_(backend.native_stream() != nullptr),
      reads_(backend, communicator) {
    if (view.replica.stages.size() == 1) return;
    backend.before_stalls([this] { communicator_.settle(hooks_.between_actions); });
    for (std::size_t i = 0; i < gradient_buffers; ++i) {
        gradient_in_.push_back(backend.allocate(boundary_bytes(view), "gradient messages"));
        gradient_out_.push_back(backend.allocate(boundary_bytes(view), "gradient messages"));
    }
}

PipelineRunner::~PipelineRunner() {
    backend_.before_stalls({});
}

std::vector<EvalSums> PipelineRunner::run(const Window& window, Loader& loader,
                                          const Hooks& hooks) {
    if (window.begins) {
        hooks_ = hooks;
        begin_stream(window);
    }
    append(window);
    for (const Action& action : window.actions[stage_index_]) {
        const activity::Task task = task_of(action.kind);
        activity::begin(task, number_of(action), on_device_);
        const Range range(backend_, activity::words_of(task), number_of(action));
        const RecordedAction recorded(recorder_, action);
        post_receives();
        perform(action, loader);
        reads_.poll();
        if (hooks_.between_actions) hooks_.between_actions();
    }
    if (!window.drains) return {};
    activity::begin(activity::Task::end_window, -1, on_device_);
    drain();
    hooks_ = {};
    return std::move(evaluation_);
}

void PipelineRunner::begin_stream(const Window& window) {
    reads_.clear();
    evaluating_ = window.evaluation;
    batches_.clear();
    microbatches_.clear();
    batch_index_.clear();
    forward_receives_.clear();
    backward_receives_.clear();
    forward_in_.clear();
    backward_in_.clear();
    forward_out_.clear();
    forward_out_.resize(static_cast<std::size_t>(stage_.slots()));
    backward_out_.clear();
    backward_out_.resize(gradient_buffers);
    freed_slots_ = backwards_done_ = posted_forward_ = posted_backward_ = 0;
    evaluation_.assign(evaluating_ && last() ? window.batches.size() : 0, {});
}

void PipelineRunner::append(const Window& window) {
    LORATRAIN_CHECK(std::ssize(batches_) == window.first_batch &&
                        std::ssize(microbatches_) == window.first_microbatch,
                    "the window does not continue the one before");
    if (recorder_ != nullptr) recorder_->start(window);
    for (const BatchPlan& batch : window.batches) {
        batch_index_[{number(batch.adapter), batch.step}] =
            static_cast<std::int32_t>(batches_.size());
        batches_.push_back(batch);
    }
    microbatches_.insert(microbatches_.end(), window.microbatches.begin(),
                         window.microbatches.end());
    for (const Action& action : window.actions[stage_index_]) {
        if (action.kind == ActionKind::recv_forward) forward_receives_.push_back(action);
        if (action.kind == ActionKind::recv_backward) backward_receives_.push_back(action);
    }
}

void PipelineRunner::perform(const Action& action, Loader& loader) {
    switch (action.kind) {
        case ActionKind::recv_forward:
            return receive_forward(action);
        case ActionKind::forward:
            return forward(action, loader);
        case ActionKind::send_forward:
            return send_forward(action);
        case ActionKind::recv_backward:
            return receive_backward(action);
        case ActionKind::backward:
            return backward(action);
        case ActionKind::send_backward:
            return send_backward(action);
        case ActionKind::step:
            return step(action.batch);
        case ActionKind::recv_norms:
            return receive_norms(action);
        case ActionKind::send_norms:
            return send_norms(action);
        case ActionKind::no_op:
            return;
    }
}

void PipelineRunner::post_receives() {
    const auto forwards = static_cast<std::int32_t>(forward_receives_.size());
    while (posted_forward_ < forwards && posted_forward_ < freed_slots_ + stage_.slots()) {
        const Action& action = forward_receives_[static_cast<std::size_t>(posted_forward_)];
        const std::int32_t m = number(action.microbatch);
        const TensorView input = stage_.input(slot_of(m), tokens_of(m));
        const std::size_t bytes = payload_bytes(input) + action.carried.size() * sizeof(double);
        forward_in_.push_back(
            communicator_.receive(input.data, bytes, rank_of(stage_index_ - 1), Channel::forward));
        ++posted_forward_;
    }
    const auto backwards = static_cast<std::int32_t>(backward_receives_.size());
    while (posted_backward_ < backwards &&
           posted_backward_ < backwards_done_ + static_cast<std::int32_t>(gradient_buffers)) {
        const Action& action = backward_receives_[static_cast<std::size_t>(posted_backward_)];
        const std::int32_t m = number(action.microbatch);
        const TensorView gradient =
            message(gradient_in_[static_cast<std::size_t>(m) % gradient_buffers], m);
        const std::size_t bytes =
            payload_bytes(gradient) + 2 * action.carried.size() * sizeof(double);
        backward_in_.push_back(communicator_.receive(gradient.data, bytes,
                                                     rank_of(stage_index_ + 1), Channel::backward));
        ++posted_backward_;
    }
}

void PipelineRunner::receive_forward(const Action& action) {
    const std::int32_t m = number(action.microbatch);
    forward_in_[static_cast<std::size_t>(m)]->wait();
    const TensorView input = stage_.input(slot_of(m), tokens_of(m));
    move_tail(Tail::received, static_cast<char*>(input.data) + payload_bytes(input), action,
              {stage_.sums().total});
}

void PipelineRunner::forward(const Action& action, Loader& loader) {
    const std::int32_t m = number(action.microbatch);
    const Microbatch& microbatch = microbatches_[static_cast<std::size_t>(m)];
    activity::begin(activity::Task::load_rows, m);
    const PackedBatch packed = loader.next();
    activity::begin(activity::Task::forward, m, on_device_);
    LossTerms terms;
    terms.evaluation = evaluating_;
    for (const Segment& segment : microbatch.segments) {
        const BatchPlan& batch = batches_[static_cast<std::size_t>(batch_of(segment))];
        terms.denominators.push_back(batch.denominator);
    }
    const std::int32_t slot = slot_of(m);
    if (auto& sending = forward_out_[static_cast<std::size_t>(slot)]) sending->wait();
    MicrobatchRows rows;
    if (first()) rows.token_ids = packed.token_ids;
    if (last()) rows.targets = packed.targets;
    rows.positions = packed.positions;
    rows.sample_ids = packed.sample_ids;
    rows.offsets = packed.offsets;
    stage_.forward(slot, microbatch, rows, terms);
    if (!evaluating_) return;
    if (last()) {
        collect_evaluation(m);
    } else {
        reads_.mark();
    }
    ++freed_slots_;
}

void PipelineRunner::send_forward(const Action& action) {
    const std::int32_t m = number(action.microbatch);
    const TensorView output = stage_.output(slot_of(m), tokens_of(m));
    const std::size_t payload = payload_bytes(output);
    move_tail(Tail::sent, static_cast<char*>(output.data) + payload, action, {stage_.sums().total});
    forward_out_[static_cast<std::size_t>(slot_of(m))] =
        communicator_.send(output.data, payload + action.carried.size() * sizeof(double),
                           rank_of(stage_index_ + 1), Channel::forward);
}

void PipelineRunner::receive_backward(const Action& action) {
    const std::int32_t m = number(action.microbatch);
    backward_in_[static_cast<std::size_t>(m)]->wait();
    const TensorView gradient =
        message(gradient_in_[static_cast<std::size_t>(m) % gradient_buffers], m);
    move_tail(Tail::received, static_cast<char*>(gradient.data) + payload_bytes(gradient), action,
              {stage_.sums().received, stage_.sums().loss});
}

void PipelineRunner::backward(const Action& action) {
    const std::int32_t m = number(action.microbatch);
    const std::size_t buffer = static_cast<std::size_t>(m) % gradient_buffers;
    TensorView d_output;
    TensorView d_input;
    if (!last()) d_output = message(gradient_in_[buffer], m);
    if (!first()) {
        d_input = message(gradient_out_[buffer], m);
        if (auto& sending = backward_out_[buffer]) sending->wait();
    }
    stage_.backward(slot_of(m), d_output, d_input);
    ++freed_slots_;
    ++backwards_done_;
    reads_.mark();
    finish_batches(m);
}

void PipelineRunner::finish_batches(std::int32_t microbatch) {
    for (const Segment& segment : microbatches_[static_cast<std::size_t>(microbatch)].segments) {
        const std::int32_t b = batch_of(segment);
        const BatchPlan& batch = batches_[static_cast<std::size_t>(b)];
        if (number(batch.last_microbatch) != microbatch) continue;
        stage_.finish_batch(batch.adapter, !last());
        if (first()) report_batch(b);
    }
}

void PipelineRunner::report_batch(std::int32_t b) {
    const BatchPlan& batch = batches_[static_cast<std::size_t>(b)];
    const auto a = static_cast<std::int32_t>(index(batch.adapter));
    const StageSums& sums = stage_.sums();
    backend_.move_doubles({sums.total, sums.partial, {&a, 1}, {&a, 1}, false});
    reads_.read({{sums.loss + a, sizeof(double)}, {sums.total + a, sizeof(double)}},
                [this, b](const double* values) {
                    if (!hooks_.on_batch) return;
                    hooks_.on_batch({batches_[static_cast<std::size_t>(b)], values[0], values[1]});
                });
}

void PipelineRunner::send_backward(const Action& action) {
    const std::int32_t m = number(action.microbatch);
    const std::size_t buffer = static_cast<std::size_t>(m) % gradient_buffers;
    const TensorView gradient = message(gradient_out_[buffer], m);
    const std::size_t payload = payload_bytes(gradient);
    move_tail(Tail::sent, static_cast<char*>(gradient.data) + payload, action,
              {stage_.sums().partial, stage_.sums().loss});
    backward_out_[buffer] =
        communicator_.send(gradient.data, payload + 2 * action.carried.size() * sizeof(double),
                           rank_of(stage_index_ - 1), Channel::backward);
}

void PipelineRunner::step(std::int32_t batch_index) {
    const BatchPlan& batch = batches_[static_cast<std::size_t>(batch_index)];
    const int total_steps = view_.plan.adapters[index(batch.adapter)].total_steps;
    stage_.step(batch.adapter, learning_rate(job_.adapter(batch.adapter), total_steps, batch.step));
}

void PipelineRunner::receive_norms(const Action& action) {
    void* tail = gradient_in_[0].data();
    communicator_
        .receive(tail, action.carried.size() * sizeof(double), rank_of(stage_index_ - 1),
                 Channel::norms)
        ->wait();
    move_tail(Tail::received, tail, action, {stage_.sums().total});
}

void PipelineRunner::send_norms(const Action& action) {
    if (backward_out_[0]) backward_out_[0]->wait();
    void* tail = gradient_out_[0].data();
    move_tail(Tail::sent, tail, action, {stage_.sums().total});
    norms_out_ = communicator_.send(tail, action.carried.size() * sizeof(double),
                                    rank_of(stage_index_ + 1), Channel::norms);
}

void PipelineRunner::collect_evaluation(std::int32_t microbatch) {
    const Microbatch& mb = microbatches_[static_cast<std::size_t>(microbatch)];
    const auto samples = static_cast<std::size_t>(mb.samples());
    const std::size_t bytes = samples * sizeof(double);
    reads_.read({{stage_.sums().sample_nll, bytes}, {stage_.sums().sample_wrong, bytes}},
                [this, microbatch, samples](const double* values) {
                    add_evaluation(microbatch, values, values + samples);
                });
}

void PipelineRunner::add_evaluation(std::int32_t microbatch, const double* nll,
                                    const double* wrong) {
    const Microbatch& mb = microbatches_[static_cast<std::size_t>(microbatch)];
    std::size_t sample = 0;
    for (const Segment& segment : mb.segments) {
        EvalSums& sums = evaluation_[static_cast<std::size_t>(batch_of(segment))];
        std::vector<double> losses(segment.samples.size());
        stage_.objective(segment.adapter)
            .losses({segment.samples, {nll + sample, losses.size()}}, losses);
        for (std::size_t i = 0; i < losses.size(); ++i, ++sample) {
            sums.loss_sum += losses[i];
            sums.exact_samples += wrong[sample] == 0.0 ? 1 : 0;
            ++sums.samples;
        }
    }
}

void PipelineRunner::drain() {
    for (auto& transfer : forward_out_) {
        if (transfer) transfer->wait();
    }
    for (auto& transfer : backward_out_) {
        if (transfer) transfer->wait();
    }
    if (norms_out_) norms_out_->wait();
    reads_.finish();
}

std::int64_t PipelineRunner::tokens_of(std::int32_t microbatch) const {
    return microbatches_[static_cast<std::size_t>(microbatch)].tokens();
}

TensorView PipelineRunner::message(const Buffer& buffer, std::int32_t microbatch) const {
    return matrix(buffer.data(), backend_.compute_dtype(), tokens_of(microbatch),
                  view_.lane_model.hidden_size);
}

std::int32_t PipelineRunner::batch_of(const Segment& segment) const {
    return batch_index_.at({number(segment.adapter), segment.step});
}

std::size_t PipelineRunner::payload_bytes(const TensorView& payload) const {
    const std::size_t bytes = static_cast<std::size_t>(payload.numel()) * payload.element_size();
    return (bytes + sizeof(double) - 1) / sizeof(double) * sizeof(double);
}

const std::vector<std::int32_t>& PipelineRunner::carried_adapters(const Action& action) {
    adapters_.clear();
    for (const std::int32_t batch : action.carried) {
        adapters_.push_back(number(batches_[static_cast<std::size_t>(batch)].adapter));
    }
    return adapters_;
}

void PipelineRunner::move_tail(Tail direction, void* tail, const Action& action,
                               std::initializer_list<double*> sums) {
    const std::vector<std::int32_t>& adapters = carried_adapters(action);
    auto* doubles = static_cast<double*>(tail);
    std::int32_t place = 0;
    for (double* of_adapter : sums) {
        places_.clear();
        for (std::size_t i = 0; i < adapters.size(); ++i) places_.push_back(place++);
        if (direction == Tail::received) {
            backend_.move_doubles({of_adapter, doubles, adapters, places_, false});
        } else {
            backend_.move_doubles({doubles, of_adapter, places_, adapters, false});
        }
    }
}

}  // namespace loratrain
