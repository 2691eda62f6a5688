#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/tensor.h"
#include "config/model_spec.h"
#include "io/weights/base_tensors.h"

namespace loratrain {

/// The frozen weights of the base, from base.h5 or at random.

/// Source of the frozen weights: a base.h5 file, or a generator for benchmarks.
class WeightSource {
  public:
    virtual ~WeightSource() = default;
    virtual const ModelSpec& spec() const = 0;
    /// Identity of the model for checkpoints and provenance. For a file it is "TENSORS-CONFIG": the
    /// root checksum and the checksum of the text of config.json.
    virtual std::string checksum() const = 0;
    /// Hugging Face folder or hub name of the model, for exported adapters; "" = unknown.
    virtual std::string base_model_name() const { return ""; }
    /// Number of positions that the model was made for; 0 = unknown.
    virtual std::int64_t max_positions() const { return 0; }
    /// "xxh64:DIGEST" of the tokenizer.json that came with the model; "" = unknown.
    virtual std::string tokenizer() const { return ""; }
    /// Tokens that end a text (eos_token_id of config.json).
    virtual std::vector<std::int32_t> end_tokens() const { return {}; }
    /// Text of config.json; "" if there is none.
    virtual std::string config() const { return ""; }
    /// Type of a tensor in a folder of the whole, unquantised model. A quantised tensor has bf16,
    /// or fp32 if it was fp32 before quantisation.
    virtual DType dense_type_of(const std::string& /*name*/) const { return DType::f32; }
    /// Fills `target` (host memory, f32 or bf16, any ld) with rows [first_row, first_row +
    /// target.rows) of tensor `name`; a [n] tensor is one row.
    virtual void read_rows(const std::string& name, std::int64_t first_row,
                           const TensorView& target) const = 0;
    /// Reads codes and scales of rows [first_row, first_row + count) of a linear of a quantised
    /// model, as a backend stores them: code_bytes and scale_count per row, rows contiguous. For
    /// such a tensor read_rows() gives the effective weights.
    virtual void read_codes(const std::string& name, std::int64_t first_row, std::int64_t count,
                            void* codes, float* scales) const;
    /// Compares the whole tensor with the checksum in its file; throws InputError if they differ. A
    /// generator has nothing to compare. Several threads may compare tensors at once.
    virtual void check_contents(const std::string& /*name*/) const {}
    /// The whole tensor as a random matrix that a backend can fill in place; none = use
    /// read_rows().
    virtual std::optional<RandomMatrix> random_matrix(const std::string& /*name*/) const {
        return std::nullopt;
    }
};

/// Opens a base.h5. Its format "loratrain-base-1":
/// - dataset path = HF tensor name. bf16 is a 16-bit HDF5 float type laid out as bfloat16; uint16
///   with attribute dtype = "bf16" is accepted too. F32 is IEEE float.
/// - root attributes: `config.json` (verbatim), `format`, `base_model_name_or_path` and `tokenizer`
///   (as WeightSource has them; may be missing), `checksum` (over all tensors).
/// - each dataset has attribute `checksum`, and the fletcher32 filter if it is chunked, so that
///   slices are verified while reading.
/// - the root checksum is that of the lines "NAME DTYPE CHECKSUM\n" of all tensors, sorted by name;
///   DTYPE is fp32 or bf16, CHECKSUM the dataset's attribute.
///
/// A quantised model has format "loratrain-base-2", which adds:
/// - root attributes `quantization` (nf4, int8, e4m3 or e4m3_block) and `source_dtype` (fp32, bf16
///   or fp16: the type before quantisation);
/// - for each linear of the layers, codes as uint8 [out, bytes of a row] and datasets of scales
///   (quantized_parts.h);
/// - DTYPE of codes, for example "nf4 of bf16", and of scales that are codes themselves, "uint8".
///
/// Opening checks names, shapes and dtypes against the config. It also checks that every chunk is
/// in the file's index, which has no checksum. It does not read the values:
/// WeightSource::check_contents() does. Every error is an InputError that names "file:dataset".
std::unique_ptr<WeightSource> open_base_weights(const std::string& path);

/// Random weights from a seed, for benchmarks, scaled so that activations stay bounded. Quantised
/// linears have the same codes in every layer; the codes are made once and kept on the host.
std::unique_ptr<WeightSource> synthetic_base_weights(const ModelSpec& spec, std::uint64_t seed);

}  // namespace loratrain
