#include <algorithm>
#include <array>

#include "base/text.h"
#include "bench/bench_report.h"

namespace loratrain {

namespace {

constexpr std::size_t label_width = 22;
constexpr std::size_t cell_width = 9;
constexpr std::size_t most_columns = 8;

constexpr std::array<const char*, timed_part_count> part_labels{
    "GEMM", "quantisation", "attention",       "LoRA products",    "norms, elementwise",
    "loss", "optimizer",    "sums, transfers", "waiting for ranks"};

std::string line(const std::string& label, const std::string& text) {
    return label + std::string(label_width - std::min(label_width - 1, label.size()), ' ') + text +
           "\n";
}

std::string cell(const std::string& text) {
    return std::string(cell_width - std::min(cell_width - 1, text.size()), ' ') + text;
}

std::string percent(double share) {
    return format_fixed(100.0 * share, 1) + "%";
}

/// One row of the profile: a number of every rank and their mean share of the window.
class ProfileTable {
  public:
    explicit ProfileTable(const BenchProfile& profile) : profile_(profile) {}

    std::string text() const {
        std::string heads;
        for (std::size_t r = 0; r < columns(); ++r) heads += cell(cat("rank ", r));
        std::string text = line("ms per step", heads + cell("share"));
        for (std::size_t p = 0; p < timed_part_count; ++p) {
            text += part_rows(static_cast<TimedPart>(p));
        }
        text += row("idle", [&](const OpTimes& times) { return profile_.seconds - times.total(); });
        text += shares("idle share",
                       [&](const OpTimes& times) { return profile_.seconds - times.total(); });
        if (profile_.ranks.size() > 1) {
            text += shares("idle + waiting", [&](const OpTimes& times) {
                return profile_.seconds - times.total() + times.of(TimedPart::communication);
            });
        }
        if (columns() < profile_.ranks.size()) {
            text += cat("(ranks ", columns(), " to ", profile_.ranks.size() - 1, ": --json)\n");
        }
        return text;
    }

  private:
    std::size_t columns() const { return std::min(most_columns, profile_.ranks.size()); }

    template <class Seconds>
    std::string row(const std::string& label, const Seconds& seconds) const {
        std::string cells;
        double sum = 0.0;
        for (std::size_t r = 0; r < profile_.ranks.size(); ++r) {
            const double value = seconds(profile_.ranks[r]);
            sum += value;
            if (r < columns()) cells += cell(format_fixed(1e3 * value / profile_.rounds, 2));
        }
        const double whole = profile_.seconds * static_cast<double>(profile_.ranks.size());
        return line(label, cells + cell(percent(sum / whole)));
    }

    template <class Seconds>
    std::string shares(const std::string& label, const Seconds& seconds) const {
        std::string cells;
        for (std::size_t r = 0; r < columns(); ++r) {
            cells += cell(percent(seconds(profile_.ranks[r]) / profile_.seconds));
        }
        return line(label, cells);
    }

    bool occurs(std::size_t op) const {
        return std::any_of(profile_.ranks.begin(), profile_.ranks.end(),
                           [&](const OpTimes& times) { return times.calls[op] > 0; });
    }

    /// The part, and its ops where there are several.
    std::string part_rows(TimedPart part) const {
        std::string rows;
        int ops = 0;
        for (std::size_t i = 0; i < timed_op_count; ++i) {
            const auto op = static_cast<TimedOp>(i);
            if (part_of(op) != part || !occurs(i)) continue;
            rows += row(cat("  ", name_of(op)), [&](const OpTimes& t) { return t.seconds[i]; });
            ++ops;
        }
        if (ops == 0) return "";
        const std::string sum = row(part_labels[static_cast<std::size_t>(part)],
                                    [&](const OpTimes& times) { return times.of(part); });
        return ops == 1 ? sum : sum + rows;
    }

