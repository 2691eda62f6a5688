#include "train/pipeline_runner.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/activity.h"
#include "base/arithmetic.h"
#include "base/error.h"
#include "plan/action_traits.h"
#include "plan/memory/memory_model.h"
#include "plan/sample_counts.h"
#include "train/learning_rate.h"

namespace loratrain {

namespace {

constexpr std::chrono::microseconds reach_interval{20};

}  // namespace

PipelineRunner::PipelineRunner(const Job& job, const ReplicaView& view, std::size_t stage_index,
                               Stage& stage, Communicator& communicator, Backend& backend,
                               GradientExchange* exchange)
    : job_(job),
      view_(view),
      stage_index_(stage_index),
      stage_(stage),
      communicator_(communicator),
      backend_(backend),
      exchange_(exchange),
      on_device_(backend.native_stream() != nullptr),
      reads_(backend, communicator) {
    if (exchange != nullptr) {
        exchanging_.emplace([exchange] { exchange->poll(); });
        stage.between_layers([exchange] { exchange->poll(); });
    }
    if (view.replica.stages.size() == 1) return;
    backend.before_stalls([this] { communicator_.settle(hooks_.between_actions); });
    for (std::int32_t i = 0; i < gradient_buffers; ++i) {
        gradient_in_.push_back(backend.allocate(boundary_bytes(view), "gradient messages"));
        gradient_out_.push_back(backend.allocate(boundary_bytes(view), "gradient messages"));
    }
}

PipelineRunner::~PipelineRunner() {
    backend_.before_stalls({});
    stage_.between_layers({});
}

void PipelineRunner::run(const Window& window, Loader& loader, const Hooks& hooks) {
    if (window.begins) {
        hooks_ = hooks;
        begin_stream();
    }
    under_way_.append(window);
    if (recorder_ != nullptr) recorder_->start(window);
    for (const Action& action : window.actions[stage_index_]) {
        if (action.kind == ActionKind::recv_forward) forward_receives_.push_back(action);
        if (action.kind == ActionKind::recv_backward) backward_receives_.push_back(action);
    }
    window_arrived_ = !on_device_ || !hooks_.has_window;
    wait_for_lanes();
    const std::vector<Action>& actions = window.actions[stage_index_];
    for (std::size_t i = 0; i < actions.size(); ++i) {
        const Action& action = actions[i];
        const activity::Task task = traits_of(action.kind).task;
        activity::begin(task, number_of(action), on_device_);
        const ProfilerRange range(backend_, activity::words_of(task), number_of(action));
        const RecordedAction recorded(recorder_, action, under_way_);
        stay_near();
        post_receives();
        if (stage_.streams())
            expect_pass({actions.begin() + static_cast<std::ptrdiff_t>(i) + 1, actions.end()});
        perform(action, loader);
        under_way_.performed(action);
        reads_.poll();
        if (exchange_ != nullptr) exchange_->poll();
        if (!on_device_) communicator_.progress();
        if (hooks_.between_actions) hooks_.between_actions();
    }
    if (!window.drains) return;
    activity::begin(activity::Task::end_window, -1, on_device_);
    drain();
    hooks_ = {};
}

/// Rank 0. A device's queue of kernels holds so many; whoever adds more waits in the driver, where
/// rank 0 lets no window travel on to the ranks that its device waits for. Lanes sum from their
/// first kernels on; what they have yet to do before this window, rank 0 has done.
void PipelineRunner::wait_for_lanes() {
    if (window_arrived_ || view_.replica.tensor == 1) return;
    wait_until([this] { return lanes_have_window(view_.replica, stage_index_); });
}

/// The others may need this window's first messages to end the one before: rank 0 goes on, an
/// action ahead of its device.
void PipelineRunner::stay_near() {
    if (window_arrived_) return;
    const std::unique_ptr<Readback> here = backend_.read_later({});
    wait_until([&] {
        window_arrived_ = all_have_window();
        return window_arrived_ || here->ready();
    });
}

bool PipelineRunner::lanes_have_window(const ReplicaPlan& replica, std::size_t stage) const {
    const int first = replica.stages[stage].rank;
    for (int rank = std::max(first, 1); rank < first + replica.tensor; ++rank) {
        if (!hooks_.has_window(rank)) return false;
    }
    return true;
}

bool PipelineRunner::all_have_window() const {
    for (const ReplicaPlan& replica : view_.plan.replicas) {
        for (std::size_t stage = 0; stage < replica.stages.size(); ++stage) {
            if (!lanes_have_window(replica, stage)) return false;
        }
    }
    return true;
}

template <class Condition>
void PipelineRunner::wait_until(const Condition& holds) {
    const activity::Waiting waiting;
    while (!holds()) {
        work_while_waiting(communicator_);
        if (hooks_.between_actions) hooks_.between_actions();
        std::this_thread::sleep_for(reach_interval);
    }
}

/// The next forward or backward of `later`, where there is one.
void PipelineRunner::expect_pass(std::span<const Action> later) {
    for (const Action& action : later) {
        if (action.kind == ActionKind::forward) return stage_.expect(Stage::Pass::forward);
        if (action.kind == ActionKind::backward) return stage_.expect(Stage::Pass::backward);
    }
}

void PipelineRunner::begin_stream() {
    reads_.clear();
    forward_receives_.clear();
    backward_receives_.clear();
    forward_.clear();
    forward_.resize(static_cast<std::size_t>(stage_.slots()));
    backward_.clear();
    backward_.resize(gradient_buffers);
    evaluations_.clear();
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
        case ActionKind::reduce:
            return reduce(action.batch);
        case ActionKind::recv_norms:
            return receive_norms(action);
        case ActionKind::send_norms:
            return send_norms(action);
    }
}

