#include "bench/bench_report.h"

#include <cmath>

#include "plan/cost/cost_model.h"
#include "plan/cost/device.h"

namespace loratrain {

BenchSummary::BenchSummary(const CommandLine::Bench& bench, const BenchResult& result)
    : ranks(static_cast<int>(result.planned_bytes.size())),
      tokens_per_step(result.window.tokens / bench.steps),
      seconds_per_step(result.window.seconds / bench.steps),
      tokens_per_second(result.window.tokens / result.window.seconds),
      tokens_per_second_per_rank(tokens_per_second / ranks),
      peak_flop_rate(loratrain::peak_flop_rate(result.device, result.compute)) {
    const TokenFlop flop = token_flop(result.model, result.window.squares / result.window.tokens);
    weight_flop_rate = flop.weights * tokens_per_second_per_rank;
    attention_flop_rate = flop.attention * tokens_per_second_per_rank;
    if (result.gemm_seconds) {
        gemm_flop_rate =
            flop.weights * static_cast<double>(result.microbatch_tokens) / *result.gemm_seconds;
        share_of_gemm_rate = useful_flop_rate() / *gemm_flop_rate;
    }
    if (result.lora_off) {
        lora_off_seconds_per_step = result.lora_off->seconds / bench.steps;
        lora_overhead = seconds_per_step / *lora_off_seconds_per_step - 1.0;
    }
    for (std::size_t r = 0; r < result.peak_bytes.size(); ++r) {
        const double error = static_cast<double>(result.peak_bytes[r]) /
                                 static_cast<double>(result.planned_bytes[r]) -
                             1.0;
        if (std::abs(error) > std::abs(memory_error)) memory_error = error;
    }
    if (result.prediction) {
        prediction_error = result.prediction->seconds / result.window.seconds - 1.0;
        if (result.prediction->refined_seconds) {
            refined_error = *result.prediction->refined_seconds / result.window.seconds - 1.0;
        }
    }
    if (!peak_flop_rate) return;
    mfu = weight_flop_rate / *peak_flop_rate;
    mfu_with_attention = useful_flop_rate() / *peak_flop_rate;
}

}  // namespace loratrain
