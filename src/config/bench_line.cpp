#include "config/command_options.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "config/job_words.h"
#include "config/model_presets.h"

namespace loratrain {

using namespace command_options;

namespace {

constexpr int longest_random_sample = 4096;
constexpr int largest_bench_count = 1000000;

void check_bench(const CommandLine::Bench& bench, Problems& problems) {
    const std::array<std::pair<const char*, int>, 10> counts{{
        {"--steps", bench.steps},
        {"--hidden", bench.hidden},
        {"--intermediate", bench.intermediate},
        {"--layers", bench.layers},
        {"--heads", bench.heads},
        {"--vocab", bench.vocab},
        {"--adapters", bench.adapters},
        {"--rank", bench.rank},
        {"--samples", bench.samples},
        {"--sample-tokens", bench.sample_tokens},
    }};
    for (const auto& [option, value] : counts) {
        if (value >= 1 && value <= largest_bench_count) continue;
        problems.add(option, cat(value, " is out of range"),
                     cat("give at least 1 and at most ", largest_bench_count));
    }
    if (!(bench.dropout >= 0.0 && bench.dropout <= largest_dropout)) {
        problems.add("--dropout", cat(bench.dropout, " is out of range"),
                     cat("give at least 0 and at most ", largest_dropout));
    }
    if (bench.microbatch_tokens < 0) {
        problems.add("--microbatch-tokens", cat(bench.microbatch_tokens, " is out of range"),
                     "give at least 1, or leave the option out");
    }
    if (bench.dora && bench.vera) {
        problems.add("--vera", "does not go with --dora", "give one of the two");
    }
    check_word("--optim", bench.optim, word_texts(optim_words), problems);
    check_word("--backend", bench.backend, {"cpu", "cuda"}, problems);
    check_word("--precision", bench.precision, {"auto", "fp32", "bf16", "fp8"}, problems);
    if (!bench.weights.empty()) {
        check_word("--weights", bench.weights, word_texts(quantize_words), problems);
    }
    for (const auto& [option, size] :
         {std::pair{"--hidden", bench.hidden}, std::pair{"--intermediate", bench.intermediate}}) {
        const bool whole_blocks = size % traits_of(WeightFormat::nf4).block == 0;
        if (bench.weights != "nf4" || !bench.model.empty() || whole_blocks) continue;
        problems.add(option, cat(size, " is not a multiple of 64, as --weights nf4 needs"),
                     "give a multiple of 64, or --weights int8");
    }
    check_word("--recompute", bench.recompute, {"auto", "none", "layer"}, problems);
    if (!residency_of(bench.residency)) {
        problems.add("--residency", "'" + bench.residency + "' is not known",
                     "give auto, all, stream, or the layers that stay, as in 60");
    }
    if (!offload_of(bench.offload)) {
        problems.add("--offload", "'" + bench.offload + "' is not known",
                     "give none, auto, or the layers, as in 8");
    } else if (bench.offload != "none" && bench.recompute == "none") {
        problems.add("--offload", "'" + bench.offload + "' does not go with --recompute none",
                     "give --recompute auto or layer");
    }
    check_word("--lengths", bench.lengths, {"fixed", "xsum", "cnn", "wikisum", "mix"}, problems);
    check_word("--policy", bench.policy, word_texts(schedule_policy_words), problems);
    check_word("--packing", bench.packing, word_texts(packing_words), problems);
    if (!bench.model.empty()) check_word("--model", bench.model, model_preset_names(), problems);
    if (const auto model = model_preset(bench.model);
        bench.target_experts && !(model && has_experts(*model))) {
        problems.add("--target-experts", "the model has no experts", "give --model qwen3-30b-a3b");
    }
    if (problems.empty() && bench.hidden % (2 * bench.heads) != 0) {
        problems.add("--heads", cat(bench.heads, " does not fit --hidden ", bench.hidden),
                     "hidden / heads must be an even whole number");
    }
}

std::int64_t layers_without_option(const CommandLine::Bench& bench) {
    const auto preset = model_preset(bench.model);
    return preset ? preset->layers : bench.layers;
}

}  // namespace

CommandLine command_options::parse_bench_line(const Words& words) {
    CommandLine line;
    line.command = Command::bench;
    const Parsed parsed = parse_words(words, bench_options(line));
    Problems problems;
    for (const std::string& argument : parsed.arguments) {
        problems.add("bench", "unexpected argument '" + argument + "'", see_help);
    }
    if (line.bench.lengths != "fixed" && parsed.values.count("sample-tokens") == 0) {
        line.bench.sample_tokens = longest_random_sample;
    }
    if (parsed.values.count("layers") == 0) {
        line.bench.layers = static_cast<int>(layers_without_option(line.bench));
    }
    check_bench(line.bench, problems);
    problems.throw_if_any();
    return line;
}

}  // namespace loratrain
