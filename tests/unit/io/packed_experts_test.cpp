#include "io/weights/packed_experts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "config/layer_tensors.h"
#include "io/files.h"
#include "io/tensor_names.h"
#include "io/weights/import_hf.h"
#include "support/golden_path.h"
#include "support/problems.h"
#include "unit/io/tiny_model.h"

namespace loratrain::test {
namespace {

using nlohmann::json;

std::string folder_of(const std::string& family) {
    return test::golden_path(family) + "/base";
}

json config_of(const std::string& family) {
    return json::parse(read_text(folder_of(family) + "/config.json"));
}

RawTensors tensors_of(const std::string& family) {
    const SafetensorsFile file(folder_of(family) + "/model.safetensors");
    RawTensors tensors;
    for (const auto& [name, entry] : file.entries()) {
        RawTensor tensor{entry.dtype, entry.shape, std::string(entry.end - entry.begin, '\0')};
        file.read_bytes(name, 0, tensor.bytes.size(), tensor.bytes.data());
        tensors[name] = std::move(tensor);
    }
    return tensors;
}

std::uint8_t byte_at(const RawTensor& tensor, std::int64_t i) {
    return static_cast<std::uint8_t>(tensor.bytes[static_cast<std::size_t>(i)]);
}

/// Weight `input` of an output of an expert, of blocks [E, outputs, inputs / 32, 16].
double mxfp4_weight(const RawTensor& blocks, const RawTensor& scales, std::int64_t expert,
                    std::int64_t output, std::int64_t input) {
    const std::int64_t row = expert * blocks.shape[1] + output;
    const std::int64_t block = row * blocks.shape[2] + input / 32;
    const std::uint8_t byte = byte_at(blocks, block * 16 + input % 32 / 2);
    const int code = input % 2 == 0 ? byte % 16 : byte / 16;
    // Sign, two bits of exponent with bias 1, one of mantissa; of exponent 0 without the 1.
    const int exponent = code % 8 / 2;
    const double half = 0.5 * (code % 2);
    const double size = exponent == 0 ? half : std::ldexp(1.0 + half, exponent - 1);
    return std::ldexp(code < 8 ? size : -size, byte_at(scales, block) - 127);
}

struct ExpertLinear {
    Linear linear;
    const char* packed;  ///< its tensor
    std::int64_t begin;  ///< its first output there
    std::int64_t step;
};
constexpr ExpertLinear expert_linears[] = {{Linear::gate, "gate_up_proj", 0, 2},
                                           {Linear::up, "gate_up_proj", 1, 2},
                                           {Linear::down, "down_proj", 0, 1}};

std::string experts_name(std::int64_t layer) {
    return cat("model.layers.", layer, ".mlp.experts.");
}

class PackedExpertsTest : public ::testing::Test {
  protected:
    /// Calls check(name of the matrix, what `value` says: layer, expert, linear, output, input).
    template <class Value>
    void expect_experts(const WeightSource& weights, const Value& value) {
        const ModelSpec& spec = weights.spec();
        for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
            for (std::int64_t expert = 0; expert < spec.experts()->count; ++expert) {
                for (const ExpertLinear& linear : expert_linears) {
                    expect_expert(weights, layer, expert, linear, value);
                }
            }
        }
    }
    template <class Value>
    void expect_expert(const WeightSource& weights, std::int64_t layer, std::int64_t expert,
                       const ExpertLinear& linear, const Value& value) {
        const LinearShape shape = target_of(weights.spec(), layer, linear.linear).shape;
        const std::string name = expert_weight_name(layer, expert, linear.linear);
        const std::vector<float> found = read_all(weights, {name, {shape.out, shape.in}});
        for (std::int64_t o = 0; o < shape.out; ++o) {
            for (std::int64_t i = 0; i < shape.in; ++i) {
                ASSERT_EQ(found[static_cast<std::size_t>(o * shape.in + i)],
                          value(layer, expert, linear, linear.begin + linear.step * o, i))
                    << name << " " << o << " " << i;
            }
        }
    }
    /// Gates, then ups, of the bias that has them by turns.
    void expect_biases(const WeightSource& weights, const SafetensorsFile& original) {
        const ExpertSpec& experts = *weights.spec().experts();
        for (std::int64_t layer = 0; layer < weights.spec().layers; ++layer) {
            const std::string name = layer_tensor_name(layer, LayerTensor::experts_gate_up_bias,
                                                       weights.spec().layer(layer));
            const auto found = read_all(weights, {name, {experts.count, 2 * experts.size}});
            const auto values = original.read_floats(experts_name(layer) + "gate_up_proj_bias");
            ASSERT_EQ(found.size(), values.size());
            for (std::int64_t e = 0; e < experts.count; ++e) {
                for (std::int64_t i = 0; i < 2 * experts.size; ++i) {
                    const std::int64_t from = i < experts.size ? 2 * i : 2 * (i - experts.size) + 1;
                    EXPECT_EQ(found[static_cast<std::size_t>(2 * e * experts.size + i)],
                              values[static_cast<std::size_t>(2 * e * experts.size + from)]);
                }
            }
        }
    }
    /// All that is not of experts.
    static void expect_others(const WeightSource& weights, const SafetensorsFile& original) {
        for (const BaseTensor& tensor : base_tensors(weights.spec())) {
            if (has(tensor.name, ".experts.")) continue;
            EXPECT_EQ(read_all(weights, tensor),
                      original.read_floats(name_in_files(weights.spec(), tensor.name)))
                << tensor.name;
        }
    }
    ImportReport import_changed(const json& config, const RawTensors& tensors,
                                const ImportOptions& options = {.force = true}) const {
        put_model(dir_.file("hf"), config, tensors);
        return import_hf(dir_.file("hf"), out(), options);
    }
    std::string refusal(const json& config, const RawTensors& tensors) const {
        return problem_text([&] { import_changed(config, tensors); });
    }
    std::string out() const { return dir_.file("base.h5"); }

