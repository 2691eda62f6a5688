#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/bench_run.h"
#include "config/command_line.h"
#include "plan/costs.h"

namespace loratrain {

/// Results of a bench, and their texts.

/// The simulator's prediction of the measured window, from empty pipeline to empty pipeline.
struct BenchPrediction {
    CostModel costs;                        ///< profiled before any window
    double profile_seconds = 0.0;           ///< time that the profile took
    double seconds = 0.0;                   ///< predicted with `costs`
    std::optional<CostModel> refined;       ///< `costs` refined by the warm-up
    std::optional<double> refined_seconds;  ///< predicted with `refined`
};

/// Measurements of a bench, from which rates follow. --quick leaves out the optional ones, except
/// the prediction.
struct BenchResult {
    std::string backend;  ///< Backend::description()
    std::string device;   ///< CUDA name of rank 0's GPU, "" on the CPU
    DType compute = DType::f32;
    bool fp8_linears = false;  ///< Plan::fp8_linears
    ModelSpec model;
    std::int64_t microbatch_tokens = 0;
    bool recompute = false;              ///< layers are run forward again before their backward
    WindowTime window;                   ///< one window of --steps rounds
    std::optional<WindowTime> lora_off;  ///< the same microbatches without adapters
    std::optional<double> fastest_step;  ///< seconds, from windows of one round; one rank only
    std::optional<double> gemm_seconds;  ///< base GEMMs of one microbatch, all layers
    std::int32_t streamed_layers = 0;    ///< sum over ranks
    std::int32_t kept_layers = 0;        ///< with recomputation, as offloaded_layers
    std::int32_t offloaded_layers = 0;
    std::vector<std::uint64_t> planned_bytes;       ///< per rank
    std::vector<std::uint64_t> planned_host_bytes;  ///< per rank: MemoryPlan::host
    std::vector<std::uint64_t> allocated_bytes;     ///< per rank, after the window
    std::vector<std::uint64_t> peak_bytes;          ///< per rank
    std::optional<BenchPrediction> prediction;      ///< --predict
    std::vector<double> idle_shares;                ///< --predict: per rank, of the window
    std::optional<BenchProfile> profile;
};

/// The figures of a report, in SI units. Rates are per rank.
struct BenchSummary {
    explicit BenchSummary(const CommandLine::Bench& bench, const BenchResult& result);

    int ranks = 1;
    double tokens_per_step = 0.0;
    double seconds_per_step = 0.0;
    double tokens_per_second = 0.0;
    double tokens_per_second_per_rank = 0.0;
    double weight_flop_rate = 0.0;         ///< products with base weights
    double attention_flop_rate = 0.0;      ///< attention
    std::optional<double> gemm_flop_rate;  ///< the GEMM library alone
    std::optional<double> peak_flop_rate;
    std::optional<double> mfu;                 ///< weight_flop_rate / peak
    std::optional<double> mfu_with_attention;  ///< both rates / peak
    double useful_flop_rate() const { return weight_flop_rate + attention_flop_rate; }
    std::optional<double> share_of_gemm_rate;
    std::optional<double> lora_off_seconds_per_step;
    std::optional<double> lora_overhead;     ///< seconds with adapters / without - 1
    std::optional<double> prediction_error;  ///< predicted / measured - 1
    std::optional<double> refined_error;     ///< the same with refined costs
    double memory_error = 0.0;               ///< peak / planned - 1, of the rank with the largest
};

/// Tables for people.
std::string bench_text(const CommandLine::Bench& bench, const BenchResult& result);

/// All results on one line of JSON.
std::string bench_json(const CommandLine::Bench& bench, const BenchResult& result);

}  // namespace loratrain
