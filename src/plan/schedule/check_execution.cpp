#include "plan/schedule/check_execution.h"

namespace loratrain {

void StreamExecution::begin(const Window& window, const SegmentBatches& batch_of,
                            Findings& findings) {
    findings_ = &findings;
    append(window, batch_of);
}

bool StreamExecution::run() {
    bool any = false;
    for (bool progress = true; progress;) {
        progress = false;
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            while (advance(s)) progress = any = true;
        }
    }
    return any;
}

void StreamExecution::end(const Window& window) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
        check_ends(s);
        if (window.drains) check_drained(s);
        check_peak(s, window);
    }
}

void StreamExecution::append(const Window& window, const SegmentBatches& batch_of) {
    std::int32_t backwarded = batches_.microbatches();
    for (const CheckedStage& stage : stages_) {
        backwarded = std::min(backwarded, stage.backwarded);
    }
    batches_.append(window, batch_of, backwarded);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
        stages_[s].next_action = 0;
        stages_[s].actions = window.actions[s];
    }
}

bool StreamExecution::advance(std::size_t s) {
    CheckedStage& stage = stages_[s];
    if (stage.next_action == stage.actions.size()) return false;
    const Action action = stage.actions[stage.next_action];
    if (!execute(s, action)) return false;
    ++stage.next_action;
    return true;
}

bool StreamExecution::execute(std::size_t s, const Action& action) {
    const ActionTraits& traits = traits_of(action.kind);
    if (traits.role == ActionRole::receive) {
        return receive(s, action, goes_up(traits.channel) ? up_[s] : down_[s]);
    }
    switch (action.kind) {
        case ActionKind::send_forward:
        case ActionKind::send_norms:
            send_up(s, action);
            break;
        case ActionKind::send_backward:
            send_down(s, action);
            break;
        case ActionKind::forward:
            forward(s, action);
            break;
        case ActionKind::backward:
            backward(s, action);
            break;
        case ActionKind::step:
            if (waits_for_sum(s, action)) return false;
            step(s, action);
            break;
        case ActionKind::reduce:
            reduce(s, action);
            break;
        default:
            break;
    }
    if (computes(action.kind) && !action.carried.empty()) {
        complain(s, action, "carries sums but is no message");
    }
    return true;
}

void StreamExecution::forward(std::size_t s, const Action& action) {
    CheckedStage& stage = stages_[s];
    const std::int32_t microbatch = number(action.microbatch);
    if (microbatch != stage.forwarded) complain(s, action, "out of order or a second time");
    ++stage.forwarded;
    if (s > 0 && stage.input != microbatch) complain(s, action, "its input was not received");
    stage.input.reset();
    if (s == 0) {
        take_place(s, action, stage.slots, action.slot, "slot");
    } else {
        check_place(s, action, stage.slots, action.slot, "slot");
    }
    if (evaluates(action) && is_last(s)) empty_place(stage.slots, action.slot);
    if (stage.output) complain(s, action, "the output before it was not sent");
    if (!is_last(s)) stage.output = microbatch;
    stage.peak = std::max(stage.peak, stage.forwarded - stage.backwarded);
    for (const std::int32_t b : batches_.batches_in(action.microbatch)) {
        check_fresh(s, action, b);
        if (evaluates(action)) note_evaluated(s, b);
    }
    pass_evaluations(stage);
}

void StreamExecution::note_evaluated(std::size_t s, std::int32_t b) {
    BatchProgress* on = batches_.progress(s, b);
    if (on != nullptr && --on->passes_left == 0) on->stepped = true;
}

void StreamExecution::pass_evaluations(CheckedStage& stage) const {
    while (stage.backwarded < stage.forwarded &&
           batches_.evaluates(MicrobatchId{stage.backwarded})) {
        ++stage.backwarded;
    }
}

void StreamExecution::check_fresh(std::size_t s, const Action& action, std::int32_t b) {
    if (batches_.is_stepped(s, b)) {
        return complain(s, action, "batch ", b, " is already stepped");
    }
    const std::int32_t before = batches_.find(b)->predecessor;
    if (before >= 0 && !batches_.is_stepped(s, before)) {
        complain(s, action, "stale weights: batch ", before, " is not stepped yet");
    }
}

