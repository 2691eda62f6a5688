#include "io/weights/base_weights.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <thread>

#include "base/quantized.h"
#include "io/hdf5_handle.h"
#include "io/weights/base_writer.h"
#include "io/weights/import_hf.h"
#include "support/problems.h"
#include "support/small_model.h"
#include "unit/io/tiny_model.h"

namespace loratrain::test {
namespace {

using nlohmann::json;

class BaseWeightsTest : public ::testing::Test {
  protected:
    /// base.h5 of the tiny model; vocabulary large enough for several chunks.
    void make(bool bf16 = false, std::int64_t vocabulary = 10) {
        json config = tiny_config();
        config["vocab_size"] = vocabulary;
        put_model(dir_.file("hf"), config, tiny_tensors(tiny_spec(config)));
        import_hf(dir_.file("hf"), path(), {.force = true, .store_bf16 = bf16});
    }
    std::string path() const { return dir_.file("base.h5"); }
    std::string refusal() const {
        return problem_text([&] { open_base_weights(path()); });
    }
    /// Opens base.h5 for changing it behind the library's back.
    Hdf5Handle edit() const {
        return {H5Fopen(path().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose};
    }
    void replace_attribute(const char* name, const std::string& value) const {
        const Hdf5Handle file = edit();
        H5Adelete(file.get(), name);
        write_text_attribute(file.get(), name, value, path());
    }

    TempDir dir_;
};

TEST_F(BaseWeightsTest, TensorsOfAModel) {
    json config = tiny_config();
    config["attention_bias"] = true;
    config["mlp_bias"] = true;
    const auto tensors = base_tensors(tiny_spec(config));
    ASSERT_EQ(tensors.size(), 19U);
    EXPECT_EQ(tensors[0].name, "model.embed_tokens.weight");
    EXPECT_EQ(tensors[4].name, "model.layers.0.self_attn.k_proj.weight");
    EXPECT_EQ(tensors[4].shape, (std::vector<std::int64_t>{4, 8}));
    EXPECT_EQ(tensors[5].name, "model.layers.0.self_attn.k_proj.bias");
    EXPECT_EQ(tensors[5].shape, std::vector<std::int64_t>{4});
    EXPECT_EQ(tensors.back().name, "lm_head.weight");
    config["tie_word_embeddings"] = true;
    EXPECT_EQ(base_tensors(tiny_spec(config)).back().name, "model.norm.weight");
    config["model_type"] = "qwen3";
    EXPECT_EQ(base_tensors(tiny_spec(config))[10].name, "model.layers.0.self_attn.q_norm.weight");
}

TEST_F(BaseWeightsTest, ReadsRowSlicesIntoAnyStride) {
    make(false, 100000);
    const auto weights = open_base_weights(path());
    const std::string name = "model.embed_tokens.weight";
    std::vector<float> padded(5 * 11, -1.0F);
    const TensorView target{padded.data(), DType::f32, 5, 8, 11};
    weights->read_rows(name, 65533, target);
    for (std::int64_t row = 0; row < 5; ++row) {
        for (std::int64_t col = 0; col < 11; ++col) {
            const float wanted = col < 8 ? tiny_value(name, (65533 + row) * 8 + col) : -1.0F;
            EXPECT_EQ(padded[static_cast<std::size_t>(row * 11 + col)], wanted);
        }
    }
    EXPECT_NO_THROW(weights->read_rows(name, 100000, target.row_range(0, 0)));
    EXPECT_THROW(weights->read_rows(name, 99996, target), Error);
    EXPECT_THROW(weights->read_rows("no", 0, target), Error);
}

TEST_F(BaseWeightsTest, ReadsAnyPairOfFormats) {
    for (const bool stored_bf16 : {false, true}) {
        make(stored_bf16, 300000);
        const auto weights = open_base_weights(path());
        const BaseTensor embedding = base_tensors(weights->spec()).front();
        const std::vector<float> values = tiny_values(embedding);
        const auto rounded = [](float value) { return to_float(to_bfloat16(value)); };
        for (const std::int64_t ld : {8, 9}) {
            std::vector<float> f32(static_cast<std::size_t>(300000 * ld));
            std::vector<BFloat16> bf16(f32.size());
            weights->read_rows(embedding.name, 0, {f32.data(), DType::f32, 300000, 8, ld});
            weights->read_rows(embedding.name, 0, {bf16.data(), DType::bf16, 300000, 8, ld});
            int wrong = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                const std::size_t at = i / 8 * static_cast<std::size_t>(ld) + i % 8;
                wrong += f32[at] != (stored_bf16 ? rounded(values[i]) : values[i]);
                wrong += to_float(bf16[at]) != rounded(values[i]);
            }
            EXPECT_EQ(wrong, 0) << "stored bf16 " << stored_bf16 << ", ld " << ld;
        }
    }
}

TEST_F(BaseWeightsTest, ReadsFromSeveralThreads) {
    make(true, 20000);
    const auto weights = open_base_weights(path());
    const BaseTensor embedding = base_tensors(weights->spec()).front();
    const std::vector<float> wanted = read_all(*weights, embedding);
    std::array<bool, 4> same{};
    std::vector<std::thread> threads;
    threads.reserve(same.size());
    for (bool& result : same) {
        threads.emplace_back([&] { result = read_all(*weights, embedding) == wanted; });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(same, (std::array<bool, 4>{true, true, true, true}));
}

TEST_F(BaseWeightsTest, Bf16KeepsEveryFiniteBitPattern) {
    json config = tiny_config();
    config["vocab_size"] = 8192;
    auto tensors = tiny_tensors(tiny_spec(config));
    std::vector<std::uint16_t> patterns(65536);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
        if ((i & 0x7f80U) != 0x7f80U) patterns[i] = static_cast<std::uint16_t>(i);
    }
    tensors["lm_head.weight"] = {"BF16", {8192, 8}, test::bytes_of(patterns)};
    put_model(dir_.file("hf"), config, tensors);
    import_hf(dir_.file("hf"), path(), {});
    std::vector<std::uint16_t> got(patterns.size());
    open_base_weights(path())->read_rows("lm_head.weight", 0,
                                         matrix(got.data(), DType::bf16, 8192, 8));
    EXPECT_TRUE(got == patterns);
}

TEST_F(BaseWeightsTest, StoredTypeIsAFloatOfSixteenBits) {
    make(true);
    const Hdf5Handle file = edit();
    const Hdf5Handle dataset(H5Dopen2(file.get(), "lm_head.weight", H5P_DEFAULT), H5Dclose);
    const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
    EXPECT_TRUE(is_bf16_type(type.get()));
    // HDF5's own conversion understands the type.
    std::vector<float> values(80);
    ASSERT_GE(
        H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float value = tiny_value("lm_head.weight", static_cast<std::int64_t>(i));
        EXPECT_EQ(values[i], to_float(to_bfloat16(value)));
    }
    const Hdf5Handle properties(H5Dget_create_plist(dataset.get()), H5Pclose);
    EXPECT_EQ(H5Pget_nfilters(properties.get()), 1);
}

TEST_F(BaseWeightsTest, AcceptsUint16WithAttribute) {
    make(true);
    const std::vector<float> before =
        read_all(*open_base_weights(path()), {"model.norm.weight", {8}});
    std::vector<std::uint16_t> bits;
    bits.reserve(before.size());
    for (const float value : before) bits.push_back(to_bfloat16(value).bits);
    const auto replace = [&](const char* dtype) {
        const Hdf5Handle file = edit();
        const Hdf5Handle old(H5Dopen2(file.get(), "model.norm.weight", H5P_DEFAULT), H5Dclose);
        const std::string checksum = read_text_attribute(old.get(), "checksum").value();
        H5Ldelete(file.get(), "model.norm.weight", H5P_DEFAULT);
        const hsize_t extent = 8;
        const Hdf5Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose);
        const Hdf5Handle dataset(H5Dcreate2(file.get(), "model.norm.weight", H5T_STD_U16BE,
                                            space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                                 H5Dclose);
        H5Dwrite(dataset.get(), H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, bits.data());
        write_text_attribute(dataset.get(), "checksum", checksum, "");
        write_text_attribute(dataset.get(), "dtype", dtype, "");
    };
    replace("bf16");
    EXPECT_EQ(read_all(*open_base_weights(path()), {"model.norm.weight", {8}}), before);
    replace("int4");
    EXPECT_TRUE(has(refusal(), "base.h5:model.norm.weight: is stored in an unknown number format"));
}

TEST_F(BaseWeightsTest, ChecksumDependsOnWeightsAndConfig) {
    make();
    const auto halves = [&] {
        const std::string checksum = open_base_weights(path())->checksum();
        EXPECT_EQ(checksum.size(), 33U);
        return std::pair(checksum.substr(0, 16), checksum.substr(16));
    };
    const auto first = halves();
    auto tensors = tiny_tensors(tiny_spec());
    tensors["model.norm.weight"].bytes[3] ^= 1;
    put_model(dir_.file("hf"), tiny_config(), tensors);
    import_hf(dir_.file("hf"), path(), {.force = true});
    const auto second = halves();
    EXPECT_NE(second.first, first.first);
    EXPECT_EQ(second.second, first.second);
    json config = tiny_config();
    config["rms_norm_eps"] = 0.1;
    put_model(dir_.file("hf"), config, tensors);
    import_hf(dir_.file("hf"), path(), {.force = true});
    EXPECT_EQ(halves().first, second.first);
    EXPECT_NE(halves().second, second.second);
}

TEST_F(BaseWeightsTest, FilesImportedBeforeNamesWereRecordedAreRead) {
    make();
    EXPECT_EQ(open_base_weights(path())->base_model_name(), dir_.file("hf"));
    H5Adelete(edit().get(), name_attribute);
    EXPECT_EQ(open_base_weights(path())->base_model_name(), "");
}

TEST_F(BaseWeightsTest, RefusesOtherFiles) {
    EXPECT_TRUE(has(refusal(), "base.h5: cannot be read: No such file"));
    put(path(), "hello");
    EXPECT_TRUE(has(refusal(), "base.h5: is not an HDF5 file"));
    put(path(), "");
    EXPECT_TRUE(has(refusal(), "is not an HDF5 file"));
    create_hdf5_file(path());
    EXPECT_TRUE(has(refusal(), "has no attribute 'format'"));
    EXPECT_TRUE(has(refusal(), "import-hf"));
    make();
    replace_attribute("format", "loratrain-base-9");
    EXPECT_TRUE(has(refusal(), "has format 'loratrain-base-9'"));
    make();
    replace_attribute("config.json", "{");
    EXPECT_TRUE(has(refusal(), "base.h5:config.json:1: not valid JSON"));
}

TEST_F(BaseWeightsTest, RefusesTruncatedFiles) {
    make(false, 100000);
    const std::string whole = get(path());
    for (const double part : {0.1, 0.5, 0.9, 0.999}) {
        put(path(),
            whole.substr(0, static_cast<std::size_t>(part * static_cast<double>(whole.size()))));
        const std::string text = refusal();
        EXPECT_TRUE(has(text, "base.h5: cannot be opened as HDF5: truncated file"));
    }
}

TEST_F(BaseWeightsTest, DamagedDataAreSeenWhileReading) {
    make(false, 100000);
    std::string content = get(path());
    const auto values = tiny_values(base_tensors(tiny_spec())[0]);
    const std::string name = "model.embed_tokens.weight";
    const float needle[2] = {tiny_value(name, 600000), tiny_value(name, 600001)};
    const std::size_t at = content.find(
        std::string(reinterpret_cast<const char*>(needle), sizeof(needle)), content.size() / 4);
    ASSERT_NE(at, std::string::npos);
    content[at + 2] ^= 4;
    put(path(), content);
    const auto weights = open_base_weights(path());
    const std::string text = problem_text([&] {
        for (const auto& tensor : base_tensors(weights->spec())) read_all(*weights, tensor);
    });
    EXPECT_TRUE(has(text, "base.h5:model.embed_tokens.weight: data cannot be read"));
    EXPECT_TRUE(has(text, "damaged or truncated"));
}

/// Opens the file and compares its contents: "" = nothing is wrong.
std::string whole_check(const std::string& path) {
    try {
        const auto weights = open_base_weights(path);
        for (const auto& tensor : base_tensors(weights->spec())) {
            weights->check_contents(tensor.name);
        }
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST_F(BaseWeightsTest, ContentsAreComparedWithTheChecksums) {
    for (const bool bf16 : {false, true}) {
        make(bf16, 100000);
        EXPECT_EQ(whole_check(path()), "");
        {
            // Through the library, so that its own checksums fit.
            const Hdf5Handle file = edit();
            const Hdf5Handle norm(H5Dopen2(file.get(), "model.norm.weight", H5P_DEFAULT), H5Dclose);
            const std::vector<float> zeros(8, 0.0F);
            H5Dwrite(norm.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data());
        }
        EXPECT_NO_THROW(open_base_weights(path()));
        EXPECT_TRUE(
            has(whole_check(path()), "base.h5:model.norm.weight: its values have checksum"));
    }
}

/// Replaces the final norm by a dataset of this layout without values but with its checksum.
void put_layout(hid_t file, hid_t layout) {
    const char* name = "model.norm.weight";
    const Hdf5Handle old(H5Dopen2(file, name, H5P_DEFAULT), H5Dclose);
    const std::string checksum = read_text_attribute(old.get(), "checksum").value();
    H5Ldelete(file, name, H5P_DEFAULT);
    const hsize_t extent = 8;
    const Hdf5Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose);
    const Hdf5Handle dataset(
        H5Dcreate2(file, name, H5T_IEEE_F32LE, space.get(), H5P_DEFAULT, layout, H5P_DEFAULT),
        H5Dclose);
    write_text_attribute(dataset.get(), "checksum", checksum, "");
}

TEST_F(BaseWeightsTest, RefusesDataThatAreNotThere) {
    const hsize_t chunk = 4;
    const auto refusal_of = [&](const std::function<void(hid_t)>& set) {
        make();
        {
            const Hdf5Handle file = edit();
            const Hdf5Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
            set(layout.get());
            put_layout(file.get(), layout.get());
        }
        return refusal();
    };
    EXPECT_TRUE(has(refusal_of([](hid_t) {}), "model.norm.weight: its data were never written"));
    EXPECT_TRUE(has(refusal_of([&](hid_t layout) { H5Pset_chunk(layout, 1, &chunk); }),
                    "model.norm.weight: the file's index has 0 of its 2 chunks"));
    EXPECT_TRUE(has(refusal_of([&](hid_t layout) {
                        H5Pset_chunk(layout, 1, &chunk);
                        H5Pset_alloc_time(layout, H5D_ALLOC_TIME_EARLY);
                    }),
                    "model.norm.weight: its chunks have no checksums"));
    EXPECT_TRUE(
        has(refusal_of([](hid_t layout) { H5Pset_external(layout, "/etc/hostname", 0, 32); }),
            "model.norm.weight: keeps its data in another file"));
}

/// HDF5 would read beyond the memory of such a chunk.
TEST_F(BaseWeightsTest, RefusesChunksOfAWrongSize) {
    make();
    std::string content = get(path());
    const std::size_t size = content.find("TREE\x01") + 24;  // of the first tensor's chunk
    content[size] = 2;
    content[size + 1] = 0;
    put(path(), content);
    EXPECT_TRUE(has(refusal(), ": its chunk at [0"));
    EXPECT_TRUE(has(refusal(), "] has 2 bytes in the file's index"));
}

/// HDF5 says nothing of a chunk that its index no longer finds, and gives fill values.
TEST_F(BaseWeightsTest, NoFlippedBitChangesAWeightUnnoticed) {
    make(false, 100);
    const std::string good = get(path());
    const auto values = [&] {
        std::vector<std::vector<float>> all;
        const auto weights = open_base_weights(path());
        for (const auto& tensor : base_tensors(weights->spec())) {
            all.push_back(read_all(*weights, tensor));
        }
        return all;
    };
    const auto wanted = values();
    int noticed = 0;
    int index_noticed = 0;
    for (std::size_t at = 0; at < good.size(); at += 23) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
        put(path(), bad);
        const std::string problem = whole_check(path());
        if (problem.empty()) {
            EXPECT_EQ(values(), wanted) << "byte " << at;
        } else {
            ++noticed;
            index_noticed += has(problem, "index") ? 1 : 0;
        }
    }
    EXPECT_GT(noticed, 100);
    EXPECT_GT(index_noticed, 10);
}

TEST_F(BaseWeightsTest, AllProblemsOfTheDatasetsAtOnce) {
    make();
    {
        const Hdf5Handle file = edit();
        H5Ldelete(file.get(), "lm_head.weight", H5P_DEFAULT);
        H5Lmove(file.get(), "model.norm.weight", file.get(), "model.norm.wait", H5P_DEFAULT,
                H5P_DEFAULT);
        const std::string q = "model.layers.0.self_attn.q_proj.weight";
        const std::string k = "model.layers.0.self_attn.k_proj.weight";
        H5Ldelete(file.get(), q.c_str(), H5P_DEFAULT);
        H5Lcreate_hard(file.get(), k.c_str(), file.get(), q.c_str(), H5P_DEFAULT, H5P_DEFAULT);
        const std::string v = "model.layers.0.self_attn.v_proj.weight";
        const Hdf5Handle dataset(H5Dopen2(file.get(), v.c_str(), H5P_DEFAULT), H5Dclose);
        H5Adelete(dataset.get(), "checksum");
        const std::string o = "model.layers.0.self_attn.o_proj.weight";
        H5Ldelete(file.get(), o.c_str(), H5P_DEFAULT);
        const Hdf5Handle group(
            H5Gcreate2(file.get(), o.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    }
    const std::string text = refusal();
    EXPECT_TRUE(has(text, "base.h5:lm_head.weight: tensor is missing"));
    EXPECT_TRUE(has(text, "base.h5:model.norm.weight: tensor is missing"));
    EXPECT_TRUE(has(text, "base.h5:model.norm.wait: is not a tensor of a llama model"));
    EXPECT_TRUE(has(text, "q_proj.weight: has shape [4, 8], config.json needs [8, 8]"));
    EXPECT_TRUE(has(text, "v_proj.weight: has no attribute 'checksum'"));
    EXPECT_TRUE(has(text, "o_proj.weight: is not a readable dataset"));
}

TEST_F(BaseWeightsTest, RefusesAChecksumThatDoesNotBelong) {
    make();
    replace_attribute("checksum", "0123456789abcdef");
    EXPECT_TRUE(has(refusal(), "do not give its checksum 0123456789abcdef"));
}

TEST_F(BaseWeightsTest, SyntheticWeightsAreAFunctionOfTheSeed) {
    const ModelSpec spec = tiny_spec();
    const auto a = synthetic_base_weights(spec, 1);
    const auto b = synthetic_base_weights(spec, 1);
    const auto c = synthetic_base_weights(spec, 2);
    EXPECT_EQ(a->checksum(), b->checksum());
    EXPECT_NE(a->checksum(), c->checksum());
    const BaseTensor up{"model.layers.0.mlp.up_proj.weight", {12, 8}};
    const std::vector<float> values = read_all(*a, up);
    EXPECT_EQ(values, read_all(*b, up));
    EXPECT_NE(values, read_all(*c, up));
    std::vector<BFloat16> slice(3 * 10);
    a->read_rows(up.name, 7, {slice.data(), DType::bf16, 3, 8, 10});
    for (std::size_t i = 0; i < 24; ++i) {
        EXPECT_EQ(to_float(slice[i / 8 * 10 + i % 8]), to_float(to_bfloat16(values[56 + i])));
    }
    EXPECT_THROW(a->read_rows(up.name, 10, {slice.data(), DType::bf16, 3, 8, 10}), Error);
}

TEST_F(BaseWeightsTest, SyntheticCodesAreThoseOfTheFirstLayerQuantised) {
    json config = tiny_config();
    config["hidden_size"] = 64;
    config["intermediate_size"] = 128;
    config["num_hidden_layers"] = 2;
    ModelSpec spec = tiny_spec(config);
    const auto dense = synthetic_base_weights(spec, 1);
    for (const WeightFormat format : {WeightFormat::nf4, WeightFormat::int8, WeightFormat::e4m3}) {
        const WeightTraits& traits = traits_of(format);
        spec.quantization = Quantization{format, SourceType::bf16};
        const auto weights = synthetic_base_weights(spec, 1);
        std::vector<float> row(64);
        std::vector<std::uint8_t> expected(code_bytes(traits, 64));
        std::vector<float> expected_scales(static_cast<std::size_t>(scale_count(traits, 64)));
        std::vector<std::uint8_t> codes(3 * expected.size());
        std::vector<float> scales(3 * expected_scales.size());
        for (const char* name :
             {"model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"}) {
            weights->read_codes(name, 7, 3, codes.data(), scales.data());
            dense->read_rows("model.layers.0.mlp.up_proj.weight", 8,
                             matrix(row.data(), DType::f32, 1, 64));
            round_to(SourceType::bf16, row);
            quantize_row(format, row, expected.data(), expected_scales.data());
            EXPECT_TRUE(
                std::equal(expected.begin(), expected.end(), codes.begin() + std::ssize(expected)))
                << name;
            EXPECT_TRUE(std::equal(expected_scales.begin(), expected_scales.end(),
                                   scales.begin() + std::ssize(expected_scales)))
                << name;
        }
        EXPECT_NE(weights->checksum(), dense->checksum());
        EXPECT_THROW(weights->read_codes("model.layers.1.mlp.up_proj.weight", 127, 2, codes.data(),
                                         scales.data()),
                     Error);
    }
}

TEST_F(BaseWeightsTest, SyntheticCodesOfExpertsDifferAndAreThoseOfTheFirstLayer) {
    ModelSpec spec = test::quantizable_model(2);
    spec.descriptions.front().mlp = ExpertSpec{3, 2, 64, true};
    spec.quantization = Quantization{WeightFormat::int8, SourceType::bf16};
    const auto weights = synthetic_base_weights(spec, 1);
    const auto first_row = [&](const char* name) {
        std::vector<std::uint8_t> codes(128);
        float scale = 0.0F;
        weights->read_codes(name, 0, 1, codes.data(), &scale);
        return codes;
    };
    const auto first = first_row("model.layers.0.mlp.experts.1.up_proj.weight");
    EXPECT_EQ(first_row("model.layers.1.mlp.experts.1.up_proj.weight"), first);
    EXPECT_NE(first_row("model.layers.1.mlp.experts.2.up_proj.weight"), first);
}

TEST_F(BaseWeightsTest, SyntheticWeightsHaveTheRightSpread) {
    json config = tiny_config();
    config["hidden_size"] = 512;
    const auto weights = synthetic_base_weights(tiny_spec(config), 3);
    const std::vector<float> gate =
        read_all(*weights, {"model.layers.0.mlp.gate_proj.weight", {12, 512}});
    double squares = 0;
    for (const float value : gate) squares += static_cast<double>(value) * value;
    EXPECT_NEAR(squares / 12, 1.0, 0.05);
    for (const float value : read_all(*weights, {"model.norm.weight", {512}})) {
        EXPECT_NEAR(value, 1.0F, 0.1F);
    }
}

TEST_F(BaseWeightsTest, RefusesLinksIntoOtherFiles) {
    make();
    {
        const Hdf5Handle file = edit();
        H5Ldelete(file.get(), "model.norm.weight", H5P_DEFAULT);
        H5Lcreate_external("other.h5", "/x", file.get(), "model.norm.weight", H5P_DEFAULT,
                           H5P_DEFAULT);
    }
    EXPECT_TRUE(has(refusal(), ":model.norm.weight: is an external link to /x of other.h5"));
}

}  // namespace
}  // namespace loratrain::test
