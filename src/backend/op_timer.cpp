#include "backend/op_timer.h"

namespace loratrain {

namespace {

struct OpEntry {
    const char* name;
    TimedPart part;
};

constexpr std::array<OpEntry, timed_op_count> op_table{{
    {"gemm", TimedPart::gemm},
    {"gemm_fp8", TimedPart::gemm},
    {"quantize_rows", TimedPart::quantization},
    {"transpose_codes", TimedPart::quantization},
    {"dequantize", TimedPart::quantization},
    {"attention", TimedPart::attention},
    {"attention_backward", TimedPart::attention},
    {"lora_pack", TimedPart::lora},
    {"lora_shrink", TimedPart::lora},
    {"lora_expand", TimedPart::lora},
    {"lora_backward", TimedPart::lora},
    {"lora_grad_a", TimedPart::lora},
    {"lora_gated_forward", TimedPart::elementwise},
    {"lora_gated_backward", TimedPart::elementwise},
    {"lora_expand_backward", TimedPart::lora},
    {"lora_gather_a", TimedPart::lora},
    {"lora_scatter_a", TimedPart::lora},
    {"dora_norms", TimedPart::lora},
    {"dora_scale", TimedPart::lora},
    {"dora_grad_magnitude", TimedPart::lora},
    {"vera_product", TimedPart::lora},
    {"vera_gradients", TimedPart::lora},
    {"drop_rows", TimedPart::lora},
    {"rms_norm", TimedPart::elementwise},
    {"rms_norm_backward", TimedPart::elementwise},
    {"swiglu", TimedPart::elementwise},
    {"swiglu_backward", TimedPart::elementwise},
    {"xielu", TimedPart::elementwise},
    {"xielu_backward", TimedPart::elementwise},
    {"route", TimedPart::elementwise},
    {"combine_experts", TimedPart::elementwise},
    {"weigh_experts", TimedPart::elementwise},
    {"weigh_rows", TimedPart::elementwise},
    {"narrow_experts", TimedPart::lora},
    {"widen_experts", TimedPart::lora},
    {"add_expert_grads", TimedPart::lora},
    {"route_backward", TimedPart::elementwise},
    {"rope", TimedPart::elementwise},
    {"copy", TimedPart::elementwise},
    {"add_bias", TimedPart::elementwise},
    {"add", TimedPart::elementwise},
    {"gather_rows", TimedPart::elementwise},
    {"add_noise", TimedPart::elementwise},
    {"scatter_rows", TimedPart::elementwise},
    {"soft_cap", TimedPart::loss},
    {"cross_entropy", TimedPart::loss},
    {"sum_squares", TimedPart::optimizer},
    {"adamw", TimedPart::optimizer},
    {"adamw_8bit", TimedPart::optimizer},
    {"fill", TimedPart::other},
    {"transfer", TimedPart::other},
    {"move_doubles", TimedPart::other},
    {"wait_weights", TimedPart::communication},
    {"wait_receive", TimedPart::communication},
    {"wait_send", TimedPart::communication},
}};

constexpr std::array<const char*, timed_part_count> part_names{
    "gemm", "quantization", "attention", "lora",         "elementwise",
    "loss", "optimizer",    "other",     "communication"};

}  // namespace

const char* name_of(TimedOp op) {
    return op_table[static_cast<std::size_t>(op)].name;
}

const char* name_of(TimedPart part) {
    return part_names[static_cast<std::size_t>(part)];
}

TimedPart part_of(TimedOp op) {
    return op_table[static_cast<std::size_t>(op)].part;
}

double OpTimes::of(TimedPart part) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < timed_op_count; ++i) {
        if (op_table[i].part == part) sum += seconds[i];
    }
    return sum;
}

double OpTimes::total() const {
    double sum = 0.0;
    for (const double value : seconds) sum += value;
    return sum;
}

OpTimes OpTimer::stop() {
    running_ = false;
    const std::vector<double> points = clock_->read();
    OpTimes times;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
        const auto op = static_cast<std::size_t>(ops_[i]);
        times.seconds[op] += points[2 * i + 1] - points[2 * i];
        ++times.calls[op];
    }
    ops_.clear();
    return times;
}

}  // namespace loratrain
