#include "io/adapters/merged_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/e4m3.h"
#include "base/error.h"
#include "base/quantized.h"
#include "io/weights/mxfp4.h"
#include "io/weights/quantized_parts.h"

namespace loratrain {

namespace {

using Shape = std::vector<std::int64_t>;

const char* dtype_in_files(DType dtype) {
    return dtype == DType::f32 ? "F32" : "BF16";
}
SourceType source_type_of(DType dtype) {
    return dtype == DType::f32 ? SourceType::f32 : SourceType::bf16;
}

FileTensor file_tensor(std::string name, std::string dtype, Shape shape, std::uint64_t each) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(element_count(shape)) * each;
    return {std::move(name), std::move(dtype), std::move(shape), bytes};
}
FileTensor constant(std::string name, std::string dtype, Shape shape, std::string content) {
    return {std::move(name), std::move(dtype), std::move(shape), content.size(), content};
}

/// Writes numbers of this type.
void store(DType dtype, std::span<const float> numbers, std::uint8_t* target) {
    if (dtype == DType::f32) {
        std::memcpy(target, numbers.data(), numbers.size_bytes());
        return;
    }
    for (const float number : numbers) {
        const BFloat16 rounded = to_bfloat16(number);
        std::memcpy(target, &rounded, sizeof(rounded));
        target += sizeof(rounded);
    }
}

class NumberRows : public RowForm {
  public:
    explicit NumberRows(DType dtype) : dtype_(dtype) {}
    std::uint64_t code_bytes(std::int64_t cols) const override {
        return static_cast<std::uint64_t>(cols) * size_of(dtype_);
    }
    std::uint64_t scale_bytes(std::int64_t /*cols*/) const override { return 0; }
    std::vector<FileTensor> tensors(const std::string& name, const Shape& shape) const override {
        return {file_tensor(name, dtype_in_files(dtype_), shape, size_of(dtype_))};
    }
    void encode(std::span<const float> row, std::uint8_t* codes, std::uint8_t* /*scales*/,
                float* effective) const override {
        store(dtype_, row, codes);
        std::ranges::copy(row, effective);
        round_to(source_type_of(dtype_), {effective, row.size()});
    }

  private:
    DType dtype_;
};

/// Codes of a format that base.h5 has, too; fp32 scales.
class CodeRows : public RowForm {
  public:
    CodeRows(WeightFormat format, DType dtype) : format_(format), dtype_(dtype) {}
    std::uint64_t code_bytes(std::int64_t cols) const override {
        return loratrain::code_bytes(traits_of(format_), cols);
    }
    std::uint64_t scale_bytes(std::int64_t cols) const override {
        return loratrain::scale_bytes(traits_of(format_), cols);
    }
    void encode(std::span<const float> row, std::uint8_t* codes, std::uint8_t* scales,
                float* effective) const override {
        const auto cols = std::ssize(row);
        std::vector<float> floats(static_cast<std::size_t>(scale_count(traits_of(format_), cols)));
        quantize_row(format_, row, codes, floats.data());
        std::memcpy(scales, floats.data(), floats.size() * sizeof(float));
        effective_row({format_, source_type_of(dtype_), codes, floats.data(), 1, cols, cols}, 0,
                      effective);
    }

  protected:
    DType dtype() const { return dtype_; }

  private:
    WeightFormat format_;
    DType dtype_;
};

class Nf4Rows : public CodeRows {
  public:
    explicit Nf4Rows(DType dtype) : CodeRows(WeightFormat::nf4, dtype) {}
    std::int64_t block() const override { return traits_of(WeightFormat::nf4).block; }
    std::vector<FileTensor> tensors(const std::string& name, const Shape& shape) const override {
        const std::int64_t count = element_count(shape);
        const Json state = {{"quant_type", "nf4"},
                            {"blocksize", block()},
                            {"dtype", torch_name(dtype())},
                            {"shape", shape}};
        const std::string text = dump_aligned_json(state);
        const std::string table(reinterpret_cast<const char*>(nf4_table.data()), sizeof(nf4_table));
        return {file_tensor(name, "U8", {count / 2, 1}, 1),
                file_tensor(scales_name(WeightFormat::nf4, name), "F32", {count / block()},
                            sizeof(float)),
                constant(name + nf4_map_suffix, "F32", {std::ssize(nf4_table)}, table),
                constant(name + nf4_state_suffix, "U8", {std::ssize(text)}, text)};
    }
};

class Int8Rows : public CodeRows {
  public:
    explicit Int8Rows(DType dtype) : CodeRows(WeightFormat::int8, dtype) {}
    std::vector<FileTensor> tensors(const std::string& name, const Shape& shape) const override {
        return {
            file_tensor(name, "I8", shape, 1),
            file_tensor(scales_name(WeightFormat::int8, name), "F32", {shape[0]}, sizeof(float))};
    }
};

class Fp8Rows : public RowForm {
  public:
    explicit Fp8Rows(DType dtype) : dtype_(dtype) {}
    std::uint64_t code_bytes(std::int64_t cols) const override {
        return static_cast<std::uint64_t>(cols);
    }
    std::uint64_t scale_bytes(std::int64_t /*cols*/) const override { return size_of(dtype_); }
    std::vector<FileTensor> tensors(const std::string& name, const Shape& shape) const override {
        return {file_tensor(name, "F8_E4M3", shape, 1),
                file_tensor(scales_name(WeightFormat::e4m3, name), dtype_in_files(dtype_),
                            {shape[0], 1}, size_of(dtype_))};
    }
    void encode(std::span<const float> row, std::uint8_t* codes, std::uint8_t* scales,
                float* effective) const override {
        float largest = 0.0F;
        for (const float value : row) largest = std::max(largest, std::abs(value));
        float scale = rounded_to(source_type_of(dtype_), largest / largest_e4m3);
        if (scale == 0.0F) scale = 1.0F;
        std::ranges::transform(row, codes, [&](float value) { return to_e4m3(value / scale); });
        store(dtype_, {&scale, 1}, scales);
        const auto cols = std::ssize(row);
        effective_row({WeightFormat::e4m3, source_type_of(dtype_), codes, &scale, 1, cols, cols}, 0,
                      effective);
    }

