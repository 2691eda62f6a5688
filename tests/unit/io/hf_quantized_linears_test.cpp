#include "io/weights/hf_quantized_linears.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <span>

#include "base/e4m3.h"
#include "base/quantized.h"
#include "io/files.h"
#include "io/tensor_names.h"
#include "io/weights/import_hf.h"
#include "io/weights/quantized_parts.h"
#include "support/golden_path.h"
#include "support/problems.h"
#include "unit/io/tiny_model.h"

namespace loratrain {
namespace {

using nlohmann::json;
using test::bytes_of;
using test::golden_path;
using test::has;
using test::problem_text;
using test::put_model;
using test::RawTensors;
using test::read_all;
using test::TempDir;
using test::tiny_config;
using test::tiny_spec;
using test::tiny_tensors;

/// As tests/golden/quantized_base.py: the sum of bits[i] (2 i + 1).
std::uint64_t bits_of(const WeightSource& weights, const BaseTensor& tensor) {
    const auto cols = tensor.shape[1];
    std::vector<BFloat16> values(static_cast<std::size_t>(tensor.shape[0] * cols));
    weights.read_rows(tensor.name, 0, matrix(values.data(), DType::bf16, tensor.shape[0], cols));
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < values.size(); ++i) sum += values[i].bits * (2 * i + 1);
    return sum;
}

class ImportQuantizedTest : public ::testing::Test {
  protected:
    std::string out() const { return dir_.file("base.h5"); }
    std::string hf() const { return dir_.file("hf"); }
    std::string import_problem(const std::string& folder,
                               std::optional<WeightFormat> quantize = std::nullopt) const {
        return problem_text(
            [&] { import_hf(folder, out(), {.force = true, .quantize = quantize}); });
    }
    TempDir dir_;
};

json wide_config() {
    json config = tiny_config();
    config["hidden_size"] = 128;
    config["head_dim"] = 64;
    config["intermediate_size"] = 320;
    return config;
}

TEST_F(ImportQuantizedTest, ReadsFoldersOfItsKindsToTheBit) {
    for (const std::string family :
         {"llama_nf4", "llama_int8", "llama_e4m3", "llama_e4m3_block", "qwen3_moe_e4m3_block"}) {
        const std::string folder = golden_path(family);
        const ImportReport report = import_hf(folder + "/base", out(), {.force = true});
        ASSERT_TRUE(report.quantization);
        EXPECT_TRUE(family.ends_with(cat("_", traits_of(report.quantization->format).name)));
        const auto weights = open_base_weights(out());
        EXPECT_EQ(weights->spec().quantization, report.quantization);
        const auto facts = json::parse(std::ifstream(folder + "/golden.json"));
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            EXPECT_NO_THROW(weights->check_contents(tensor.name));
            if (!is_linear_weight(tensor.name)) continue;
            EXPECT_EQ(bits_of(*weights, tensor),
                      facts.at("weight_bits").at(tensor.name).get<std::uint64_t>())
                << family << " " << tensor.name;
        }
    }
}

TEST_F(ImportQuantizedTest, QuantisesLinearsAlone) {
    RawTensors tensors = tiny_tensors(tiny_spec(wide_config()));
    put_model(hf(), wide_config(), tensors);
    import_hf(hf(), dir_.file("dense.h5"), {});
    const auto dense = open_base_weights(dir_.file("dense.h5"));
    for (const auto& [format, largest_error] : {std::pair(WeightFormat::nf4, 0.16),
                                                {WeightFormat::int8, 0.0045},
                                                {WeightFormat::e4m3, 0.037}}) {
        import_hf(hf(), out(), {.force = true, .quantize = format});
        const auto weights = open_base_weights(out());
        EXPECT_EQ(weights->spec().quantization, (Quantization{format, SourceType::f32}));
        EXPECT_NE(weights->checksum(), dense->checksum());
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            EXPECT_NO_THROW(weights->check_contents(tensor.name));
            const std::vector<float> expected = read_all(*dense, tensor);
            const std::vector<float> got = read_all(*weights, tensor);
            if (!is_linear_weight(tensor.name)) {
                EXPECT_EQ(got, expected) << tensor.name;
                continue;
            }
            EXPECT_NE(got, expected) << tensor.name;
            for (std::size_t i = 0; i < got.size(); ++i) {
                ASSERT_NEAR(got[i], expected[i], largest_error * 280.0) << tensor.name << " " << i;
            }
        }
    }
}