void PipelineRunner::post_receives() {
    while (!forward_receives_.empty() && forward_on(forward_receives_.front()).free) {
        const Action& action = forward_receives_.front();
        const TensorView input = stage_.input(action.slot, tokens_of(action));
        const std::size_t bytes = payload_bytes(input) + action.carried.size() * sizeof(double);
        Messages& messages = forward_on(action);
        messages.in = communicator_.receive(input.data, bytes, peer_of(action), Channel::forward);
        messages.free = false;
        forward_receives_.pop_front();
    }
    while (!backward_receives_.empty() && backward_on(backward_receives_.front()).free) {
        const Action& action = backward_receives_.front();
        const TensorView gradient = message(gradient_in_, action);
        const std::size_t bytes =
            payload_bytes(gradient) + 2 * action.carried.size() * sizeof(double);
        Messages& messages = backward_on(action);
        messages.in =
            communicator_.receive(gradient.data, bytes, peer_of(action), Channel::backward);
        messages.free = false;
        backward_receives_.pop_front();
    }
}

void PipelineRunner::receive_forward(const Action& action) {
    wait_for(*forward_on(action).in);
    const TensorView input = stage_.input(action.slot, tokens_of(action));
    move_tail(Tail::received, static_cast<char*>(input.data) + payload_bytes(input), action,
              {stage_.sums().total});
}

void PipelineRunner::forward(const Action& action, Loader& loader) {
    const std::int32_t m = number(action.microbatch);
    const Microbatch& microbatch = under_way_.microbatch(action.microbatch);
    activity::begin(activity::Task::load_rows, m);
    const PackedBatch packed = loader.next();
    activity::begin(activity::Task::forward, m, on_device_);
    LossTerms terms;
    terms.evaluation = microbatch.evaluation;
    terms.base_alone = hooks_.base_alone;
    terms.by_target = refers_by_target(microbatch);
    for (const Segment& segment : microbatch.segments) {
        const std::int32_t batch = under_way_.batch_of(microbatch, segment);
        terms.denominators.push_back(under_way_.batch(batch).denominator);
        terms.pairs_per_chosen_target.push_back(under_way_.batch(batch).pairs_per_chosen_target());
    }
    if (const auto& sending = forward_on(action).out) wait_for(*sending);
    MicrobatchRows rows;
    if (first()) rows.token_ids = packed.token_ids;
    if (last()) rows.targets = packed.targets;
    if (last()) rows.weights = packed.weights;
    if (last()) rows.advantages = packed.advantages;
    if (last()) rows.logprobs = packed.logprobs;
    rows.positions = packed.positions;
    rows.sample_ids = packed.sample_ids;
    rows.offsets = packed.offsets;
    stage_.forward(action.slot, microbatch, rows, terms);
    if (!microbatch.evaluation) return report_step(action.microbatch);
    if (last()) {
        collect_evaluation(action.microbatch);
    } else {
        reads_.mark();
    }
    forward_on(action).free = true;
}

void PipelineRunner::send_forward(const Action& action) {
    const TensorView output = stage_.output(action.slot, tokens_of(action));
    const std::size_t payload = payload_bytes(output);
    move_tail(Tail::sent, static_cast<char*>(output.data) + payload, action, {stage_.sums().total});
    forward_on(action).out =
        communicator_.send(output.data, payload + action.carried.size() * sizeof(double),
                           peer_of(action), Channel::forward);
}

void PipelineRunner::receive_backward(const Action& action) {
    wait_for(*backward_on(action).in);
    const TensorView gradient = message(gradient_in_, action);
    move_tail(Tail::received, static_cast<char*>(gradient.data) + payload_bytes(gradient), action,
              {stage_.sums().received, stage_.sums().loss});
}

