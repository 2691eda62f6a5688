#pragma once

#include <optional>

#include "bench/bench_report.h"

namespace loratrain {

/// The figures of a report, in SI units; "rate" is per rank.
struct BenchSummary {
    explicit BenchSummary(const CommandLine::Bench& bench, const BenchResult& result);

    int ranks = 1;
    double tokens_per_step = 0.0;
    double seconds_per_step = 0.0;
    double tokens_per_second = 0.0;
    double tokens_per_second_per_rank = 0.0;
    double weight_flop_rate = 0.0;         ///< products with base weights
    double attention_flop_rate = 0.0;      ///< beside it
    std::optional<double> gemm_flop_rate;  ///< of the GEMM library alone
    std::optional<double> peak_flop_rate;
    std::optional<double> mfu;                 ///< weight_flop_rate / peak
    std::optional<double> mfu_with_attention;  ///< both / peak
    double useful_flop_rate() const { return weight_flop_rate + attention_flop_rate; }
    std::optional<double> share_of_gemm_rate;
    std::optional<double> lora_off_seconds_per_step;
    std::optional<double> lora_overhead;     ///< with adapters / without - 1, seconds
    std::optional<double> prediction_error;  ///< predicted / measured - 1
    std::optional<double> refined_error;     ///< with refined costs
    double memory_error = 0.0;               ///< peak / planned - 1, of the rank farthest off
};

}  // namespace loratrain
