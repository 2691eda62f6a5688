#include "base/activity.h"

#include <atomic>
#include <exception>

#include "base/system.h"
#include "base/text.h"

namespace loratrain::activity {

namespace {

static_assert(sizeof(State) == 8);

std::atomic<State> state{State{}};
std::atomic<std::uint64_t> count{0};
Listener* listener = nullptr;  // of the main thread

void set(const State& changed) {
    state.store(changed, std::memory_order_relaxed);
    if (listener != nullptr) listener->changed(changed);
}

void set_waiting(bool waiting) {
    State changed = now();
    changed.waiting = waiting;
    set(changed);
}

void set_on_device(bool on_device) {
    State changed = now();
    changed.on_device = on_device;
    state.store(changed, std::memory_order_relaxed);
}

}  // namespace

const char* words_of(Task task) {
    switch (task) {
        case Task::set_up:
            return "setting up";
        case Task::plan:
            return "planning the next window";
        case Task::follow:
            return "waiting for what rank 0 says next";
        case Task::load_rows:
            return "reading the samples of microbatch";
        case Task::receive_input:
            return "receiving the input of microbatch";
        case Task::forward:
            return "forward of microbatch";
        case Task::send_output:
            return "sending the output of microbatch";
        case Task::receive_gradient:
            return "receiving the output gradient of microbatch";
        case Task::backward:
            return "backward of microbatch";
        case Task::send_gradient:
            return "sending the input gradient of microbatch";
        case Task::step:
            return "optimizer step of batch";
        case Task::reduce:
            return "sum over the replicas of batch";
        case Task::receive_norms:
            return "receiving gradient norms";
        case Task::send_norms:
            return "sending gradient norms";
        case Task::end_window:
            return "the end of a window";
        case Task::admit:
            return "admission of adapters";
        case Task::checkpoint:
            return "writing a checkpoint";
        case Task::export_adapter:
            return "exporting adapter";
        case Task::generate:
            return "generation with adapter";
        case Task::finish:
            return "finishing";
    }
    return "";
}

std::string to_string(const State& s) {
    return s.number < 0 ? words_of(s.task) : cat(words_of(s.task), " ", s.number);
}

void begin(Task task, std::int32_t number, bool on_device) {
    set({task, on_device, false, number});
    advance();
}

void listen(Listener* to) {
    listener = to;
}

void advance() {
    count.fetch_add(1, std::memory_order_relaxed);
}

State now() {
    return state.load(std::memory_order_relaxed);
}

std::uint64_t progress() {
    return count.load(std::memory_order_relaxed);
}

Waiting::Waiting() {
    set_waiting(true);
}

Waiting::~Waiting() {
    set_waiting(false);
    advance();
}

Inside::Inside(Task task, std::int32_t number)
    : before_(now()), exceptions_(std::uncaught_exceptions()) {
    begin(task, number);
}

Inside::~Inside() {
    if (std::uncaught_exceptions() == exceptions_) set(before_);
    advance();
}

OffDevice::OffDevice() : before_(now().on_device) {
    set_on_device(false);
}

OffDevice::~OffDevice() {
    set_on_device(before_);
    advance();
}

Aside::Aside() : before_(now()), start_(std::chrono::steady_clock::now()) {
    State aside = before_;
    aside.waiting = false;
    aside.on_device = false;
    state.store(aside, std::memory_order_relaxed);
}

Aside::~Aside() {
    constexpr double long_time = 1.0;
    state.store(before_, std::memory_order_relaxed);
    if (seconds_since(start_) > long_time) advance();
}

}  // namespace loratrain::activity
