#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/bench_profile.h"
#include "config/command_line.h"
#include "plan/costs.h"

namespace loratrain {

/// What the simulator makes of the measured window, from empty pipeline to empty pipeline.
struct BenchPrediction {
    CostModel costs;                        ///< profiled before any window
    double profile_seconds = 0.0;           ///< that took
    double seconds = 0.0;                   ///< by them
    std::optional<CostModel> refined;       ///< what the warm-up made of them
    std::optional<double> refined_seconds;  ///< by those
};

/// What a bench measured; rates follow from it. --quick leaves out what is optional, but the
/// prediction.
struct BenchResult {
    std::string backend;  ///< Backend::description()
    std::string device;   ///< CUDA name of rank 0's GPU, "" on the CPU
    DType compute = DType::f32;
    bool fp8_linears = false;  ///< Plan::fp8_linears
    ModelSpec model;
    std::int64_t microbatch_tokens = 0;
    bool recompute = false;              ///< layers are run forward again before their backward
    WindowTime window;                   ///< one window of --steps rounds
    std::optional<WindowTime> lora_off;  ///< the same without adapters, same microbatches
    std::optional<double> fastest_step;  ///< seconds, of windows of one round; one rank only
    std::optional<double> gemm_seconds;  ///< of the base GEMMs of one microbatch on all layers
    std::int32_t streamed_layers = 0;    ///< of all ranks
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

/// Tables for people.
std::string bench_text(const CommandLine::Bench& bench, const BenchResult& result);

/// One line with everything.
std::string bench_json(const CommandLine::Bench& bench, const BenchResult& result);

}  // namespace loratrain
