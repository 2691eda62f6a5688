#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace loratrain {

/// Timing of a rank's operators on its stream.

/// Kinds of work and waiting: the operators of backend.h, copies, and waits.
enum class TimedOp : std::uint8_t {
    zero,
    transfer,      ///< upload, download
    wait_weights,  ///< for frozen weights that stream
    wait_receive,
    wait_send,
#define LORATRAIN_TIMED_OPERATOR(name, Parameter, part) name,
    LORATRAIN_OPERATORS(LORATRAIN_TIMED_OPERATOR) count
#undef LORATRAIN_TIMED_OPERATOR
};
inline constexpr auto timed_op_count = static_cast<std::size_t>(TimedOp::count);

/// Groups of TimedOps in a report.
enum class TimedPart : std::uint8_t {
    gemm,
    quantization,  ///< to codes and back
    attention,
    lora,
    elementwise,
    loss,
    optimizer,
    other,  ///< small transfers and sums
    communication,
};
inline constexpr std::size_t timed_part_count = 9;

const char* name_of(TimedOp op);
const char* name_of(TimedPart part);
TimedPart part_of(TimedOp op);

struct OpTimes {
    std::array<double, timed_op_count> seconds{};
    std::array<std::int64_t, timed_op_count> calls{};
    double of(TimedPart part) const;
    double total() const;
};

/// Adds up the stream time of operators between start() and stop(). Operators do not nest. On a
/// GPU, an operator's time lasts from the end of the work before it to its own end while the host
/// is ahead of the GPU. Where the host is late, the gap before an operator belongs to no operator,
/// and the gaps between its kernels belong to it.
class OpTimer {
  public:
    explicit OpTimer(Backend& backend) : clock_(backend.make_clock()) {}

    void start() { running_ = true; }
    void begin(TimedOp op) {
        if (!running_) return;
        clock_->mark();
        ops_.push_back(op);
    }
    void end() {
        if (running_) clock_->mark();
    }
    /// Waits for the stream.
    OpTimes stop();

  private:
    std::unique_ptr<StreamClock> clock_;
    std::vector<TimedOp> ops_;
    bool running_ = false;
};

}  // namespace loratrain