/// Codes and scales of a matrix as files have them.
struct StoredCodes {
    StoredCodes(WeightFormat format, const std::vector<float>& values, std::int64_t cols) {
        const WeightTraits& traits = traits_of(format);
        const std::size_t rows = values.size() / static_cast<std::size_t>(cols);
        codes.resize(rows * code_bytes(traits, cols));
        scales.resize(rows * static_cast<std::size_t>(scale_count(traits, cols)));
        for (std::size_t i = 0; i < rows; ++i) {
            quantize_row(format, std::span(values).subspan(i * cols, cols),
                         codes.data() + i * code_bytes(traits, cols),
                         scales.data() + i * scale_count(traits, cols));
        }
        if (format != WeightFormat::nf4) return;
        std::vector<std::uint8_t> of_scales(scales.size());
        const NestedScales nested = nest_scales(scales, of_scales.data());
        for (std::size_t i = 0; i < scales.size(); ++i) {
            scales[i] = nested.scale(static_cast<std::int64_t>(i), of_scales[i]);
        }
    }
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
};

json mixture_config() {
    json config = json::parse(read_text(golden_path("qwen3_moe/base/config.json")));
    config.update({{"hidden_size", 128}, {"moe_intermediate_size", 192}, {"num_hidden_layers", 1}});
    return config;
}

TEST_F(ImportQuantizedTest, QuantisesEachExpertsLinearsByThemselves) {
    put_model(hf(), mixture_config(), tiny_tensors(tiny_spec(mixture_config())));
    import_hf(hf(), dir_.file("dense.h5"), {});
    const auto dense = open_base_weights(dir_.file("dense.h5"));
    for (const WeightFormat format : {WeightFormat::nf4, WeightFormat::int8, WeightFormat::e4m3}) {
        import_hf(hf(), out(), {.force = true, .quantize = format});
        const auto weights = open_base_weights(out());
        int experts = 0;
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            if (expert_in_name(tensor.name) == no_expert) continue;
            const StoredCodes expected(format, read_all(*dense, tensor), tensor.shape[1]);
            StoredCodes got = expected;
            got.codes.assign(got.codes.size(), 0);
            got.scales.assign(got.scales.size(), 0.0F);
            weights->read_codes(tensor.name, 0, tensor.shape[0], got.codes.data(),
                                got.scales.data());
            EXPECT_EQ(got.codes, expected.codes) << tensor.name;
            EXPECT_EQ(got.scales, expected.scales) << tensor.name;
            ++experts;
        }
        EXPECT_EQ(experts, 3 * 6);
        const std::string router = "model.layers.0.mlp.gate.weight";
        EXPECT_EQ(read_all(*weights, {router, {6, 128}}), read_all(*dense, {router, {6, 128}}));
    }
}

TEST_F(ImportQuantizedTest, CodesAndScalesOfAnyRowsAreThoseOfTheWholeTensor) {
    for (const char* format : {"nf4", "int8", "e4m3", "e4m3_block"}) {
        import_hf(golden_path(cat("llama_", format)) + "/base", out(), {.force = true});
        const auto weights = open_base_weights(out());
        const std::string name = "model.layers.1.mlp.down_proj.weight";
        const WeightTraits& traits = traits_of(weights->spec().quantization->format);
        const std::uint64_t row = code_bytes(traits, 256);
        const auto scales = static_cast<std::size_t>(scale_count(traits, 256));
        std::vector<char> whole(128 * row);
        std::vector<float> whole_scales(128 * scales);
        weights->read_codes(name, 0, 128, whole.data(), whole_scales.data());
        std::vector<char> part(50 * row);
        std::vector<float> part_scales(50 * scales);
        weights->read_codes(name, 77, 50, part.data(), part_scales.data());
        EXPECT_TRUE(std::equal(part.begin(), part.end(),
                               whole.begin() + static_cast<std::ptrdiff_t>(77 * row)));
        EXPECT_TRUE(std::equal(part_scales.begin(), part_scales.end(),
                               whole_scales.begin() + static_cast<std::ptrdiff_t>(77 * scales)));
        EXPECT_NO_THROW(weights->read_codes(name, 128, 0, nullptr, nullptr));
        EXPECT_THROW(weights->read_codes(name, 127, 2, whole.data(), whole_scales.data()), Error);
        EXPECT_THROW(weights->read_codes("lm_head.weight", 0, 1, whole.data(), whole_scales.data()),
                     Error);
    }
}

TEST_F(ImportQuantizedTest, RefusesRowsThatNf4CannotCutAndNamesThem) {
    const std::string text = import_problem(golden_path("mistral") + "/base", WeightFormat::nf4);
    EXPECT_TRUE(has(text, "model.layers.0.mlp.down_proj.weight"));
    EXPECT_TRUE(has(text, "has rows of 144 weights, not a multiple of 64 as nf4 needs"));
    EXPECT_TRUE(has(text, "model.layers.1.mlp.down_proj.weight"));
    EXPECT_FALSE(has(text, "q_proj"));
    EXPECT_TRUE(
        has(import_problem(golden_path("qwen3_moe") + "/base", WeightFormat::nf4),
            "mlp.experts.0.down_proj.weight: has rows of 24 weights, not a multiple of 64"));
    EXPECT_FALSE(std::filesystem::exists(out()));
    EXPECT_NO_THROW(import_hf(golden_path("mistral") + "/base", out(),
                              {.force = true, .quantize = WeightFormat::int8}));
}

