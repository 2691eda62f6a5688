#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace loratrain {

/// What the main thread of this process is at, for messages about failures and for other threads
/// (the watchdog): one state per process, written by the main thread, read by any.
namespace activity {

enum class Task : std::uint8_t {
    set_up,
    plan,
    follow,
    load_rows,
    receive_input,
    forward,
    send_output,
    receive_gradient,
    backward,
    send_gradient,
    step,
    reduce,
    receive_norms,
    send_norms,
    end_window,
    admit,
    checkpoint,
    export_adapter,
    generate,
    finish,
};

struct State {
    Task task = Task::set_up;
    bool on_device = false;    ///< queues work on a GPU and waits for it: takes a bounded time
    bool waiting = false;      ///< for another rank
    std::int32_t number = -1;  ///< of a microbatch, batch, adapter or step; -1 = none
};

/// "backward of microbatch", without the number; lives as long as the program.
const char* words_of(Task task);
/// "backward of microbatch 3"
std::string to_string(const State& state);

/// The main thread starts on something new; counts as progress.
void begin(Task task, std::int32_t number = -1, bool on_device = false);
/// Progress inside what was begun.
void advance();

State now();
/// Grows with every sign of progress.
std::uint64_t progress();

/// The main thread waits for another rank as long as the object lives; the end counts as progress.
class Waiting {
  public:
    Waiting();
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
};

/// Work that takes any time (files) amid work on a device, as long as the object lives.
class OffDevice {
  public:
    OffDevice();
    ~OffDevice();
    OffDevice(const OffDevice&) = delete;
    OffDevice& operator=(const OffDevice&) = delete;

  private:
    bool before_;
};

/// Something short beside what the main thread is at or waits for, files among it: as long as the
/// object lives it does neither. Counts as progress only where it took longer than a second, so
/// that what hangs or waits for ever still shows.
class Aside {
  public:
    Aside();
    ~Aside();
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

  private:
    State before_;
    std::chrono::steady_clock::time_point start_;
};

}  // namespace activity
}  // namespace loratrain
