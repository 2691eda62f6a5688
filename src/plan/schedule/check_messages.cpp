#include <algorithm>
#include <set>
#include <utility>

#include "plan/action_traits.h"
#include "plan/schedule/check_execution.h"

/// Messages of a stage that is executed symbolically, and the slots and buffers where they lie.

namespace loratrain {

bool StreamExecution::receive(std::size_t s, const Action& action, Sent& messages) {
    if (messages.empty()) return false;
    const Action sent = std::move(messages.front());
    messages.pop_front();
    const bool matches = sent.microbatch == action.microbatch && sent.carried == action.carried &&
                         traits_of(sent.kind).channel == traits_of(action.kind).channel;
    if (!matches) complain(s, action, "receives ", action_text(sent));
    check_peer(s, action);
    CheckedStage& stage = stages_[s];
    if (action.kind == ActionKind::recv_forward) {
        if (stage.input) complain(s, action, "the input before it was not forwarded");
        stage.input = number(action.microbatch);
        take_place(s, action, stage.slots, action.slot, "slot");
    } else {
        take_place(s, action, stage.gradients, action.buffer, "buffer");
    }
    if (action.kind == ActionKind::recv_backward) {
        if (stage.output_gradient) complain(s, action, "the one before was not backwarded");
        stage.output_gradient = number(action.microbatch);
    }
    if (action.kind == ActionKind::recv_norms) empty_place(stage.gradients, action.buffer);
    for (const std::int32_t b : action.carried) note_received(s, action, b);
    return true;
}

void StreamExecution::note_received(std::size_t s, const Action& action, std::int32_t b) {
    BatchProgress* on = batches_.progress(s, b);
    if (on == nullptr) return complain(s, action, "batch ", b, " has left the stage");
    bool& known =
        action.kind == ActionKind::recv_backward ? on->partial_received : on->total_received;
    if (known) complain(s, action, "batch ", b, " arrives a second time");
    known = true;
}

void StreamExecution::check_peer(std::size_t s, const Action& action) {
    const ActionTraits& traits = traits_of(action.kind);
    const bool sends = traits.role == ActionRole::send;
    const std::size_t neighbour = goes_up(traits.channel) == sends ? s + 1 : s - 1;
    if (neighbour >= stages_.size()) return;
    const std::int32_t rank = view_.replica.stages[neighbour].rank;
    if (action.peer != rank) complain(s, action, "its peer is rank ", rank);
}

void StreamExecution::take_place(std::size_t s, const Action& action, Places& places,
                                 std::int32_t at, const char* what) {
    if (at < 0 || place(at) >= places.size()) {
        return complain(s, action, "there is no ", what, " ", at);
    }
    const std::optional<std::int32_t> held = places[place(at)];
    if (held) complain(s, action, what, " ", at, " still holds microbatch ", *held);
    places[place(at)] = number(action.microbatch);
}

void StreamExecution::check_place(std::size_t s, const Action& action, const Places& places,
                                  std::int32_t at, const char* what) {
    const bool there =
        at >= 0 && place(at) < places.size() && places[place(at)] == number(action.microbatch);
    if (!there) complain(s, action, "is not in ", what, " ", at);
}

void StreamExecution::empty_place(Places& places, std::int32_t at) {
    if (at >= 0 && place(at) < places.size()) places[place(at)].reset();
}

void StreamExecution::send_up(std::size_t s, const Action& action) {
    if (action.kind == ActionKind::send_forward) {
        take_produced(s, action, stages_[s].output);
        check_place(s, action, stages_[s].slots, action.slot, "slot");
        if (evaluates(action)) empty_place(stages_[s].slots, action.slot);
    } else {
        check_buffer(s, action);
    }
    check_peer(s, action);
    check_carried(s, action);
    for (const std::int32_t b : action.carried) {
        if (!batches_.total_known(s, b)) {
            complain(s, action, "the total of batch ", b, " is not known");
        }
    }
    if (is_last(s)) {
        complain(s, action, "there is no next stage");
    } else {
        up_[s + 1].push_back(action);
    }
}

void StreamExecution::send_down(std::size_t s, const Action& action) {
    take_produced(s, action, stages_[s].input_gradient);
    check_buffer(s, action);
    if (action.buffer != stages_[s].input_gradient_buffer) {
        complain(s, action, "is not in buffer ", action.buffer);
    }
    check_peer(s, action);
    check_carried(s, action);
    std::set<std::int32_t> due;
    for (const std::int32_t b : batches_.batches_in(action.microbatch)) {
        const BatchState* batch = batches_.find(b);
        const bool ends = batch != nullptr && batch->last_microbatch == action.microbatch;
        if (ends && !joint_) due.insert(b);
    }
    if (due != std::set<std::int32_t>(action.carried.begin(), action.carried.end())) {
        complain(s, action, "carries other batches than those whose last backward it follows");
    }
    for (const std::int32_t b : action.carried) {
        if (!batches_.sum_complete(s, b)) {
            complain(s, action, "the sum of batch ", b, " is not complete");
        }
    }
    if (s == 0) {
        complain(s, action, "there is no stage before");
    } else {
        down_[s - 1].push_back(action);
    }
}

void StreamExecution::check_buffer(std::size_t s, const Action& action) {
    if (action.buffer < 0 || action.buffer >= gradient_buffers) {
        complain(s, action, "there is no buffer ", action.buffer);
    }
}

void StreamExecution::take_produced(std::size_t s, const Action& action,
                                    std::optional<std::int32_t>& produced) {
    if (produced != number(action.microbatch)) complain(s, action, "has nothing to send");
    produced.reset();
}

void StreamExecution::check_carried(std::size_t s, const Action& action) {
    std::set<AdapterId> adapters;
    for (const std::int32_t b : action.carried) {
        if (batches_.progress(s, b) == nullptr) {
            complain(s, action, "batch ", b, " has left the stage");
        } else if (batches_.find(b)->evaluation) {
            complain(s, action, "carries evaluation ", b);
        } else if (!adapters.insert(batches_.find(b)->adapter).second) {
            complain(s, action, "carries two batches of one adapter");
        }
    }
}

}  // namespace loratrain