void PipelineRunner::backward(const Action& action) {
    TensorView d_output;
    TensorView d_input;
    if (!last()) d_output = message(gradient_in_, action);
    if (!first()) {
        d_input = message(gradient_out_, action);
        if (const auto& sending = backward_on(action).out) wait_for(*sending);
    }
    stage_.backward(action.slot, d_output, d_input);
    forward_on(action).free = true;
    if (!last()) backward_on(action).free = true;
    reads_.mark();
    if (exchange_ == nullptr) finish_batches(action.microbatch);
}

void PipelineRunner::finish_batches(MicrobatchId microbatch) {
    const Microbatch& done = under_way_.microbatch(microbatch);
    for (const Segment& segment : done.segments) {
        const BatchPlan& batch = under_way_.batch(under_way_.batch_of(done, segment));
        if (batch.last_microbatch != microbatch) continue;
        stage_.finish_batch(batch.adapter, !last());
        if (first()) report_batch(batch);
    }
}

void PipelineRunner::report_batch(const BatchPlan& batch) {
    const auto a = static_cast<std::int32_t>(index(batch.adapter));
    const StageSums& sums = stage_.sums();
    backend_.move_doubles({sums.total, sums.partial, {&a, 1}, {&a, 1}, false});
    reads_.read({{sums.loss + a, sizeof(double)}, {sums.total + a, sizeof(double)}},
                [this, batch](const double* values) {
                    if (hooks_.on_batch) hooks_.on_batch({batch, values[0], values[1]});
                });
}

void PipelineRunner::send_backward(const Action& action) {
    const TensorView gradient = message(gradient_out_, action);
    const std::size_t payload = payload_bytes(gradient);
    move_tail(Tail::sent, static_cast<char*>(gradient.data) + payload, action,
              {stage_.sums().partial, stage_.sums().loss});
    backward_on(action).out =
        communicator_.send(gradient.data, payload + 2 * action.carried.size() * sizeof(double),
                           peer_of(action), Channel::backward);
}

void PipelineRunner::step(std::int32_t batch_number) {
    if (exchange_ != nullptr) finish_reduce(batch_number);
    const BatchPlan& batch = under_way_.batch(batch_number);
    const int total_steps = view_.plan.adapters[index(batch.adapter)].total_steps;
    stage_.step(batch.adapter, learning_rate(job_.adapter(batch.adapter), total_steps, batch.step));
    if (hooks_.on_step) hooks_.on_step(batch);
}

void PipelineRunner::reduce(std::int32_t batch_number) {
    LORATRAIN_CHECK(exchange_ != nullptr, "batch ", batch_number, " has no replicas to be summed");
    const AdapterId adapter = under_way_.batch(batch_number).adapter;
    exchange_->begin({batch_number, adapter, stage_.bank().gradient_array(adapter),
                      stage_.loss_to_report(adapter)});
}

void PipelineRunner::finish_reduce(std::int32_t batch_number) {
    const BatchPlan& batch = under_way_.batch(batch_number);
    const bool waits = recorder_ != nullptr && !exchange_->over(batch_number);
    if (waits) recorder_->begin_wait();
    if (exchange_->waits_for_backend()) settle();
    const GradientExchange::Sums sums = exchange_->finish(batch_number, [this] {
        communicator_.progress();
        if (hooks_.between_actions) hooks_.between_actions();
    });
    if (waits) recorder_->end_wait();
    stage_.set_total(batch.adapter, sums.squares);
    if (hooks_.on_batch) hooks_.on_batch({batch, sums.loss, sums.squares});
}

void PipelineRunner::receive_norms(const Action& action) {
    void* tail = gradient_in_[static_cast<std::size_t>(action.buffer)].data();
    wait_for(*communicator_.receive(tail, action.carried.size() * sizeof(double), peer_of(action),
                                    Channel::norms));
    move_tail(Tail::received, tail, action, {stage_.sums().total});
}

void PipelineRunner::send_norms(const Action& action) {
    auto& out = backward_on(action).out;
    if (out) wait_for(*out);
    void* tail = gradient_out_[static_cast<std::size_t>(action.buffer)].data();
    move_tail(Tail::sent, tail, action, {stage_.sums().total});
    out = communicator_.send(tail, action.carried.size() * sizeof(double), peer_of(action),
                             Channel::norms);
}

bool PipelineRunner::refers_by_target(const Microbatch& microbatch) const {
    return hooks_.on_reference &&
           job_.adapter(microbatch.segments.front().adapter).loss.is_of_rollouts();
}

void PipelineRunner::collect_references(const Microbatch& microbatch) {
    const bool by_target = refers_by_target(microbatch);
    std::vector<std::pair<SampleRef, std::size_t>> samples;
    std::size_t count = 0;
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) {
            samples.emplace_back(sample, by_target ? static_cast<std::size_t>(sample.targets) : 1);
            count += samples.back().second;
        }
    }
    reads_.read({{stage_.sums().sample_nll, count * sizeof(double)}},
                [this, samples](const double* values) {
                    for (const auto& [sample, own] : samples) {
                        hooks_.on_reference(sample, std::span(values, own));
                        values += own;
                    }
                });
}