TEST_F(ImportQuantizedTest, RefusesToQuantiseAgain) {
    EXPECT_TRUE(has(import_problem(golden_path("llama_nf4") + "/base", WeightFormat::int8),
                    "is quantised already: nf4"));
}

json config_with_one_scale() {
    json config = wide_config();
    const json weights = {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}};
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", "float-quantized"},
                                     {"config_groups", {{"group_0", {{"weights", weights}}}}}};
    return config;
}

/// compressed-tensors with one scale for a whole matrix.
RawTensors tensors_with_one_scale(const std::string& scale_type, std::vector<std::int64_t> shape) {
    RawTensors tensors = tiny_tensors(tiny_spec(wide_config()));
    for (const BaseTensor& tensor : base_tensors(tiny_spec(wide_config()))) {
        if (!is_linear_weight(tensor.name)) continue;
        std::string codes(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]), '\0');
        for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<char>(i % 127);
        tensors[tensor.name] = {"F8_E4M3", tensor.shape, codes};
        const std::string scale = scale_type == "F32"
                                      ? bytes_of(std::vector<float>{0.75F})
                                      : bytes_of(std::vector<BFloat16>{to_bfloat16(0.75F)});
        tensors[scales_name(WeightFormat::e4m3, tensor.name)] = {scale_type, shape, scale};
    }
    return tensors;
}

TEST_F(ImportQuantizedTest, ReadsOneScaleForAWholeMatrix) {
    const json config = config_with_one_scale();
    for (const auto& [type, shape] : {std::pair<std::string, std::vector<std::int64_t>>("F32", {1}),
                                      {"BF16", {}},
                                      {"BF16", {1, 1}}}) {
        put_model(hf(), config, tensors_with_one_scale(type, shape));
        import_hf(hf(), out(), {.force = true});
        const auto weights = open_base_weights(out());
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            EXPECT_NO_THROW(weights->check_contents(tensor.name));
            if (!is_linear_weight(tensor.name)) continue;
            const std::vector<float> values = read_all(*weights, tensor);
            for (std::size_t i = 0; i < values.size(); ++i) {
                const float exact = from_e4m3(static_cast<std::uint8_t>(i % 127)) * 0.75F;
                ASSERT_EQ(values[i], rounded_to(SourceType::bf16, exact))
                    << tensor.name << " " << i;
            }
            std::vector<char> codes(static_cast<std::size_t>(3 * tensor.shape[1]));
            std::vector<float> scales(3);
            weights->read_codes(tensor.name, tensor.shape[0] - 3, 3, codes.data(), scales.data());
            EXPECT_EQ(scales, std::vector<float>(3, 0.75F));
        }
    }
}

TEST_F(ImportQuantizedTest, NamesTheModelAsItWasBefore) {
    json config = config_with_one_scale();
    const auto report_of = [&](const char* name, const std::string& given = "") {
        if (name != nullptr) config["_name_or_path"] = name;
        put_model(hf(), config, tensors_with_one_scale("F32", {1}));
        return import_hf(hf(), out(), {.force = true, .base_model_name = given});
    };
    for (const char* none : {static_cast<const char*>(nullptr), "/data/hf", "tiny", ""}) {
        EXPECT_EQ(report_of(none).base_model_name, hf());
        EXPECT_TRUE(report_of(none).base_is_quantized);
    }
    EXPECT_EQ(report_of("org/HF").base_model_name, "org/HF");
    EXPECT_TRUE(report_of("org/HF").base_is_quantized);
    for (const char* source : {"org/tiny-1b", "/data/tiny"}) {
        EXPECT_EQ(report_of(source).base_model_name, source);
        EXPECT_FALSE(report_of(source).base_is_quantized);
        EXPECT_EQ(open_base_weights(out())->base_model_name(), source);
    }
    EXPECT_EQ(report_of("org/tiny-1b", "mine").base_model_name, "mine");
    EXPECT_FALSE(report_of("tiny", "mine").base_is_quantized);
}

