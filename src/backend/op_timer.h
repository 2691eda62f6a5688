#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/stream_clock.h"

namespace loratrain {

/// What a rank's time can go to; ops of backend.h, and waits for other ranks.
enum class TimedOp : std::uint8_t {
    gemm,
    gemm_fp8,
    quantize_rows,
    transpose_codes,
    dequantize,
    attention,
    attention_backward,
    lora_pack,
    lora_shrink,
    lora_expand,
    lora_backward,
    lora_grad_a,
    lora_gated_forward,
    lora_gated_backward,
    lora_expand_backward,
    lora_gather_a,
    lora_scatter_a,
    dora_norms,
    dora_scale,
    dora_grad_magnitude,
    vera_product,
    vera_gradients,
    drop_rows,
    rms_norm,
    rms_norm_backward,
    swiglu,
    swiglu_backward,
    xielu,
    xielu_backward,
    route,
    combine_experts,
    weigh_experts,
    weigh_rows,
    narrow_experts,
    widen_experts,
    add_expert_grads,
    route_backward,
    rope,
    copy,
    add_bias,
    add,
    gather_rows,
    add_noise,
    scatter_rows,
    soft_cap,
    cross_entropy,
    sum_squares,
    adamw,
    adamw_8bit,
    fill,      ///< zero, fill_random, draw_uniform
    transfer,  ///< upload, download
    move_doubles,
    wait_weights,  ///< for frozen weights that stream
    wait_receive,
    wait_send,
};
inline constexpr std::size_t timed_op_count = 55;

/// Ops that belong together in a report.
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

/// Adds up the stream time of ops between start() and stop(); does nothing outside. Ops do not
/// nest. On a GPU an op's time is from the end of the work before it to its own end, as far as the
/// host was ahead; where the host was late, the gap before the op is nobody's and the gaps between
/// the op's kernels are the op's.
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