    TempDir dir_;
};

TEST_F(PackedExpertsTest, NumbersWithInputsFirst) {
    const ImportReport report = import_hf(folder_of("gpt_oss"), out(), {});
    const auto weights = open_base_weights(out());
    const SafetensorsFile original(folder_of("gpt_oss") + "/model.safetensors");
    EXPECT_EQ(report.tensors, std::ssize(base_tensors(weights->spec())));
    std::map<std::string, std::vector<float>> packed;
    for (std::int64_t layer = 0; layer < weights->spec().layers; ++layer) {
        for (const char* name : {"gate_up_proj", "down_proj"}) {
            packed[experts_name(layer) + name] = original.read_floats(experts_name(layer) + name);
        }
    }
    expect_experts(*weights, [&](std::int64_t layer, std::int64_t expert,
                                 const ExpertLinear& linear, std::int64_t o, std::int64_t i) {
        const std::string name = experts_name(layer) + linear.packed;
        const std::vector<std::int64_t>& shape = original.entry(name).shape;
        return packed.at(name)[static_cast<std::size_t>((expert * shape[1] + i) * shape[2] + o)];
    });
    expect_biases(*weights, original);
    expect_others(*weights, original);
}

TEST_F(PackedExpertsTest, Mxfp4AsTransformersReadsIt) {
    const ImportReport report = import_hf(folder_of("gpt_oss_mxfp4"), out(), {});
    EXPECT_FALSE(report.quantization);
    EXPECT_TRUE(has(report.notes.back(), "experts in mxfp4 are read as the bf16 numbers"));
    const auto weights = open_base_weights(out());
    const SafetensorsFile original(folder_of("gpt_oss_mxfp4") + "/model.safetensors");
    const json facts = json::parse(read_text(test::golden_path("gpt_oss_mxfp4") + "/golden.json"));
    EXPECT_EQ(
        facts.at("weight_bits").size(),
        static_cast<std::size_t>(3 * weights->spec().layers * weights->spec().experts()->count));
    for (const auto& [name, expected] : facts.at("weight_bits").items()) {
        const LinearShape shape = target_of(weights->spec(), layer_in_name(name),
                                            *linear_of_module(name.substr(0, name.rfind('.'))))
                                      .shape;
        EXPECT_EQ(weights->dense_type_of(name), DType::bf16);
        const std::vector<float> values = read_all(*weights, {name, {shape.out, shape.in}});
        std::uint64_t bits = 0;
        for (std::uint64_t i = 0; i < values.size(); ++i) {
            bits += to_bfloat16(values[i]).bits * (2 * i + 1);
        }
        EXPECT_EQ(bits, expected.get<std::uint64_t>()) << name;
    }
    expect_biases(*weights, original);
    expect_others(*weights, original);
}

TEST_F(PackedExpertsTest, AllCodesAndExponentsOfMxfp4) {
    RawTensors tensors = tensors_of("gpt_oss_mxfp4");
    for (auto& [name, tensor] : tensors) {
        const bool scales = name.ends_with("_scales");
        if (!scales && !name.ends_with("_blocks")) continue;
        for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
            // Exponents of which 6 is still finite.
            tensor.bytes[i] = static_cast<char>(scales ? i * 7 % 253 : i * 37 % 256);
        }
    }
    import_changed(config_of("gpt_oss_mxfp4"), tensors);
    const auto weights = open_base_weights(out());
    expect_experts(*weights, [&](std::int64_t layer, std::int64_t expert,
                                 const ExpertLinear& linear, std::int64_t o, std::int64_t i) {
        const std::string name = experts_name(layer) + linear.packed;
        return static_cast<float>(
            mxfp4_weight(tensors.at(name + "_blocks"), tensors.at(name + "_scales"), expert, o, i));
    });
}

