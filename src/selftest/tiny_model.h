#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_spec.h"
#include "selftest/host_matrix.h"

namespace loratrain {

/// The model, adapters and data of the self test.

/// A llama with random weights, small enough for plain loops in fp64. All values are exact floats.
struct TinyModel {
    ModelSpec spec;
    HostMatrix embedding;  ///< [V, H]
    HostMatrix head;       ///< [V, H]
    struct Layer {
        HostMatrix linears[linear_count];  ///< [out, in], in the order of Linear
        std::vector<double> input_norm;
        std::vector<double> post_attention_norm;
    };
    std::vector<Layer> layers;
    std::vector<double> final_norm;
};

/// Equal on every machine.
TinyModel make_tiny_model();

/// Writes a Hugging Face folder: config.json, model.safetensors (fp32).
void write_tiny_model(const TinyModel& model, const std::string& folder);

/// LoRA factors on one linear of one layer.
struct TinyFactors {
    std::int64_t layer = 0;
    Linear linear{};
    HostMatrix a;  ///< [r, in]
    HostMatrix b;  ///< [out, r]
};

struct TinyAdapter {
    std::string name;
    std::int64_t rank = 0;
    double alpha = 0.0;
    std::vector<TinyFactors> factors;
    double scale() const { return alpha / static_cast<double>(rank); }
};

/// Two adapters that differ in rank, targets and scale; no factor is 0.
std::vector<TinyAdapter> make_tiny_adapters(const TinyModel& model);

/// Writes a PEFT directory.
void write_tiny_adapter(const TinyAdapter& adapter, const std::string& folder);
/// The factors of `like`, read from a PEFT directory. Throws InputError if it lacks them.
TinyAdapter read_tiny_adapter(const TinyAdapter& like, const std::string& folder);

/// One sample: tokens, and labels (-100 = not a target).
struct TinySample {
    std::vector<std::int64_t> tokens;
    std::vector<std::int64_t> labels;
};
/// Samples of different lengths, chosen by `number`.
std::vector<TinySample> make_tiny_samples(std::int64_t vocabulary, std::uint64_t number);
/// Writes a .jsonl file of tokens.
void write_tiny_samples(const std::vector<TinySample>& samples, const std::string& path);

}  // namespace loratrain
