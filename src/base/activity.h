#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace loratrain {

/// What the main thread of this process is doing, for messages about failures and for the watchdog.
/// One state per process: the main thread writes it, any thread reads it.
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
    bool on_device = false;  ///< the task queues work on a GPU and waits for it, for a bounded time
    bool waiting = false;    ///< for another rank
    std::int32_t number = -1;  ///< microbatch, batch, adapter or step; -1 = none
};

/// "backward of microbatch": the task without its number, as a static text.
const char* words_of(Task task);
/// "backward of microbatch 3"
std::string to_string(const State& state);

/// Learns of changes of the state by begin(), Waiting and Inside. Called on the main thread; must
/// be quick.
class Listener {
  public:
    virtual ~Listener() = default;
    virtual void changed(const State& state) = 0;
};
/// Sets the listener; null: none. Main thread only.
void listen(Listener* listener);

/// The main thread begins a task; counts as progress.
void begin(Task task, std::int32_t number = -1, bool on_device = false);
/// Progress within the task.
void advance();

State now();
/// A counter that grows with every sign of progress.
std::uint64_t progress();

/// While one lives, the main thread waits for another rank. Its end counts as progress.
class Waiting {
  public:
    Waiting();
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
};

/// While one lives, the main thread does another task inside the one it has begun: it writes a
/// checkpoint while it waits for a message. Its end restores the state before, except in an
/// exception, whose message has to name the inner task. Both ends count as progress.
class Inside {
  public:
    explicit Inside(Task task, std::int32_t number = -1);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

  private:
    State before_;
    int exceptions_;
};

/// While one lives, a task on a device does something that may take any time (files).
class OffDevice {
  public:
    OffDevice();
    ~OffDevice();
    OffDevice(const OffDevice&) = delete;
    OffDevice& operator=(const OffDevice&) = delete;

  private:
    bool before_;
};

/// While one lives, the main thread interrupts its task or its waiting for something short, such as
/// writing a file. Only an interruption of more than a second counts as progress, so that a task
/// that hangs, or waits for ever, still shows.
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
