#pragma once

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "io/weights/base_weights.h"
#include "io/weights/hf_config.h"
#include "support/files.h"

namespace loratrain::test {

/// A tensor as raw bytes of a safetensors file.
struct RawTensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

template <class Value>
std::string bytes_of(const std::vector<Value>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

inline void put_safetensors(const std::string& path, const RawTensors& tensors) {
    nlohmann::json header = nlohmann::json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors) {
        header[name] = {{"dtype", tensor.dtype},
                        {"shape", tensor.shape},
                        {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
        data += tensor.bytes;
    }
    const std::string text = header.dump();
    const std::uint64_t size = text.size();
    put(path, std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

inline nlohmann::json tiny_config() {
    return {{"model_type", "llama"},       {"vocab_size", 10},        {"hidden_size", 8},
            {"num_hidden_layers", 1},      {"intermediate_size", 12}, {"num_attention_heads", 2},
            {"num_key_value_heads", 1},    {"head_dim", 4},           {"rope_theta", 10000.0},
            {"tie_word_embeddings", false}};
}

inline ModelSpec tiny_spec(const nlohmann::json& config = tiny_config()) {
    return parse_hf_config(config.dump(), "config.json");
}

inline float tiny_value(const std::string& name, std::int64_t i) {
    return static_cast<float>(name.size()) + 0.25F * static_cast<float>(i % 1000);
}

inline std::vector<float> tiny_values(const BaseTensor& tensor) {
    std::int64_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= extent;
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(tiny_value(tensor.name, i));
    return values;
}

inline RawTensors tiny_tensors(const ModelSpec& spec) {
    RawTensors tensors;
    for (const BaseTensor& tensor : base_tensors(spec)) {
        tensors[tensor.name] = {"F32", tensor.shape, bytes_of(tiny_values(tensor))};
    }
    return tensors;
}

/// An HF directory with one safetensors file.
inline void put_model(const std::string& dir, const nlohmann::json& config,
                      const RawTensors& tensors) {
    std::filesystem::create_directories(dir);
    put(dir + "/config.json", config.dump(2));
    put_safetensors(dir + "/model.safetensors", tensors);
}

/// A whole tensor of a weight source as floats.
inline std::vector<float> read_all(const WeightSource& weights, const BaseTensor& tensor) {
    const bool vector = tensor.shape.size() == 1;
    const std::int64_t rows = vector ? 1 : tensor.shape[0];
    std::vector<float> values(static_cast<std::size_t>(rows * tensor.shape.back()));
    weights.read_rows(tensor.name, 0, matrix(values.data(), DType::f32, rows, tensor.shape.back()));
    return values;
}

}  // namespace loratrain::test