void StreamExecution::backward(std::size_t s, const Action& action) {
    CheckedStage& stage = stages_[s];
    const std::int32_t microbatch = number(action.microbatch);
    if (evaluates(action)) return complain(s, action, "evaluation has no backward");
    if (microbatch != stage.backwarded) complain(s, action, "out of order or a second time");
    if (microbatch >= stage.forwarded) complain(s, action, "was not forwarded");
    ++stage.backwarded;
    check_place(s, action, stage.slots, action.slot, "slot");
    empty_place(stage.slots, action.slot);
    if (!is_last(s)) {
        if (stage.output_gradient != microbatch) {
            complain(s, action, "its gradient was not received");
        }
        check_place(s, action, stage.gradients, action.buffer, "buffer");
        empty_place(stage.gradients, action.buffer);
    }
    stage.output_gradient.reset();
    if (stage.input_gradient) complain(s, action, "the gradient before it was not sent");
    if (s > 0) {
        check_buffer(s, action);
        stage.input_gradient = microbatch;
        stage.input_gradient_buffer = action.buffer;
    }
    for (const std::int32_t b : batches_.batches_in(action.microbatch)) {
        BatchProgress* on = batches_.progress(s, b);
        if (on != nullptr) --on->passes_left;
        if (on != nullptr && on->reduced) complain(s, action, "batch ", b, " is reduced");
        if (batches_.is_stepped(s, b)) complain(s, action, "batch ", b, " is already stepped");
    }
    pass_evaluations(stage);
}

bool StreamExecution::waits_for_sum(std::size_t s, const Action& action) const {
    const BatchProgress* on = batches_.progress(s, action.batch);
    return on != nullptr && on->reduced && !on->stepped && !sums_.is_there(action.batch);
}

void StreamExecution::step(std::size_t s, const Action& action) {
    const std::int32_t b = action.batch;
    if (batches_.is_stepped(s, b)) return complain(s, action, "is stepped a second time");
    if (batches_.find(b)->evaluation) return complain(s, action, "evaluation has no step");
    BatchProgress& on = *batches_.progress(s, b);
    if (on.passes_left != 0) complain(s, action, "backwards are missing");
    if (!joint_ && !batches_.total_known(s, b)) {
        complain(s, action, "its norm has not reached the stage");
    }
    if (joint_ && !on.reduced) complain(s, action, "is not reduced");
    if (joint_ && !sums_.step(first_stage_ + s, b)) {
        complain(s, action, "is stepped out of the order in which batches are reduced");
    }
    on.stepped = true;
}

void StreamExecution::reduce(std::size_t s, const Action& action) {
    const std::int32_t b = action.batch;
    BatchProgress* on = batches_.progress(s, b);
    if (!joint_) complain(s, action, "there is one replica alone");
    if (on == nullptr) return complain(s, action, "has left the stage");
    if (on->reduced) complain(s, action, "is reduced a second time");
    if (on->passes_left != 0) complain(s, action, "backwards are missing");
    const std::int32_t before = batches_.find(b)->predecessor;
    if (before >= 0 && !batches_.is_stepped(s, before)) {
        complain(s, action, "batch ", before, " is not stepped yet");
    }
    if (joint_ && !sums_.come(first_stage_ + s, b)) {
        complain(s, action, "is reduced out of the order that is announced");
    }
    on->reduced = true;
}

void StreamExecution::check_ends(std::size_t s) {
    const CheckedStage& stage = stages_[s];
    if (stage.next_action < stage.actions.size()) {
        complain(s, stage.actions[stage.next_action], "waits for ever");
    } else if (stage.output || stage.input_gradient) {
        findings_->add(stage_name(s), " ends with a tensor that was not sent");
    }
}

