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

/// Where frozen weights come from: a file, or a generator for benchmarks.
class WeightSource {
  public:
    virtual ~WeightSource() = default;
    virtual const ModelSpec& spec() const = 0;
    /// Identity of the model for checkpoints and provenance; of a file "TENSORS-CONFIG", the root
    /// checksum and that of the text of config.json.
    virtual std::string checksum() const = 0;
    /// The Hugging Face folder or hub name of the model, for exported adapters; "" = not known.
    virtual std::string base_model_name() const { return ""; }
    /// Positions that the model was made for; 0 = not known.
    virtual std::int64_t max_positions() const { return 0; }
    /// "xxh64:DIGEST" of the tokenizer.json that the model came with; "" = not known.
    virtual std::string tokenizer() const { return ""; }
    /// Tokens that end a text: eos_token_id of config.json.
    virtual std::vector<std::int32_t> end_tokens() const { return {}; }
    /// The text of config.json; "" where there is none.
    virtual std::string config() const { return ""; }
    /// What a tensor's numbers are as a whole folder has them: bf16 of quantised ones, too, but of
    /// those that came from fp32.
    virtual DType dense_type_of(const std::string& /*name*/) const { return DType::f32; }
    /// Fills `target` (host memory, f32 or bf16, any ld) with rows [first_row, first_row +
    /// target.rows) of tensor `name`; a [n] tensor is one row.
    virtual void read_rows(const std::string& name, std::int64_t first_row,
                           const TensorView& target) const = 0;
    /// Codes and scales of rows [first_row, first_row + count) of a linear of a model that is
    /// quantised, as a backend stores them: code_bytes and scale_count of the row, one row behind
    /// another. read_rows() gives the effective weights of such a tensor.
    virtual void read_codes(const std::string& name, std::int64_t first_row, std::int64_t count,
                            void* codes, float* scales) const;
    /// Compares the whole tensor with the checksum that its file has of it; InputError where they
    /// differ. A generator has nothing to compare.
    virtual void check_contents(const std::string& /*name*/) const {}
    /// The whole tensor as a random matrix, which a backend can fill in place; none = read_rows.
    virtual std::optional<RandomMatrix> random_matrix(const std::string& /*name*/) const {
        return std::nullopt;
    }
};

/// base.h5: dataset path = HF tensor name, bf16 as a 16-bit HDF5 float type laid out as bfloat16
/// (also accepts uint16 with attribute dtype = "bf16"), F32 as IEEE float; root attributes
/// `config.json` (verbatim), `format` = "loratrain-base-1", `base_model_name_or_path` and
/// `tokenizer` (WeightSource's; may be missing), `checksum` (over all tensors); each dataset has
/// attribute `checksum` and the fletcher32 filter where chunked, so that slices are verified while
/// reading. The root checksum is that of the lines "NAME DTYPE CHECKSUM\n" of all tensors, sorted
/// by name (DTYPE fp32 or bf16, CHECKSUM the dataset's attribute). A quantised model has format
/// "loratrain-base-2", root attributes `quantization` (nf4, int8, e4m3 or e4m3_block) and
/// `source_dtype` (fp32, bf16 or fp16: the type before), and of each linear of its layers codes as
/// uint8 [out, bytes of a row] with scales beside them (quantized_parts.h); DTYPE is then "nf4 of
/// bf16" of codes, "uint8" of scales that are codes themselves. Opening checks names, shapes and
/// dtypes against the config, and that every chunk is in the file's index, which has no checksum of
/// its own; every error is an InputError with "file:dataset". It does not read the values:
/// WeightSource::check_contents() does.
std::unique_ptr<WeightSource> open_base_weights(const std::string& path);

/// Random weights from a seed (scaled so that activations stay bounded), for benchmarks. Linears
/// that are quantised have the same codes in every layer, which are made once and held on the host.
std::unique_ptr<WeightSource> synthetic_base_weights(const ModelSpec& spec, std::uint64_t seed);

}  // namespace loratrain
