#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/tensor.h"
#include "io/files.h"
#include "support/files.h"
#include "support/problems.h"
#include "test_paths.h"

namespace loratrain::test {
namespace {

std::string length_prefix(std::uint64_t bytes) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &bytes, 8);
    return text;
}

std::string container(const std::string& header, std::size_t data_bytes) {
    return length_prefix(header.size()) + header + std::string(data_bytes, '\0');
}

/// What opening a file with this header and so many bytes of data is refused with.
std::string refusal(const std::string& header, std::size_t data_bytes) {
    const TempDir dir;
    put(dir.file("m.safetensors"), container(header, data_bytes));
    std::string text = problem_text([&] { SafetensorsFile file(dir.file("m.safetensors")); });
    EXPECT_TRUE(has(text, "m.safetensors"));
    return text;
}

std::string raw_refusal(const std::string& content) {
    const TempDir dir;
    put(dir.file("m.safetensors"), content);
    return problem_text([&] { SafetensorsFile file(dir.file("m.safetensors")); });
}

TEST(SafetensorsTest, WritesWhatItReads) {
    const TempDir dir;
    const std::string path = dir.file("a.safetensors");
    write_safetensors(path, {{"b", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"a", {}, {7}}, {"c", {0, 4}, {}}},
                      {{"who", "me"}});
    const SafetensorsFile file(path);
    EXPECT_EQ(file.metadata(),
              (std::map<std::string, std::string>{{"format", "pt"}, {"who", "me"}}));
    EXPECT_EQ(file.entries().size(), 3U);
    EXPECT_EQ(file.entry("b").shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(file.read_floats("b"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(file.read_floats("a"), std::vector<float>{7});
    EXPECT_TRUE(file.read_floats("c").empty());
    std::vector<float> part(2);
    file.read_bytes("b", 8, 8, part.data());
    EXPECT_EQ(part, (std::vector<float>{3, 4}));
    EXPECT_EQ(dir.names(), std::vector<std::string>{"a.safetensors"});
}

TEST(SafetensorsTest, WritesBf16RoundedToEven) {
    const TempDir dir;
    const std::string path = dir.file("a.safetensors");
    write_safetensors(path, {{"b", {3}, {1.0F, 1.00390625F, 1.01171875F}}, {"a", {1}, {-2.5F}}}, {},
                      DType::bf16);
    const SafetensorsFile file(path);
    EXPECT_EQ(file.entry("b").dtype, "BF16");
    EXPECT_EQ(file.entry("b").end - file.entry("b").begin, 6U);
    EXPECT_EQ(file.read_floats("b"), (std::vector<float>{1.0F, 1.0F, 1.015625F}));
    EXPECT_EQ(file.read_floats("a"), std::vector<float>{-2.5F});
}

TEST(SafetensorsTest, HeaderIsPaddedAndSorted) {
    const TempDir dir;
    write_safetensors(dir.file("a"), {{"y", {1}, {1}}, {"x", {1}, {2}}});
    const std::string content = get(dir.file("a"));
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, content.data(), 8);
    EXPECT_EQ(bytes % 8, 0U);
    const auto header = nlohmann::json::parse(content.substr(8, bytes));
    EXPECT_EQ(header["x"]["data_offsets"], (std::vector<int>{0, 4}));
    EXPECT_EQ(header["y"]["data_offsets"], (std::vector<int>{4, 8}));
}

TEST(SafetensorsTest, ReturnsTheChecksumOfTheFile) {
    const TempDir dir;
    // Of more blocks than one, the last of them short.
    std::vector<float> values(200'001);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 7.0F;
    const std::vector<NamedTensor> tensors{{"b", {std::ssize(values)}, values}, {"a", {1}, {-2}}};
    for (const DType dtype : {DType::f32, DType::bf16}) {
        const std::string checksum = write_safetensors(dir.file("a"), tensors, {}, dtype);
        EXPECT_EQ(checksum, file_checksum(dir.file("a")));
        std::vector<float> want = values;
        if (dtype == DType::bf16) {
            for (float& value : want) value = to_float(to_bfloat16(value));
        }
        EXPECT_EQ(SafetensorsFile(dir.file("a")).read_floats("b"), want);
    }
}

TEST(SafetensorsTest, TakesValuesWhereTheyAreOrInItsRoom) {
    const TempDir dir;
    const std::vector<float> lie_here{1, 2, 3};
    const auto there = [&](std::vector<float>& /*room*/) { return std::span(lie_here); };
    const auto joined = [](std::vector<float>& room) {
        room.assign(2, 4.0F);
        return std::span<const float>(room);
    };
    write_safetensors(
        dir.file("a"),
        std::vector<TensorSource>{{"b", {3}, there}, {"a", {2}, joined}, {"c", {1, 2}, joined}});
    const SafetensorsFile file(dir.file("a"));
    EXPECT_EQ(file.read_floats("a"), (std::vector<float>{4, 4}));
    EXPECT_EQ(file.read_floats("b"), lie_here);
    EXPECT_EQ(file.read_floats("c"), (std::vector<float>{4, 4}));
    EXPECT_THROW(write_safetensors(dir.file("b"), std::vector<TensorSource>{{"b", {4}, there}}),
                 Error);
    EXPECT_EQ(dir.names(), std::vector<std::string>{"a"});
}

TEST(SafetensorsTest, ReadsTheFilesOfTransformersAndPeft) {
    const std::string golden = LORATRAIN_TEST_DATA "/golden/llama";
    const SafetensorsFile base(golden + "/base/model.safetensors");
    EXPECT_EQ(base.entry("lm_head.weight").shape, (std::vector<std::int64_t>{320, 64}));
    EXPECT_EQ(base.read_floats("lm_head.weight").size(), 320U * 64U);
    const SafetensorsFile adapter(golden + "/adapters/c_r3_qv/init/adapter_model.safetensors");
    EXPECT_EQ(adapter.metadata().at("format"), "pt");
}

TEST(SafetensorsTest, ConvertsFloatTypes) {
    const TempDir dir;
    const std::string header = R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                               R"("d":{"dtype":"F64","shape":[1],"data_offsets":[4,12]},)"
                               R"("h":{"dtype":"F16","shape":[8],"data_offsets":[12,28]},)"
                               R"("i":{"dtype":"I32","shape":[1],"data_offsets":[28,32]}})";
    const std::vector<std::uint16_t> bf16{0x3f80, 0xc040};
    const double f64 = -0.1;
    const std::vector<std::uint16_t> f16{0x3c00, 0xc000, 0x0001, 0x83ff,
                                         0x7bff, 0x7c00, 0x0400, 0x8000};
    std::string data(32, '\0');
    std::memcpy(data.data(), bf16.data(), 4);
    std::memcpy(data.data() + 4, &f64, 8);
    std::memcpy(data.data() + 12, f16.data(), 16);
    put(dir.file("a"), length_prefix(header.size()) + header + data);
    const SafetensorsFile file(dir.file("a"));
    EXPECT_EQ(file.read_floats("b"), (std::vector<float>{1, -3}));
    EXPECT_EQ(file.read_floats("d"), std::vector<float>{-0.1F});
    EXPECT_EQ(file.read_floats("h"),
              (std::vector<float>{1, -2, 0x1p-24F, -0x1.ff8p-15F, 65504,
                                  std::numeric_limits<float>::infinity(), 0x1p-14F, -0.0F}));
    EXPECT_TRUE(has(problem_text([&] { file.read_floats("i"); }), "dtype I32 is not a float"));
    EXPECT_TRUE(has(problem_text([&] { file.read_floats("z"); }), "a:z: tensor is missing"));
}

TEST(SafetensorsTest, RefusesWhatIsNoSafetensorsFile) {
    EXPECT_TRUE(has(raw_refusal(""), "has only 0 bytes"));
    EXPECT_TRUE(has(raw_refusal("abc"), "has only 3 bytes"));
    EXPECT_TRUE(has(raw_refusal(length_prefix(200000000)), "header of 200000000 bytes"));
    EXPECT_TRUE(has(raw_refusal(length_prefix(50) + "{}"), "does not fit into the file"));
    EXPECT_TRUE(has(refusal(" {}", 0), "does not begin with '{'"));
    EXPECT_TRUE(has(refusal("", 0), "does not begin with '{'"));
    EXPECT_TRUE(has(refusal("{\"a\":", 0), "not valid JSON"));
    const std::string missing = problem_text([] { SafetensorsFile file("/none.safetensors"); });
    EXPECT_TRUE(has(missing, "/none.safetensors: cannot be read"));
}

TEST(SafetensorsTest, RefusesBadEntries) {
    const std::string good = R"("shape":[1],"data_offsets":[0,4])";
    EXPECT_TRUE(has(refusal(R"({"a":3})", 0), "m.safetensors:a: entry is a number"));
    EXPECT_TRUE(has(refusal("{\"a\":{" + good + "}}", 4), "entry has no 'dtype'"));
    EXPECT_TRUE(has(refusal("{\"a\":{\"dtype\":1," + good + "}}", 4), "dtype is 1"));
    EXPECT_TRUE(has(refusal("{\"a\":{\"dtype\":\"F33\"," + good + "}}", 4), "unknown dtype 'F33'"));
    EXPECT_TRUE(has(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
                    "shape is [-1]"));
    EXPECT_TRUE(has(refusal(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4),
                    "shape is [1.5]"));
    EXPECT_TRUE(has(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
                    "data_offsets is [0]"));
    EXPECT_TRUE(has(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
                    "[4, 0) is reversed"));
    EXPECT_TRUE(has(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
                    "need 8 bytes"));
    EXPECT_TRUE(has(refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                            R"("data_offsets":[0,0]}})",
                            0),
                    "too large"));
    EXPECT_TRUE(
        has(refusal(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), "too large"));
}

TEST(SafetensorsTest, RefusesHolesOverlapTruncationAndExtraData) {
    const auto two = [](const std::string& a, const std::string& b) {
        return R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + a +
               R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + b + "}}";
    };
    EXPECT_TRUE(has(refusal(two("[0,8]", "[12,16]"), 16),
                    "m.safetensors:b: data begin at byte 12, "
                    "expected 8 (hole)"));
    EXPECT_TRUE(has(refusal(two("[0,8]", "[4,8]"), 8), "(overlap)"));
    EXPECT_TRUE(has(refusal(two("[4,12]", "[12,16]"), 16), "a: data begin at byte 4, expected 0"));
    EXPECT_TRUE(
        has(refusal(two("[0,8]", "[8,12]"), 20), "has 20 bytes of data, its tensors cover 12"));
    EXPECT_TRUE(has(refusal(two("[0,8]", "[8,12]"), 9), "ends beyond the 9 bytes"));
}

TEST(SafetensorsTest, RefusesDuplicatesAndBadMetadata) {
    const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
    EXPECT_TRUE(has(refusal("{" + a + "," + a + "}", 4), "key 'a' is given twice"));
    EXPECT_TRUE(
        has(refusal("{\"__metadata__\":{\"x\":1}," + a + "}", 4), "__metadata__ 'x' is a number"));
    EXPECT_TRUE(has(refusal("{\"__metadata__\":[]," + a + "}", 4), "__metadata__ is an array"));
}

TEST(SafetensorsTest, ListsAllProblemsAtOnce) {
    const std::string text = refusal(R"({"a":{"dtype":"X","shape":[1],"data_offsets":[0,4]},)"
                                     R"("b":{"dtype":"F32","shape":[9],"data_offsets":[4,8]}})",
                                     8);
    EXPECT_TRUE(has(text, "unknown dtype 'X'"));
    EXPECT_TRUE(has(text, "need 36 bytes"));
}

}  // namespace
}  // namespace loratrain::test