void StreamExecution::check_drained(std::size_t s) {
    const CheckedStage& stage = stages_[s];
    const std::int32_t count = batches_.microbatches();
    if (stage.next_action < stage.actions.size()) return;
    if (stage.forwarded != count || stage.backwarded != count) {
        findings_->add(stage_name(s), " does ", stage.forwarded, " forwards and ", stage.backwarded,
                       " backwards of ", count, " microbatches");
    }
    if (stage.input || stage.output_gradient) {
        findings_->add(stage_name(s), " ends with a tensor that was not used");
    }
    if (!up_[s].empty() || !down_[s].empty()) {
        findings_->add(stage_name(s), " ends with messages that it did not receive");
    }
    for (const auto& [b, batch] : batches_.held()) {
        if (!batch.stages[s].stepped) {
            findings_->add(stage_name(s), " never steps batch ", b);
        }
    }
}

void StreamExecution::check_peak(std::size_t s, const Window& window) {
    const std::int32_t peak = stages_[s].peak;
    if (peak != window.peak_in_flight[s]) {
        findings_->add(stage_name(s), " has ", peak, " microbatches in flight, the window says ",
                       window.peak_in_flight[s]);
    }
}

void StreamBatches::append(const Window& window, const SegmentBatches& batch_of,
                           std::int32_t backwarded) {
    leave(backwarded);
    for (const BatchPlan& batch : window.batches) {
        std::int32_t& newest = newest_.try_emplace(batch.adapter, -1).first->second;
        batches_[next_] = {batch.adapter, batch.evaluation, batch.last_microbatch, newest,
                           std::vector<BatchProgress>(stages_)};
        if (batch.evaluation && !batch.is_here()) {
            for (BatchProgress& on : batches_[next_].stages) on.stepped = true;
        }
        if (!batch.evaluation || batch.is_here()) newest = next_;
        ++next_;
    }
    for (std::size_t m = 0; m < batch_of.size(); ++m) {
        OfMicrobatch microbatch{{}, window.microbatches[m].evaluation};
        for (const std::int32_t b : batch_of[m]) {
            microbatch.batches.push_back(window.first_batch + b);
            for (BatchProgress& on : batches_[microbatch.batches.back()].stages) ++on.passes_left;
        }
        microbatches_.push_back(std::move(microbatch));
    }
}

void StreamBatches::leave(std::int32_t backwarded) {
    for (auto& [b, batch] : batches_) {
        for (BatchProgress& on : batch.stages) on.left = on.stepped;
    }
    std::erase_if(batches_, [](const auto& entry) {
        return std::all_of(entry.second.stages.begin(), entry.second.stages.end(),
                           [](const BatchProgress& on) { return on.left; });
    });
    microbatches_.drop_below(backwarded);
}

const BatchProgress* StreamBatches::progress(std::size_t stage, std::int32_t batch) const {
    const BatchState* state = find(batch);
    return state == nullptr || state->stages[stage].left ? nullptr : &state->stages[stage];
}

BatchProgress* StreamBatches::progress(std::size_t stage, std::int32_t batch) {
    return const_cast<BatchProgress*>(std::as_const(*this).progress(stage, batch));
}

bool StreamBatches::is_stepped(std::size_t stage, std::int32_t batch) const {
    const BatchProgress* on = progress(stage, batch);
    return on == nullptr || on->stepped;
}

bool StreamBatches::sum_complete(std::size_t stage, std::int32_t batch) const {
    const BatchProgress* on = progress(stage, batch);
    const bool is_last = stage + 1 == stages_;
    return on != nullptr && on->passes_left == 0 && (is_last || on->partial_received);
}

bool StreamBatches::total_known(std::size_t stage, std::int32_t batch) const {
    if (stage == 0) return sum_complete(stage, batch);
    const BatchProgress* on = progress(stage, batch);
    return on != nullptr && on->total_received;
}

const BatchState* StreamBatches::find(std::int32_t batch) const {
    const auto found = batches_.find(batch);
    return found == batches_.end() ? nullptr : &found->second;
}

const std::vector<std::int32_t>& StreamBatches::batches_in(MicrobatchId id) const {
    static const std::vector<std::int32_t> none;
    return microbatches_.holds(number(id)) ? microbatches_[number(id)].batches : none;
}

bool StreamBatches::evaluates(MicrobatchId id) const {
    return microbatches_.holds(number(id)) && microbatches_[number(id)].evaluation;
}

}  // namespace loratrain