void PipelineRunner::collect_evaluation(MicrobatchId id) {
    const Microbatch& microbatch = under_way_.microbatch(id);
    if (hooks_.on_reference) return collect_references(microbatch);
    std::vector<BatchPlan> batches;
    for (const Segment& segment : microbatch.segments) {
        batches.push_back(under_way_.batch(under_way_.batch_of(microbatch, segment)));
    }
    const auto samples = static_cast<std::size_t>(microbatch.samples());
    const std::size_t bytes = samples * sizeof(double);
    reads_.read({{stage_.sums().sample_nll, bytes}, {stage_.sums().sample_wrong, bytes}},
                [this, id, microbatch, batches, samples](const double* values) {
                    add_evaluation(id, microbatch, batches, values, values + samples);
                });
}

void PipelineRunner::add_evaluation(MicrobatchId id, const Microbatch& microbatch,
                                    std::span<const BatchPlan> batches, const double* nll,
                                    const double* wrong) {
    std::size_t sample = 0;
    for (std::size_t s = 0; s < batches.size(); ++s) {
        const Segment& segment = microbatch.segments[s];
        const std::span<const double> own(nll + sample, segment.samples.size());
        EvalResult& result = evaluations_[segment.adapter];
        result.adapter = segment.adapter;
        result.replica = own_replica();
        result.step = batches[s].step;
        result.denominator = batches[s].denominator;
        result.set_files(batches[s].file_denominators);
        const std::vector<std::int64_t>& files =
            view_.plan.adapters[index(segment.adapter)].eval_files;
        std::vector<double> losses(own.size());
        result.rewards.add(
            stage_.losses().evaluated(segment, batches[s].pairs_per_chosen_target(), own, losses));
        for (std::size_t i = 0; i < losses.size(); ++i, ++sample) {
            result.loss_sum += losses[i];
            if (!result.files.empty()) {
                result.files[file_of(files, segment.samples[i].index)].loss_sum += losses[i];
            }
            result.exact_samples += wrong[sample] == 0.0 ? 1 : 0;
            ++result.samples;
        }
        if (batches[s].last_microbatch != id) continue;
        if (hooks_.on_evaluation) hooks_.on_evaluation(result);
        evaluations_.erase(segment.adapter);
    }
}

/// Of batches with rewards that the microbatch completes here.
void PipelineRunner::report_step(MicrobatchId id) {
    if (!last()) return;
    const Microbatch& microbatch = under_way_.microbatch(id);
    for (const Segment& segment : microbatch.segments) {
        const BatchPlan& batch = under_way_.batch(under_way_.batch_of(microbatch, segment));
        if (!job_.has_step_details(segment.adapter) || batch.last_microbatch != id) continue;
        EvalResult result;
        result.adapter = segment.adapter;
        result.step = segment.step + 1;
        result.denominator = batch.denominator;
        result.replica = own_replica();
        result.training = true;
        const LossPasses::StepSums sums = stage_.losses().take_sums(segment.adapter, segment.step);
        result.rewards = sums.rewards;
        result.set_files(batch.file_denominators);
        for (std::size_t f = 0; f < sums.file_losses.size(); ++f) {
            result.files[f].loss_sum = sums.file_losses[f];
        }
        if (hooks_.on_evaluation) hooks_.on_evaluation(result);
    }
}

std::int32_t PipelineRunner::own_replica() const {
    return static_cast<std::int32_t>(&view_.replica - view_.plan.replicas.data());
}

void PipelineRunner::drain() {
    if (!window_arrived_) wait_until([this] { return all_have_window(); });
    for (const auto* all : {&forward_, &backward_}) {
        for (const Messages& messages : *all) {
            if (messages.out) wait_for(*messages.out);
        }
    }
    reads_.finish();
}

std::int64_t PipelineRunner::tokens_of(const Action& action) const {
    return under_way_.microbatch(action.microbatch).tokens();
}

TensorView PipelineRunner::message(const std::vector<Buffer>& buffers, const Action& action) const {
    return matrix(buffers[static_cast<std::size_t>(action.buffer)].data(), backend_.compute_dtype(),
                  tokens_of(action), view_.lane_model.hidden_size);
}

std::size_t PipelineRunner::payload_bytes(const TensorView& payload) const {
    const std::size_t bytes = static_cast<std::size_t>(payload.numel()) * payload.element_size();
    return round_up(bytes, sizeof(double));
}

const std::vector<std::int32_t>& PipelineRunner::carried_adapters(const Action& action) {
    adapters_.clear();
    for (const std::int32_t batch : action.carried) {
        adapters_.push_back(number(under_way_.batch(batch).adapter));
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