TEST_F(ImportQuantizedTest, RefusesPartlyQuantisedFolders) {
    json config = wide_config();
    config["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}};
    put_model(hf(), config, tiny_tensors(tiny_spec(wide_config())));
    EXPECT_TRUE(has(import_problem(hf()), "is not quantised (F32) although config.json says"));
}

TEST_F(ImportQuantizedTest, NamesEveryPartThatDoesNotFit) {
    json config = wide_config();
    config["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}};
    RawTensors tensors = tiny_tensors(tiny_spec(wide_config()));
    for (const BaseTensor& tensor : base_tensors(tiny_spec(wide_config()))) {
        if (!is_linear_weight(tensor.name)) continue;
        const auto count = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]);
        const auto rows = static_cast<std::size_t>(tensor.shape[0]);
        tensors[tensor.name] = {"I8", tensor.shape, std::string(count, '\3')};
        tensors[scales_name(WeightFormat::int8, tensor.name)] = {
            "F32", {tensor.shape[0]}, bytes_of(std::vector<float>(rows, 2.0F))};
    }
    put_model(hf(), config, tensors);
    EXPECT_NO_THROW(import_hf(hf(), out(), {}));
    const std::string module = "model.layers.0.mlp.up_proj.";
    tensors.erase(module + "SCB");
    tensors["model.layers.0.self_attn.q_proj.SCB"].dtype = "I32";
    tensors["model.layers.0.self_attn.k_proj.weight_format"] = {"U8", {}, std::string(1, '\2')};
    tensors["model.layers.0.self_attn.v_proj.weight"].dtype = "U8";
    put_model(hf(), config, tensors);
    const std::string text = import_problem(hf());
    EXPECT_TRUE(has(text, module + "SCB: tensor is missing"));
    EXPECT_TRUE(has(text, "q_proj.SCB: has dtype I32, must be F32"));
    EXPECT_TRUE(has(text, "k_proj.weight_format: is 2, must be 0"));
    EXPECT_TRUE(has(text, "v_proj.weight: has dtype U8, must be I8"));
}

TEST_F(ImportQuantizedTest, RefusesNanAmongCodesAndScales) {
    json config = wide_config();
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    RawTensors tensors = tiny_tensors(tiny_spec(wide_config()));
    for (const BaseTensor& tensor : base_tensors(tiny_spec(wide_config()))) {
        if (!is_linear_weight(tensor.name)) continue;
        const auto shape =
            scales_shape(WeightFormat::e4m3_block, {tensor.shape[0], tensor.shape[1]});
        const auto count = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]);
        tensors[tensor.name] = {"F8_E4M3", tensor.shape, std::string(count, '\x38')};
        tensors[scales_name(WeightFormat::e4m3_block, tensor.name)] = {
            "F32", shape,
            bytes_of(std::vector<float>(static_cast<std::size_t>(shape[0] * shape[1]), 0.5F))};
    }
    put_model(hf(), config, tensors);
    import_hf(hf(), out(), {});
    const BaseTensor up{"model.layers.0.mlp.up_proj.weight", {320, 128}};
    EXPECT_EQ(read_all(*open_base_weights(out()), up), std::vector<float>(320 * 128, 0.5F));
    RawTensors nan = tensors;
    nan[up.name].bytes[1000] = '\x7f';
    put_model(hf(), config, nan);
    EXPECT_TRUE(has(import_problem(hf()), "up_proj.weight: value 1000 is nan"));
    tensors[up.name + "_scale_inv"].bytes = bytes_of(std::vector<float>{0.5F, std::nanf(""), 0.5F});
    put_model(hf(), config, tensors);
    EXPECT_TRUE(has(import_problem(hf()), "up_proj.weight_scale_inv"));
}

TEST(NestedScales, MapIsTheSignedDynamicOne) {
    const auto map = dynamic_map();
    EXPECT_EQ(map[0], -0.992968738079071F);
    EXPECT_EQ(map[127], 0.0F);
    EXPECT_EQ(map[128], 5.500000384017767e-07F);
    EXPECT_EQ(map[254], 0.992968738079071F);
    EXPECT_EQ(map[255], 1.0F);
}

TEST(NestedScales, AreNearThoseGiven) {
    std::vector<float> scales(600);
    for (std::size_t i = 0; i < scales.size(); ++i) {
        scales[i] = 2.0F + std::sin(static_cast<float>(i));
    }
    std::vector<std::uint8_t> codes(scales.size());
    const NestedScales nested = nest_scales(scales, codes.data());
    EXPECT_EQ(nested.nested.size(), 3U);
    for (std::size_t i = 0; i < scales.size(); ++i) {
        EXPECT_NEAR(nested.scale(static_cast<std::int64_t>(i), codes[i]), scales[i], 0.01);
    }
    const std::vector<float> zeros(7, 0.0F);
    const NestedScales none = nest_scales(zeros, codes.data());
    for (std::int64_t i = 0; i < 7; ++i) EXPECT_EQ(none.scale(i, codes[0]), 0.0F);
}

}  // namespace
}  // namespace loratrain
