#include <algorithm>

#include "base/version.h"
#include "bench/bench_report.h"
#include "io/json_text.h"
#include "measure/cost_cache.h"

namespace loratrain {

namespace {

OrderedJson or_null(const std::optional<double>& value, double unit = 1.0) {
    return value ? OrderedJson(*value * unit) : OrderedJson();
}

std::uint64_t largest(const std::vector<std::uint64_t>& values) {
    return *std::max_element(values.begin(), values.end());
}

OrderedJson profile_json(const OpTimes& times, double seconds) {
    OrderedJson json;
    for (std::size_t p = 0; p < timed_part_count; ++p) {
        const auto part = static_cast<TimedPart>(p);
        json["parts"][name_of(part)] = times.of(part);
    }
    json["parts"]["idle"] = seconds - times.total();
    json["idle_share"] = 1.0 - times.total() / seconds;
    json["wait_share"] = times.of(TimedPart::communication) / seconds;
    for (std::size_t i = 0; i < timed_op_count; ++i) {
        if (times.calls[i] == 0) continue;
        json["ops"][name_of(static_cast<TimedOp>(i))] = {{"seconds", times.seconds[i]},
                                                         {"calls", times.calls[i]}};
    }
    return json;
}

OrderedJson case_json(const CommandLine::Bench& bench, const BenchResult& result, int ranks) {
    return {{"case", bench.backend + "-step"},
            {"git", git_hash()},
            {"backend", result.backend},
            {"device", result.device},
            {"ranks", ranks},
            {"model", bench.model.empty() ? "custom" : bench.model},
            {"layers", result.model.layers},
            {"hidden", result.model.hidden_size},
            {"parameters", matmul_parameters(result.model)},
            {"adapters", bench.adapters},
            {"rank", bench.rank},
            {"mixed_ranks", bench.mixed_ranks},
            {"dora", bench.dora},
            {"target_experts", bench.target_experts},
            {"vera", bench.vera},
            {"optim", bench.optim},
            {"samples", bench.samples},
            {"sample_tokens", bench.sample_tokens},
            {"lengths", bench.lengths},
            {"policy", bench.policy},
            {"packing", bench.packing},
            {"dropout", bench.dropout},
            {"precision", result.fp8_linears ? "fp8" : to_string(result.compute)},
            {"weights", bench.weights},
            {"microbatch_tokens", result.microbatch_tokens},
            {"recompute", result.recompute},
            {"offload", bench.offload},
            {"kept_layers", result.kept_layers},
            {"offloaded_layers", result.offloaded_layers},
            {"residency", bench.residency},
            {"streamed_layers", result.streamed_layers},
            {"steps", bench.steps}};
}

}  // namespace

std::string bench_json(const CommandLine::Bench& bench, const BenchResult& result) {
    const BenchSummary summary(bench, result);
    OrderedJson json = case_json(bench, result, summary.ranks);
    json["tokens_per_step"] = summary.tokens_per_step;
    json["seconds_per_step"] = summary.seconds_per_step;
    json["fastest_step_seconds"] = or_null(result.fastest_step);
    json["tokens_per_second"] = summary.tokens_per_second;
    json["tokens_per_second_per_rank"] = summary.tokens_per_second_per_rank;
    json["gflops_per_rank"] = summary.useful_flop_rate() * 1e-9;
    json["weight_gflops_per_rank"] = summary.weight_flop_rate * 1e-9;
    json["attention_gflops_per_rank"] = summary.attention_flop_rate * 1e-9;
    json["peak_gflops_per_rank"] = or_null(summary.peak_flop_rate, 1e-9);
    json["mfu"] = or_null(summary.mfu);
    json["mfu_with_attention"] = or_null(summary.mfu_with_attention);
    json["gemm_gflops_per_rank"] = or_null(summary.gemm_flop_rate, 1e-9);
    json["share_of_gemm_rate"] = or_null(summary.share_of_gemm_rate);
    json["lora_off_seconds_per_step"] = or_null(summary.lora_off_seconds_per_step);
    json["lora_overhead"] = or_null(summary.lora_overhead);
    if (result.prediction) {
        json["cost_profile_seconds"] = result.prediction->profile_seconds;
        json["predicted_seconds"] = result.prediction->seconds;
        json["predicted_refined_seconds"] = or_null(result.prediction->refined_seconds);
        json["window_seconds"] = result.window.seconds;
        json["prediction_error"] = or_null(summary.prediction_error);
        json["refined_prediction_error"] = or_null(summary.refined_error);
        json["costs"] = cost_json(result.prediction->costs);
        if (result.prediction->refined) {
            json["refined_costs"] = cost_json(*result.prediction->refined);
        }
        json["idle_share_of_ranks"] = result.idle_shares;
    }
    json["losses"] = result.window.losses;
    json["planned_host_bytes"] = largest(result.planned_host_bytes);
    json["memory_error"] = summary.memory_error;
    json["planned_bytes"] = largest(result.planned_bytes);
    json["allocated_bytes"] = largest(result.allocated_bytes);
    json["peak_bytes"] = largest(result.peak_bytes);
    json["peak_bytes_of_ranks"] = result.peak_bytes;
    if (!result.profile) return dump_json(json);
    json["profile_steps"] = result.profile->rounds;
    json["profile_seconds"] = result.profile->seconds;
    for (const OpTimes& times : result.profile->ranks) {
        json["profile_of_ranks"].push_back(profile_json(times, result.profile->seconds));
    }
    return dump_json(json);
}

}  // namespace loratrain
