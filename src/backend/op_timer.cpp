#include "backend/op_timer.h"

namespace loratrain {

namespace {

struct OpEntry {
    const char* name;
    TimedPart part;
};

constexpr std::array<OpEntry, timed_op_count> op_table{{{"zero", TimedPart::other},
                                                        {"transfer", TimedPart::other},
                                                        {"wait_weights", TimedPart::communication},
                                                        {"wait_receive", TimedPart::communication},
                                                        {"wait_send", TimedPart::communication},
#define LORATRAIN_OP_ENTRY(name, Parameter, part) {#name, TimedPart::part},
                                                        LORATRAIN_OPERATORS(LORATRAIN_OP_ENTRY)
#undef LORATRAIN_OP_ENTRY
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