TEST_F(PackedExpertsTest, BlocksAndScalesInSeveralFiles) {
    RawTensors shards[2];
    json map = json::object();
    for (const auto& [name, tensor] : tensors_of("gpt_oss_mxfp4")) {
        const bool second = name.ends_with("_scales");
        shards[second ? 1 : 0][name] = tensor;
        map[name] = second ? "two.safetensors" : "one.safetensors";
    }
    std::filesystem::create_directories(dir_.file("hf"));
    test::put(dir_.file("hf/config.json"), config_of("gpt_oss_mxfp4").dump());
    test::put(dir_.file("hf/model.safetensors.index.json"), json{{"weight_map", map}}.dump());
    put_safetensors(dir_.file("hf/one.safetensors"), shards[0]);
    put_safetensors(dir_.file("hf/two.safetensors"), shards[1]);
    import_hf(dir_.file("hf"), out(), {});
    import_hf(folder_of("gpt_oss_mxfp4"), dir_.file("one.h5"), {});
    const auto weights = open_base_weights(out());
    const auto expected = open_base_weights(dir_.file("one.h5"));
    for (const BaseTensor& tensor : base_tensors(weights->spec())) {
        EXPECT_EQ(read_all(*weights, tensor), read_all(*expected, tensor)) << tensor.name;
    }
}

TEST_F(PackedExpertsTest, AreQuantisedFromWhatTheyStandFor) {
    import_hf(folder_of("gpt_oss_mxfp4"), out(), {});
    import_hf(folder_of("gpt_oss_mxfp4"), dir_.file("int8.h5"), {.quantize = WeightFormat::int8});
    const auto dense = open_base_weights(out());
    const auto weights = open_base_weights(dir_.file("int8.h5"));
    EXPECT_EQ(weights->spec().quantization, (Quantization{WeightFormat::int8, SourceType::bf16}));
    for (const BaseTensor& tensor : base_tensors(weights->spec())) {
        const std::vector<float> expected = read_all(*dense, tensor);
        const std::vector<float> found = read_all(*weights, tensor);
        float largest = 0.0F;
        for (const float value : expected) largest = std::max(largest, std::abs(value));
        for (std::size_t i = 0; i < found.size(); ++i) {
            ASSERT_NEAR(found[i], expected[i], 0.006F * largest) << tensor.name << " " << i;
        }
    }
}

TEST_F(PackedExpertsTest, RefusesWhatDoesNotFit) {
    const json config = config_of("gpt_oss_mxfp4");
    const RawTensors good = tensors_of("gpt_oss_mxfp4");
    const std::string down = experts_name(1) + "down_proj";
    RawTensors changed = good;
    changed.erase(down + "_scales");
    std::string text = refusal(config, changed);
    EXPECT_TRUE(has(text, "layers.1.mlp.experts.0.down_proj.weight: tensor is missing")) << text;
    EXPECT_TRUE(has(text, "down_proj_blocks: is not a tensor of a gpt_oss model")) << text;

    changed = good;
    changed[down + "_scales"].bytes[9] = '\xff';
    text = refusal(config, changed);
    EXPECT_TRUE(has(text, "layers.1.mlp.experts.0.down_proj.weight: element 288 is nan")) << text;

    changed = good;
    changed[down + "_blocks"].dtype = "I8";
    text = refusal(config, changed);
    EXPECT_TRUE(has(text, "down_proj_blocks: is not a tensor of a gpt_oss model")) << text;

    RawTensors numbers = tensors_of("gpt_oss");
    RawTensor& gate_up = numbers[experts_name(0) + "gate_up_proj"];
    std::swap(gate_up.shape[1], gate_up.shape[2]);
    gate_up.shape = {gate_up.shape[0], gate_up.shape[1] / 2, gate_up.shape[2] * 2};
    text = refusal(config_of("gpt_oss"), numbers);
    EXPECT_TRUE(has(text, "experts.0.gate_proj.weight: has shape [")) << text;
    EXPECT_TRUE(has(text, "config.json needs [32, 64]")) << text;
}

TEST_F(PackedExpertsTest, RefusesOtherQuantisations) {
    json config = config_of("gpt_oss");
    config["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}};
    const std::string text = refusal(config, tensors_of("gpt_oss"));
    EXPECT_TRUE(
        has(text, "is not quantised (F32) although config.json says that linear layers are"))
        << text;
    json other = config_of("qwen3_moe");
    other["quantization_config"] = {{"quant_method", "mxfp4"}};
    const std::string moe = refusal(other, tensors_of("qwen3_moe"));
    EXPECT_TRUE(has(moe, "quant_method is \"mxfp4\", which is not supported")) << moe;
}

}  // namespace
}  // namespace loratrain::test
