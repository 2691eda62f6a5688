#include "app/bench_summary.h"

#include "app/bench_rates.h"

namespace loratrain {

BenchSummary::BenchSummary(const CommandLine::Bench& bench, const BenchResult& result)
    : ranks(static_cast<int>(result.planned_bytes.size())),
      tokens_per_step(result.window.tokens / bench.steps),
      seconds_per_step(result.window.seconds / bench.steps),
      lora_off_seconds_per_step(result.lora_off.seconds / bench.steps),
      tokens_per_second(result.window.tokens / result.window.seconds),
      tokens_per_second_per_rank(tokens_per_second / ranks),
      peak_flop_rate(loratrain::peak_flop_rate(result.device, result.compute)) {
    const TokenFlop flop = token_flop(result.model, result.window.squares / result.window.tokens);
    weight_flop_rate = flop.weights * tokens_per_second_per_rank;
    attention_flop_rate = flop.attention * tokens_per_second_per_rank;
    gemm_flop_rate =
        flop.weights * static_cast<double>(result.microbatch_tokens) / result.gemm_seconds;
    if (!peak_flop_rate) return;
    mfu = weight_flop_rate / *peak_flop_rate;
    mfu_with_attention = useful_flop_rate() / *peak_flop_rate;
}

}  // namespace loratrain