    const BenchProfile& profile_;
};

std::string head_lines(const CommandLine::Bench& bench, const BenchResult& result,
                       const BenchSummary& summary) {
    const double weights = static_cast<double>(matmul_parameters(result.model)) / 1e6;
    return line("backend", cat(result.backend, result.fp8_linears ? ", fp8 linears, " : ", ",
                               summary.ranks, " rank(s)")) +
           line("model", cat(result.model.layers, " layers, hidden ", result.model.hidden_size,
                             ", ", format_fixed(weights, 1), " M weights in matrix products")) +
           line("step",
                cat(bench.adapters, bench.dora ? " DoRA" : (bench.vera ? " VeRA" : ""), " adapters",
                    bench.target_experts ? " in experts too" : "",
                    " r=", bench.mixed_ranks ? "8..128" : std::to_string(bench.rank),
                    bench.optim == "adamw_torch" ? "" : " " + bench.optim, ", ",
                    format_fixed(summary.tokens_per_step, 0), " tokens, microbatches of ",
                    result.microbatch_tokens, result.recompute ? ", layers recomputed" : "")) +
           line("samples", cat("lengths ", bench.lengths, ", up to ", bench.sample_tokens,
                               " tokens; policy ", bench.policy));
}

std::string rate_lines(const CommandLine::Bench& bench, const BenchResult& result,
                       const BenchSummary& summary) {
    auto giga = [](double rate) { return format_fixed(rate * 1e-9, 1) + " GFLOP/s"; };
    std::string text =
        line("window", cat(bench.steps, " steps of ", format_fixed(summary.seconds_per_step, 4),
                           " s, ", format_fixed(summary.tokens_per_second, 0), " tokens/s, ",
                           format_fixed(summary.tokens_per_second_per_rank, 0), " per rank"));
    if (result.fastest_step) {
        text += line("fastest step", format_fixed(*result.fastest_step, 4) + " s");
    }
    text += line("useful rate", cat(giga(summary.useful_flop_rate()), " per rank: weights ",
                                    giga(summary.weight_flop_rate), ", attention ",
                                    giga(summary.attention_flop_rate)));
    if (summary.mfu) {
        text += line("MFU", cat(percent(*summary.mfu), " of ",
                                format_fixed(*summary.peak_flop_rate * 1e-12, 0), " TFLOP/s; ",
                                percent(*summary.mfu_with_attention), " with attention"));
    }
    if (summary.gemm_flop_rate) {
        text +=
            line("GEMM library", giga(*summary.gemm_flop_rate) + " per rank on the same shapes");
        text += line("share of GEMM rate", percent(*summary.share_of_gemm_rate));
    }
    if (summary.lora_overhead) {
        text += line("LoRA off", cat(format_fixed(*summary.lora_off_seconds_per_step, 4),
                                     " s per step; LoRA costs ", percent(*summary.lora_overhead)));
    }
    return text;
}

std::string signed_percent(double share) {
    return (share < 0 ? "" : "+") + percent(share);
}

std::string prediction_lines(const CommandLine::Bench& bench, const BenchResult& result,
                             const BenchSummary& summary) {
    if (!result.prediction) return "";
    auto seconds = [&](double of_window) {
        return format_fixed(of_window / bench.steps, 4) + " s";
    };
    std::string text = cat(seconds(result.prediction->seconds), " per step (",
                           signed_percent(*summary.prediction_error), ") by profiled costs");
    if (summary.refined_error) {
        text += cat(", ", seconds(*result.prediction->refined_seconds), " (",
                    signed_percent(*summary.refined_error), ") refined in the warm-up");
    }
    std::string idle;
    for (const double share : result.idle_shares) idle += percent(share) + " ";
    return line("predicted", text) + line("idle", idle + "of the ranks' time in the window");
}

std::string memory_line(const BenchResult& result, const BenchSummary& summary) {
    auto largest = [](const std::vector<std::uint64_t>& bytes) {
        return human_bytes(*std::max_element(bytes.begin(), bytes.end()));
    };
    return line("memory",
                cat("planned ", largest(result.planned_bytes), ", allocated ",
                    largest(result.allocated_bytes), ", peak ", largest(result.peak_bytes), " (",
                    signed_percent(summary.memory_error), " at most)"));
}

std::string stream_lines(const BenchResult& result) {
    if (result.streamed_layers == 0) return "";
    std::uint64_t bytes = 0;
    for (const std::uint64_t of_rank : result.planned_host_bytes) bytes += of_rank;
    return line("streamed", cat(result.streamed_layers, " of ", result.model.layers, " layers, ",
                                human_bytes(bytes), " of host memory"));
}

std::string offload_line(const BenchResult& result) {
    if (result.offloaded_layers == 0) return "";
    const std::int64_t again = result.model.layers - result.kept_layers - result.offloaded_layers;
    return line("offloaded", cat(result.offloaded_layers, " of ", result.model.layers, " layers, ",
                                 result.kept_layers, " kept, ", again, " recomputed"));
}

}  // namespace

std::string bench_text(const CommandLine::Bench& bench, const BenchResult& result) {
    const BenchSummary summary(bench, result);
    std::string text = head_lines(bench, result, summary) + rate_lines(bench, result, summary) +
                       prediction_lines(bench, result, summary) + memory_line(result, summary) +
                       stream_lines(result) + offload_line(result);
    if (result.profile) {
        const BenchProfile& profile = *result.profile;
        const double slower = profile.seconds / profile.rounds / summary.seconds_per_step - 1.0;
        text += cat("\nprofile of another window of ", profile.rounds, " steps, timing it cost ",
                    percent(slower), "\n", ProfileTable(profile).text());
    }
    text.pop_back();
    return text;
}

}  // namespace loratrain
