#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/e4m3.h"
#include "base/quantized.h"
#include "io/adapters/adapter_products.h"
#include "io/adapters/merge_adapter.h"
#include "io/adapters/merged_tensors.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "io/tensor_names.h"
#include "io/weights/base_tensors.h"
#include "io/weights/import_hf.h"
#include "support/files.h"
#include "support/golden_path.h"
#include "support/problems.h"
#include "support/small_model.h"
#include "unit/io/merge_folder.h"
#include "unit/io/tiny_model.h"

namespace loratrain {
namespace {

using nlohmann::json;
using test::golden_path;
using test::has;
using test::problem_text;

using Matrix = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

/// A matrix [rows, cols] read as fp32.
Matrix read_matrix(const WeightSource& base, const BaseTensor& tensor) {
    const std::int64_t cols = tensor.shape.back();
    const std::int64_t rows = tensor.shape.size() < 2 ? 1 : tensor.shape[0];
    Matrix values(static_cast<std::size_t>(rows * cols));
    base.read_rows(tensor.name, 0, matrix(values.data(), DType::f32, rows, cols));
    return values;
}

Bytes read_raw(const SafetensorsFile& file, const std::string& name) {
    const SafetensorsEntry& entry = file.entry(name);
    Bytes bytes(entry.end - entry.begin);
    file.read_bytes(name, 0, bytes.size(), bytes.data());
    return bytes;
}

/// What a library makes of a linear of a merged folder, in plain loops.
Matrix decoded(const SafetensorsFile& file, MergedForm form, const std::string& weight,
               std::int64_t cols, SourceType source) {
    const Bytes codes = read_raw(file, weight);
    Matrix values;
    if (form == MergedForm::nf4) {
        const std::vector<float> absmax = file.read_floats(weight + ".absmax");
        const std::vector<float> table = file.read_floats(weight + ".quant_map");
        for (std::size_t i = 0; i < 2 * codes.size(); ++i) {
            const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
            values.push_back(table.at(static_cast<std::size_t>(code)) * absmax.at(i / 64));
        }
    } else {
        const bool int8 = form == MergedForm::int8;
        const std::string module = weight.substr(0, weight.size() - std::strlen("weight"));
        const std::vector<float> scales =
            file.read_floats(int8 ? module + "SCB" : weight + "_scale");
        for (std::size_t i = 0; i < codes.size(); ++i) {
            const float scale = scales.at(i / static_cast<std::size_t>(cols));
            values.push_back(int8 ? static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale *
                                        7.874015718698502e-3F
                                  : from_e4m3(codes[i]) * scale);
        }
    }
    for (float& value : values) value = rounded_to(source, value);
    return values;
}

class MergeFormsTest : public test::MergeFolder {
  protected:
    static std::string adapter(const std::string& family, const std::string& name = "a_r4_all") {
        return golden_path(family + "/adapters/" + name + "/final");
    }
    std::string refusal(const std::string& family, const std::string& name, MergedForm form) {
        const auto weights = base(family);
        const std::string text =
            problem_text([&] { merge_adapter(adapter(family, name), *weights, out(), {form}); });
        EXPECT_FALSE(std::filesystem::exists(out()));
        EXPECT_FALSE(std::filesystem::exists(hidden()));
        return text;
    }
    json changes() const { return json::parse(read_text(out() + "/surviving_changes.json")); }
};

/// Of every form: what is in the file, read as its library reads it and by import-hf, is a weight
/// of the form nearest to W + scaling B A.
TEST_F(MergeFormsTest, WritesEveryLinearInItsForm) {
    struct Case {
        MergedForm form;
        std::string family;
        const char* codes;
        double step;  ///< half of the widest, over the largest magnitude of a block
    };
    const Case cases[] = {{MergedForm::nf4, "llama_int8", "U8", 0.157},
                          {MergedForm::int8, "llama", "I8", 0.00394},
                          {MergedForm::int8, "llama_e4m3", "I8", 0.0079},
                          {MergedForm::fp8, "llama", "F8_E4M3", 0.0358},
                          {MergedForm::fp8, "llama_nf4", "F8_E4M3", 0.043}};
    for (const Case& each : cases) {
        SCOPED_TRACE(each.family);
        const auto weights = base(each.family);
        const bool f32 = each.family == "llama";
        const MergeReport report =
            merge_adapter(adapter(each.family), *weights, out(), {each.form});
        merge_adapter(adapter(each.family), *weights, folder_.file("dense"));
        const SafetensorsFile merged(out() + "/model.safetensors");
        const SafetensorsFile dense(folder_.file("dense/model.safetensors"));
        import_hf(out(), folder_.file("again.h5"), {.force = true});
        const auto again = open_base_weights(folder_.file("again.h5"));
        std::uint64_t linears = 0;
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            const Matrix whole = dense.read_floats(tensor.name);
            if (!is_linear_weight(tensor.name)) {
                EXPECT_EQ(merged.read_floats(tensor.name), whole) << tensor.name;
                EXPECT_EQ(merged.entry(tensor.name).dtype, f32 ? "F32" : "BF16") << tensor.name;
                continue;
            }
            ++linears;
            EXPECT_EQ(merged.entry(tensor.name).dtype, each.codes);
            const std::int64_t cols = tensor.shape[1];
            const Matrix found = decoded(merged, each.form, tensor.name, cols,
                                         f32 ? SourceType::f32 : SourceType::bf16);
            EXPECT_EQ(read_matrix(*again, tensor), found) << tensor.name;
            const auto block = static_cast<std::size_t>(each.form == MergedForm::nf4 ? 64 : cols);
            ASSERT_EQ(found.size(), whole.size());
            for (std::size_t first = 0; first < whole.size(); first += block) {
                float largest = 0.0F;
                for (std::size_t i = first; i < first + block; ++i) {
                    largest = std::max(largest, std::abs(whole[i]));
                }
                for (std::size_t i = first; i < first + block; ++i) {
                    ASSERT_LE(std::abs(found[i] - whole[i]), each.step * largest) << tensor.name;
                }
            }
        }
        EXPECT_EQ(linears, 7U * static_cast<std::uint64_t>(weights->spec().layers));
        EXPECT_EQ(surviving_of_kinds(report.changes).size(), 7U);
        std::filesystem::remove_all(out());
        std::filesystem::remove_all(folder_.file("dense"));
    }
}

TEST_F(MergeFormsTest, ConfigsSayHowTheFilesAreRead) {
    const auto weights = base("llama_int8");
    const auto config = [&](MergedForm form) {
        merge_adapter(adapter("llama_int8"), *weights, out(), {form});
        const json found = json::parse(read_text(out() + "/config.json"));
        std::filesystem::remove_all(out());
        EXPECT_EQ(found["dtype"].get<std::string>(), "bfloat16");
        return found["quantization_config"];
    };
    const json nf4 = config(MergedForm::nf4);
    EXPECT_EQ(nf4["bnb_4bit_quant_type"].get<std::string>(), "nf4");
    EXPECT_FALSE(nf4["bnb_4bit_use_double_quant"].get<bool>());
    EXPECT_EQ(nf4["bnb_4bit_compute_dtype"].get<std::string>(), "bfloat16");
    EXPECT_TRUE(config(MergedForm::int8)["load_in_8bit"].get<bool>());
    const json fp8 = config(MergedForm::fp8);
    EXPECT_EQ(fp8["format"].get<std::string>(), "float-quantized");
    EXPECT_TRUE(fp8["config_groups"]["group_0"]["input_activations"].is_null());
}

/// transformers makes the scales bf16 as it loads them.
TEST_F(MergeFormsTest, ScalesOfFp8HaveTheTypeOfTheModel) {
    const auto weights = base("llama_nf4");
    merge_adapter(adapter("llama_nf4"), *weights, out(), {MergedForm::fp8});
    const SafetensorsFile merged(out() + "/model.safetensors");
    const SafetensorsEntry scales = merged.entry("model.layers.1.mlp.up_proj.weight_scale");
    EXPECT_EQ(scales.dtype, "BF16");
    EXPECT_EQ(scales.shape, (std::vector<std::int64_t>{256, 1}));
}

/// The definition in surviving_change.h, in plain fp64 loops over whole matrices.
TEST_F(MergeFormsTest, TellsWhatIsLeftOfEveryChange) {
    for (const MergedForm form : {MergedForm::nf4, MergedForm::int8, MergedForm::fp8}) {
        const auto weights = base("llama_int8");
        const MergeReport report = merge_adapter(adapter("llama_int8"), *weights, out(), {form});
        const auto rows = rows_in(form, DType::bf16);
        const SafetensorsFile lora(adapter("llama_int8") + "/adapter_model.safetensors");
        const json told = changes()["linears"];
        EXPECT_EQ(told.size(), 14U);
        double least = 9.0;
        for (const auto& [module, of] : told.items()) {
            const std::vector<std::int64_t> shape = {
                lora.entry("base_model.model." + module + ".lora_B.weight").shape[0],
                lora.entry("base_model.model." + module + ".lora_A.weight").shape[1]};
            const Matrix w = read_matrix(*weights, {module + ".weight", shape});
            const Matrix a = lora.read_floats("base_model.model." + module + ".lora_A.weight");
            const Matrix b = lora.read_floats("base_model.model." + module + ".lora_B.weight");
            const auto cols = static_cast<std::size_t>(shape[1]);
            const auto written = [&](const Matrix& of_matrix) {
                Matrix result(of_matrix.size());
                Bytes codes(rows->code_bytes(shape[1]));
                Bytes scales(rows->scale_bytes(shape[1]));
                for (std::size_t i = 0; i < result.size(); i += cols) {
                    rows->encode(std::span(of_matrix).subspan(i, cols), codes.data(), scales.data(),
                                 result.data() + i);
                }
                return result;
            };
            std::vector<double> d(w.size());
            Matrix sum = w;
            for (std::size_t i = 0; i < w.size(); ++i) {
                for (std::size_t k = 0; k < 4; ++k) {
                    d[i] += 2.0 * b[i / cols * 4 + k] * a[k * cols + i % cols];
                    sum[i] += 2.0F * b[i / cols * 4 + k] * a[k * cols + i % cols];
                }
            }
            const Matrix before = written(w);
            const Matrix after = written(sum);
            double dd = 0.0;
            double rd = 0.0;
            double rr = 0.0;
            double ee = 0.0;
            for (std::size_t i = 0; i < w.size(); ++i) {
                const double r = double{after[i]} - double{before[i]};
                dd += d[i] * d[i];
                rd += r * d[i];
                rr += r * r;
                ee += std::pow(double{after[i]} - double{sum[i]}, 2);
            }
            EXPECT_NEAR(of["share"].get<double>(), rd / dd, 1e-5) << module;
            EXPECT_NEAR(of["cosine"].get<double>(), rd / std::sqrt(rr * dd), 1e-5) << module;
            EXPECT_NEAR(of["rounding"].get<double>(), std::sqrt(ee / dd), 1e-5 * std::sqrt(ee / dd))
                << module;
            if (module.ends_with("q_proj")) least = std::min(least, rd / dd);
        }
        const SurvivingOfKind first = surviving_of_kinds(report.changes)[0];
        EXPECT_EQ(first.kind, "q_proj");
        EXPECT_EQ(first.modules, 2);
        EXPECT_NEAR(first.least, least, 1e-5);
        std::filesystem::remove_all(out());
    }
}

/// W of a base in nf4 lies on numbers of nf4, so that small changes are lost; int8 has numbers
/// beside them.
TEST_F(MergeFormsTest, SmallChangesOfABaseInTheSameFormAreLost) {
    const auto weights = base("llama_nf4");
    const std::string dir = folder_.file("small");
    std::filesystem::create_directories(dir);
    std::filesystem::copy_file(adapter("llama_nf4") + "/adapter_config.json",
                               dir + "/adapter_config.json");
    const SafetensorsFile file(adapter("llama_nf4") + "/adapter_model.safetensors");
    std::vector<NamedTensor> tensors;
    for (const auto& [name, entry] : file.entries()) {
        tensors.push_back({name, entry.shape, file.read_floats(name)});
        const bool gate = has(name, "gate_proj");
        for (float& value : tensors.back().values) value *= gate ? 0.0F : 0.03F;
    }
    write_safetensors(dir + "/adapter_model.safetensors", tensors);
    const MergeReport nf4 = merge_adapter(dir, *weights, out(), {MergedForm::nf4});
    EXPECT_LT(std::abs(surviving_of_all(nf4.changes)->share), 0.1);
    EXPECT_EQ(surviving_of_kinds(nf4.changes).size(), 6U);  // gate_proj has no change
    EXPECT_TRUE(changes()["linears"]["model.layers.0.mlp.gate_proj"].is_null());
    EXPECT_FALSE(has(surviving_text(surviving_of_kinds(nf4.changes)), "gate_proj"));
    std::filesystem::remove_all(out());
    const MergeReport whole =
        merge_adapter(adapter("llama_nf4"), *weights, out(), {MergedForm::int8});
    EXPECT_NEAR(surviving_of_all(whole.changes)->share, 1.0, 0.05);
}

/// Read again, the experts are what they were: their numbers are in the form already.
TEST_F(MergeFormsTest, ExpertsOfMxfp4AreWrittenAsTheyWere) {
    const auto weights = base("gpt_oss_mxfp4");
    const MergeReport report =
        merge_adapter(adapter("gpt_oss_mxfp4"), *weights, out(), {MergedForm::mxfp4});
    merge_adapter(adapter("gpt_oss_mxfp4"), *weights, folder_.file("dense"));
    const SafetensorsFile merged(out() + "/model.safetensors");
    const SafetensorsFile original(golden_path("gpt_oss_mxfp4/base/model.safetensors"));
    const SafetensorsFile dense(folder_.file("dense/model.safetensors"));
    EXPECT_EQ(merged.entries().size(), original.entries().size());
    for (const auto& [name, entry] : original.entries()) {
        EXPECT_EQ(merged.entry(name).shape, entry.shape) << name;
        EXPECT_EQ(merged.entry(name).dtype, entry.dtype) << name;
        if (name.ends_with("_blocks") || name.ends_with("_scales")) continue;
        EXPECT_EQ(merged.read_floats(name), dense.read_floats(name)) << name;
    }
    import_hf(out(), folder_.file("again.h5"), {});
    const auto again = open_base_weights(folder_.file("again.h5"));
    std::int64_t experts = 0;
    for (const BaseTensor& tensor : base_tensors(weights->spec())) {
        if (expert_in_name(tensor.name) == no_expert) continue;
        EXPECT_EQ(read_matrix(*again, tensor), read_matrix(*weights, tensor)) << tensor.name;
        ++experts;
    }
    EXPECT_EQ(experts, 3 * 5 * 3);
    ASSERT_EQ(surviving_of_kinds(report.changes).size(), 4U);  // q, k, v and o in bf16
    EXPECT_NEAR(surviving_of_all(report.changes)->share, 1.0, 0.01);
    const json config = json::parse(read_text(out() + "/config.json"));
    EXPECT_EQ(config["quantization_config"],
              json::parse(
                  read_text(golden_path("gpt_oss_mxfp4/base/config.json")))["quantization_config"]);
}

/// Experts of numbers become the nearest numbers of mxfp4, gates and ups in turn.
TEST_F(MergeFormsTest, ExpertsOfNumbersBecomeMxfp4) {
    const auto weights = base("gpt_oss");
    merge_adapter(adapter("gpt_oss"), *weights, out(), {MergedForm::mxfp4});
    import_hf(out(), folder_.file("again.h5"), {});
    const auto again = open_base_weights(folder_.file("again.h5"));
    for (const BaseTensor& tensor : base_tensors(weights->spec())) {
        if (expert_in_name(tensor.name) == no_expert) continue;
        const Matrix before = read_matrix(*weights, tensor);
        const Matrix now = read_matrix(*again, tensor);
        for (std::size_t first = 0; first < before.size(); first += 32) {
            float largest = 0.0F;
            for (std::size_t i = first; i < first + 32; ++i) {
                largest = std::max(largest, std::abs(before[i]));
            }
            const double scale = std::exp2(std::ceil(std::log2(largest / 6.0)));
            for (std::size_t i = first; i < first + 32; ++i) {
                const double size = std::abs(before[i]) / scale;
                const double half_step = size <= 2.0 ? 0.25 : size <= 4.0 ? 0.5 : 1.0;
                ASSERT_LE(std::abs(now[i] - before[i]), half_step * scale * 1.0001) << tensor.name;
            }
        }
    }
}

TEST_F(MergeFormsTest, CodesAndScalesOfATensorStayTogether) {
    const auto weights = base("llama_int8");
    const MergeReport report =
        merge_adapter(adapter("llama_int8"), *weights, out(), {MergedForm::nf4, 20'000});
    EXPECT_GT(report.files, 3);
    const json map = json::parse(read_text(out() + "/model.safetensors.index.json"))["weight_map"];
    EXPECT_EQ(map.size(), base_tensors(weights->spec()).size() + 14 * 3);
    std::uint64_t bytes = 0;
    for (const auto& [name, file] : map.items()) {
        const SafetensorsFile shard(out() + "/" + file.get<std::string>());
        const SafetensorsEntry& entry = shard.entry(name);
        bytes += entry.end - entry.begin;
        const auto size = entry.dtype == "F32" ? 4U : entry.dtype == "BF16" ? 2U : 1U;
        EXPECT_EQ(entry.begin % size, 0U) << name;  // torch maps the file
    }
    EXPECT_EQ(report.bytes, bytes);
    EXPECT_NO_THROW(import_hf(out(), folder_.file("again.h5"), {}));
}

TEST_F(MergeFormsTest, RefusesWhatNoProgramLoads) {
    const std::string experts = refusal("qwen3_moe", "a_r4_all", MergedForm::nf4);
    EXPECT_TRUE(has(experts, "--quantize nf4")) << experts;
    EXPECT_TRUE(has(experts, "experts of a qwen3_moe model are not written in nf4, int8 and fp8"))
        << experts;
    EXPECT_TRUE(has(refusal("gpt_oss", "a_r4_all", MergedForm::fp8), "use --quantize mxfp4"));
    EXPECT_TRUE(has(refusal("granitemoe", "a_r4_all", MergedForm::mxfp4),
                    "only in experts of gpt_oss, not in those of a granitemoe model"));
    EXPECT_TRUE(
        has(refusal("llama", "a_r4_all", MergedForm::mxfp4), "a llama model has no experts"));
    const std::string rows = refusal("llama", "a_r4_all", MergedForm::nf4);
    EXPECT_TRUE(has(rows,
                    "model.layers.0.mlp.down_proj.weight: has rows of 160 weights, not a "
                    "multiple of 64 as nf4 needs"))
        << rows;
    EXPECT_TRUE(has(rows, "use --quantize int8 or fp8")) << rows;
    EXPECT_TRUE(has(refusal("llama", "f_dora", MergedForm::int8), "use_dora is true"));
    EXPECT_TRUE(has(refusal("qwen2", "f_head", MergedForm::int8), "the head is the embedding"));
}

/// A merge that was killed leaves its folder under another name, and one that fails leaves none.
TEST_F(MergeFormsTest, AFolderIsWholeOrNotThere) {
    const auto weights = base("llama_int8");
    std::filesystem::create_directories(hidden());
    write_text_atomic(hidden() + "/model-00001-of-00002.safetensors", "half of it");
    const SafetensorsFile file(adapter("llama_int8") + "/adapter_model.safetensors");
    std::vector<NamedTensor> tensors;
    for (const auto& [name, entry] : file.entries()) {
        tensors.push_back({name, entry.shape, file.read_floats(name)});
        if (has(name, "layers.1.mlp.down_proj")) tensors.back().values[5] = 3e38F;
    }
    const std::string dir = folder_.file("endless");
    std::filesystem::create_directories(dir);
    write_safetensors(dir + "/adapter_model.safetensors", tensors);
    std::filesystem::copy_file(adapter("llama_int8") + "/adapter_config.json",
                               dir + "/adapter_config.json");
    EXPECT_TRUE(has(problem_text([&] { merge_adapter(dir, *weights, out(), {MergedForm::nf4}); }),
                    "model.layers.1.mlp.down_proj.weight with the adapter: element "));
    EXPECT_FALSE(std::filesystem::exists(out()));
    EXPECT_FALSE(std::filesystem::exists(hidden()));
    std::filesystem::create_directories(hidden());
    write_text_atomic(hidden() + "/model-00001-of-00002.safetensors", "half of it");
    merge_adapter(adapter("llama_int8"), *weights, out(), {MergedForm::nf4});
    EXPECT_FALSE(std::filesystem::exists(hidden()));
    EXPECT_FALSE(std::filesystem::exists(out() + "/model-00001-of-00002.safetensors"));
    EXPECT_TRUE(std::filesystem::exists(out() + "/model.safetensors"));
}

/// A matrix of more than one block of rows, with the adapter or without, is as its rows are, one by
/// one.
TEST_F(MergeFormsTest, BlocksOfRowsFollowEachOther) {
    ModelSpec model = test::quantizable_model(1);
    model.hidden_size = model.dense().size = 2048;
    const auto weights = synthetic_base_weights(model, 3);
    const std::string dir = folder_.file("adapter");
    std::filesystem::create_directories(dir);
    write_text_atomic(
        dir + "/adapter_config.json",
        R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["up_proj"],
                          "task_type": "CAUSAL_LM"})");
    const std::string module = "base_model.model.model.layers.0.mlp.up_proj";
    std::vector<float> b(2048);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = 0x1p-16F * static_cast<float>(i);
    write_safetensors(dir + "/adapter_model.safetensors",
                      {{module + ".lora_A.weight", {1, 2048}, std::vector<float>(2048, 0.125F)},
                       {module + ".lora_B.weight", {2048, 1}, b}});
    const AdapterProducts products(dir, *weights);
    const MergedTensors merged(*weights, products, MergedForm::nf4);
    const std::string other = "model.layers.0.mlp.gate_proj.weight";
    for (const Piece& piece : merged.pieces()) {
        if (piece.name != other && piece.product == nullptr) continue;
        const std::string path = folder_.file("piece");
        OutputFile file(path);
        merged.write(piece, file);
        file.close();
        const std::string found = read_text(path);
        const auto rows = static_cast<std::size_t>(piece.shape[0]);
        const std::int64_t cols = piece.shape[1];
        Matrix sums = read_matrix(*weights, {piece.name, piece.shape});
        for (std::size_t i = 0; piece.product != nullptr && i < sums.size(); ++i) {
            sums[i] += b[i / static_cast<std::size_t>(cols)] * 0.125F;
        }
        const auto code_row = piece.form->code_bytes(cols);
        const auto scale_row = piece.form->scale_bytes(cols);
        Bytes codes(code_row);
        Bytes scales(scale_row);
        Matrix values(static_cast<std::size_t>(cols));
        for (std::size_t i = 0; i < rows; ++i) {
            piece.form->encode(std::span(sums).subspan(i * values.size(), values.size()),
                               codes.data(), scales.data(), values.data());
            ASSERT_EQ(std::memcmp(found.data() + i * code_row, codes.data(), code_row), 0) << i;
            ASSERT_EQ(std::memcmp(found.data() + rows * code_row + i * scale_row, scales.data(),
                                  scale_row),
                      0)
                << i;
        }
    }
}

/// PyTorch takes no view of numbers that begin between two multiples of their size.
TEST_F(MergeFormsTest, NumbersBeginAtMultiplesOfTheirSize) {
    json config = test::tiny_config();
    config["vocab_size"] = 9;
    config["hidden_size"] = 7;
    const std::string hf = folder_.file("hf");
    test::put_model(hf, config, test::tiny_tensors(test::tiny_spec(config)));
    import_hf(hf, folder_.file("base.h5"), {.store_bf16 = true});
    const auto weights = open_base_weights(folder_.file("base.h5"));
    const std::string dir = folder_.file("adapter");
    std::filesystem::create_directories(dir);
    write_text_atomic(
        dir + "/adapter_config.json",
        R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"],
                          "task_type": "CAUSAL_LM"})");
    const std::string module = "base_model.model.model.layers.0.self_attn.q_proj";
    write_safetensors(dir + "/adapter_model.safetensors",
                      {{module + ".lora_A.weight", {1, 7}, std::vector<float>(7, 1.0F)},
                       {module + ".lora_B.weight", {8, 1}, std::vector<float>(8, 1.0F)}});
    merge_adapter(dir, *weights, out(), {MergedForm::int8});
    const SafetensorsFile merged(out() + "/model.safetensors");
    std::uint64_t odd = 0;
    for (const auto& [name, entry] : merged.entries()) {
        const std::uint64_t size = entry.dtype == "F32" ? 4 : entry.dtype == "BF16" ? 2 : 1;
        EXPECT_EQ(entry.begin % size, 0U) << name;
        if ((entry.end - entry.begin) % 4 != 0) ++odd;
    }
    EXPECT_GT(odd, 0U);
    import_hf(out(), folder_.file("again.h5"), {.force = true});
    const auto again = open_base_weights(folder_.file("again.h5"));
    for (const BaseTensor& tensor : base_tensors(weights->spec())) {
        if (is_linear_weight(tensor.name)) continue;
        EXPECT_EQ(read_matrix(*again, tensor), read_matrix(*weights, tensor)) << tensor.name;
    }
}

}  // namespace
}  // namespace loratrain
