#include "bench/bench_data.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <sstream>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "config/job_words.h"
#include "config/model_presets.h"
#include "io/files.h"

namespace loratrain {

namespace {

constexpr int shortest_sample = 16;
constexpr double longest_of_shapes = 4096.0;

struct LengthShape {
    const char* name;
    double mean;  ///< of longest_of_shapes
    double sigma;
};
constexpr std::array<LengthShape, 3> shapes{{
    {"xsum", 500.0, 0.6},
    {"cnn", 900.0, 0.5},
    {"wikisum", 1700.0, 0.6},
}};

double normal(std::uint64_t key, std::uint64_t i) {
    const double u = 1.0 - uniform_float(key, 2 * i);
    return std::sqrt(-2.0 * std::log(u)) *
           std::cos(2.0 * std::numbers::pi * uniform_float(key, 2 * i + 1));
}

std::vector<std::string> length_names(const CommandLine::Bench& bench) {
    if (bench.lengths != "mix") return {bench.lengths};
    std::vector<std::string> names;
    names.reserve(shapes.size());
    for (const LengthShape& shape : shapes) names.emplace_back(shape.name);
    return names;
}

std::string random_samples(const std::vector<int>& lengths, std::uint64_t vocab) {
    std::ostringstream text;
    std::uint64_t drawn = 0;
    for (const int length : lengths) {
        text << "{\"input_ids\": [";
        for (int t = 0; t < length; ++t) {
            text << (t == 0 ? "" : ", ") << uniform_int(1, drawn++, vocab);
        }
        text << "]}\n";
    }
    return text.str();
}

ModelSpec with_layers(ModelSpec model, std::int64_t count) {
    std::vector<LayerSpec> layers;
    for (std::int64_t l = 0; l < count; ++l) layers.push_back(model.layer(l % model.layers));
    model.set_layers(layers);
    return model;
}

ModelSpec bench_sizes(const CommandLine::Bench& bench) {
    if (const auto preset = model_preset(bench.model)) return with_layers(*preset, bench.layers);
    ModelSpec model;
    model.family = "llama";
    model.vocab_size = bench.vocab;
    model.hidden_size = bench.hidden;
    model.layers = bench.layers;
    model.dense().size = bench.intermediate;
    AttentionSpec& attention = model.attention();
    attention.heads = attention.kv_heads = bench.heads;
    attention.head_dim = bench.hidden / bench.heads;
    model.rms_norm_eps = 1e-5;
    return model;
}

}  // namespace

ModelSpec bench_model(const CommandLine::Bench& bench) {
    ModelSpec model = bench_sizes(bench);
    if (const auto format = quantized_format(bench.weights)) {
        model.quantization = {*format, SourceType::bf16};
    }
    return model;
}

BackendKind bench_backend(const CommandLine::Bench& bench) {
    return bench.backend == "cuda" ? BackendKind::cuda : BackendKind::cpu;
}

int bench_rounds(const CommandLine::Bench& bench) {
    return bench_warmup_rounds + 2 * bench.steps;
}

std::vector<int> bench_lengths(const std::string& lengths, std::int64_t count, int longest) {
    std::vector<int> result(static_cast<std::size_t>(count), longest);
    if (lengths == "fixed") return result;
    const auto* shape = std::find_if(shapes.begin(), shapes.end(),
                                     [&](const LengthShape& s) { return lengths == s.name; });
    LORATRAIN_CHECK(shape != shapes.end(), lengths);
    const double mean = shape->mean / longest_of_shapes * longest;
    const double location = std::log(mean) - 0.5 * shape->sigma * shape->sigma;
    const std::uint64_t key = hash_name(lengths);
    for (std::size_t i = 0; i < result.size(); ++i) {
        const double tokens = std::exp(location + shape->sigma * normal(key, i));
        result[i] = std::clamp(static_cast<int>(std::lround(tokens)),
                               std::min(shortest_sample, longest), longest);
    }
    return result;
}

RandomData::RandomData(const CommandLine::Bench& bench) {
    const auto vocab = static_cast<std::uint64_t>(bench_model(bench).vocab_size);
    const std::int64_t rounds = bench.lengths == "fixed" ? 1 : bench_rounds(bench);
    const std::int64_t samples = bench.samples * rounds;
    const std::string folder = std::filesystem::temp_directory_path().string();
    for (const std::string& name : length_names(bench)) {
        paths_.push_back(cat(folder, "/loratrain-bench-", getpid(), "-", name, ".jsonl"));
        write_text_atomic(paths_.back(),
                          random_samples(bench_lengths(name, samples, bench.sample_tokens), vocab));
    }
}

RandomData::~RandomData() {
    for (const std::string& path : paths_) std::filesystem::remove(path);
}

}  // namespace loratrain