  private:
    DType dtype_;
};

class Mxfp4Rows : public RowForm {
  public:
    std::int64_t block() const override { return mxfp4_block; }
    std::uint64_t code_bytes(std::int64_t cols) const override {
        return static_cast<std::uint64_t>(cols / 2);
    }
    std::uint64_t scale_bytes(std::int64_t cols) const override {
        return static_cast<std::uint64_t>(cols / mxfp4_block);
    }
    std::vector<FileTensor> tensors(const std::string& name, const Shape& shape) const override {
        Shape groups = shape;
        groups.back() /= mxfp4_block;
        Shape blocks = groups;
        blocks.push_back(mxfp4_block_bytes);
        return {file_tensor(name + "_blocks", "U8", blocks, 1),
                file_tensor(name + "_scales", "U8", groups, 1)};
    }
    void encode(std::span<const float> row, std::uint8_t* codes, std::uint8_t* scales,
                float* effective) const override {
        for (std::size_t first = 0; first < row.size(); first += mxfp4_block) {
            *scales = encode_mxfp4(row.subspan(first, mxfp4_block), codes);
            decode_mxfp4(codes, *scales++, effective + first);
            codes += mxfp4_block_bytes;
        }
    }
};

Json bitsandbytes(Json own) {
    own["quant_method"] = "bitsandbytes";
    own["llm_int8_skip_modules"] = {"lm_head"};
    return own;
}

Json compressed_tensors() {
    const Json weights = {{"num_bits", 8},
                          {"type", "float"},
                          {"symmetric", true},
                          {"strategy", "channel"},
                          {"dynamic", false}};
    const Json group = {{"targets", {"Linear"}},
                        {"weights", weights},
                        {"input_activations", nullptr},
                        {"output_activations", nullptr}};
    return {{"quant_method", "compressed-tensors"},
            {"format", "float-quantized"},
            {"quantization_status", "compressed"},
            {"ignore", {"lm_head"}},
            {"config_groups", {{"group_0", group}}}};
}

}  // namespace

const char* torch_name(DType dtype) {
    return dtype == DType::f32 ? "float32" : "bfloat16";
}

std::unique_ptr<const RowForm> rows_of_numbers(DType dtype) {
    return std::make_unique<NumberRows>(dtype);
}

std::unique_ptr<const RowForm> rows_in(MergedForm form, DType dtype) {
    switch (form) {
        case MergedForm::nf4:
            return std::make_unique<Nf4Rows>(dtype);
        case MergedForm::int8:
            return std::make_unique<Int8Rows>(dtype);
        case MergedForm::fp8:
            return std::make_unique<Fp8Rows>(dtype);
        case MergedForm::mxfp4:
            return std::make_unique<Mxfp4Rows>();
    }
    LORATRAIN_CHECK(false, "a form without rows");
}

Json quantization_config(MergedForm form, DType dtype) {
    switch (form) {
        case MergedForm::nf4:
            return bitsandbytes({{"load_in_4bit", true},
                                 {"load_in_8bit", false},
                                 {"bnb_4bit_quant_type", "nf4"},
                                 {"bnb_4bit_quant_storage", "uint8"},
                                 {"bnb_4bit_use_double_quant", false},
                                 {"bnb_4bit_compute_dtype", torch_name(dtype)}});
        case MergedForm::int8:
            return bitsandbytes({{"load_in_4bit", false}, {"load_in_8bit", true}});
        case MergedForm::fp8:
            return compressed_tensors();
        case MergedForm::mxfp4:
            return {{"quant_method", "mxfp4"},
                    {"modules_to_not_convert",
                     {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                      "lm_head"}}};
    }
    LORATRAIN_CHECK(false, "a form without a config");
}

}  // namespace loratrain
