#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "config/merged_form.h"
#include "io/json_text.h"

namespace loratrain {

/// Rows of a merged matrix as a Hugging Face folder has them: numbers, or codes and scales.

/// A tensor of a safetensors file.
struct FileTensor {
    std::string name;
    std::string dtype;  ///< "F32", "BF16", "U8", ...
    std::vector<std::int64_t> shape;
    std::uint64_t bytes = 0;
    std::string content{};  ///< the bytes, if they are the same for every matrix of this shape
};

/// How a matrix [out, in] is stored. Quantisers and effective weights are those of base/quantized.h
/// and io/weights/mxfp4.h, but that the scales of fp8 have the type of the model.
///   numbers  X: fp32 or bf16
///   nf4      X.weight u8 [out in / 2, 1], .absmax f32 [out in / 64], .quant_map f32 [16],
///            .quant_state.bitsandbytes__nf4 (JSON in u8): bitsandbytes without double quantisation
///   int8     X.weight i8 [out, in], X.SCB f32 [out]: bitsandbytes
///   fp8      X.weight e4m3 [out, in], .weight_scale [out, 1]: compressed-tensors, float-quantized,
///            strategy channel. Its scales become numbers of the model's type as transformers loads
///            them, so they are rounded to it before codes are made.
///   mxfp4    X_blocks u8 [E, out, in / 32, 16], X_scales u8 [E, out, in / 32]: gpt_oss
class RowForm {
  public:
    virtual ~RowForm() = default;
    /// Columns are a multiple of it.
    virtual std::int64_t block() const { return 1; }
    virtual std::uint64_t code_bytes(std::int64_t cols) const = 0;
    virtual std::uint64_t scale_bytes(std::int64_t cols) const = 0;
    /// Tensors of `name`: all rows of codes, all rows of scales if there are such, constants.
    virtual std::vector<FileTensor> tensors(const std::string& name,
                                            const std::vector<std::int64_t>& shape) const = 0;
    /// Codes and scales of a row, and what they stand for [cols].
    virtual void encode(std::span<const float> row, std::uint8_t* codes, std::uint8_t* scales,
                        float* effective) const = 0;
};

std::unique_ptr<const RowForm> rows_of_numbers(DType dtype);
/// `dtype` is the type of the whole model.
std::unique_ptr<const RowForm> rows_in(MergedForm form, DType dtype);

/// "float32" or "bfloat16", as in config.json.
const char* torch_name(DType dtype);
/// quantization_config of config.json, by which transformers knows the layout.
Json quantization_config(MergedForm form, DType dtype);

}  // namespace loratrain
