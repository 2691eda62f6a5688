#include "io/weights/base_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/quantized.h"
#include "base/shape.h"
#include "io/capped_problems.h"
#include "io/checksum.h"
#include "io/float_convert.h"
#include "io/hdf5_handle.h"
#include "io/hdf5_storage.h"
#include "io/tensor_names.h"
#include "io/weights/base_writer.h"
#include "io/weights/hf_config.h"
#include "io/weights/quantized_parts.h"

namespace loratrain {

namespace {

constexpr const char* import_hint = "make the file with: loratrain import-hf HF_DIR base.h5";
constexpr const char* damaged_base_hint =
    "the file is damaged; copy it again or import the model again";
constexpr std::int64_t staging_bytes = 8 << 20;

/// How one dataset lies in the file.
struct StoredTensor {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    bool vector = false;  ///< one-dimensional: one row here, one axis there
    StoredType type;
    bool as_uint16 = false;
    std::string checksum;
    MatrixShape shape;               ///< of quantised weights: theirs, not that of the codes
    std::vector<std::string> parts;  ///< of quantised weights: the datasets beside them

    bool quantized() const { return !parts.empty(); }
    std::int64_t row_bytes() const {
        return cols * static_cast<std::int64_t>(size_of(type.elements));
    }
};

std::string required_attribute(hid_t file, const char* name, const std::string& path) {
    auto text = read_text_attribute(file, name);
    if (!text) {
        throw InputError(path, cat("has no attribute '", name, "': not a base-weights file"),
                         import_hint);
    }
    return *text;
}

/// How the file has the linears; none = dense.
std::optional<Quantization> read_format(hid_t file, const std::string& path) {
    const std::string format = required_attribute(file, format_attribute, path);
    if (format == base_format) return std::nullopt;
    if (format != quantized_base_format) {
        throw InputError(path,
                         cat("has format '", format, "', must be '", base_format, "' or '",
                             quantized_base_format, "'"),
                         import_hint);
    }
    const std::string name = required_attribute(file, quantization_attribute, path);
    const std::string source = required_attribute(file, source_attribute, path);
    const auto quantized = weight_format(name);
    const auto type = source_type(source);
    if (!quantized || traits_of(*quantized).dense || !type) {
        throw InputError(path,
                         cat("has weights in '", name, "' of '", source, "', must be ",
                             "nf4, int8, e4m3 or e4m3_block of fp32, bf16 or fp16"),
                         import_hint);
    }
    return Quantization{*quantized, *type};
}

void check_storage(hid_t dataset, const std::string& where, CappedProblems& problems) {
    const std::string problem = storage_problem(dataset);
    if (!problem.empty()) {
        problems.add(where, problem, damaged_base_hint);
    } else if (has_chunks_without_checksum(dataset)) {
        problems.add(where, "its chunks have no checksums (the fletcher32 filter)", import_hint);
    }
}

class BaseFile : public WeightSource {
  public:
    explicit BaseFile(const std::string& path) : path_(path) {
        const Hdf5Lock lock;
        file_ = open_hdf5_file(path);
        const std::optional<Quantization> quantization = read_format(file_.get(), path);
        config_ = required_attribute(file_.get(), config_attribute, path);
        spec_ = parse_hf_config(config_, path + ":config.json");
        spec_.quantization = quantization;
        checksum_ = required_attribute(file_.get(), checksum_attribute, path);
        base_model_name_ = read_text_attribute(file_.get(), name_attribute).value_or("");
        read_tensors();
    }

    const ModelSpec& spec() const override { return spec_; }
    std::string checksum() const override;
    std::string base_model_name() const override { return base_model_name_; }
    std::int64_t max_positions() const override { return max_positions_of(config_); }
    void read_rows(const std::string& name, std::int64_t first_row,
                   const TensorView& target) const override;
    void read_codes(const std::string& name, std::int64_t first_row, std::int64_t count,
                    void* codes, float* scales) const override;
    void check_contents(const std::string& name) const override;

  private:
    /// Datasets that no tensor has taken yet, and what those taken add to the root checksum.
    struct Inventory {
        std::vector<std::string> left;
        std::map<std::string, std::string> checksums;
        CappedProblems problems;
    };
    void read_tensors();
    /// Reads the layout of one dataset; `needed` is what its elements must be, none = f32 or bf16.
    void read_tensor(const BaseTensor& tensor, const std::optional<StoredType>& needed,
                     Inventory& found);
    void read_quantized(const BaseTensor& tensor, Inventory& found);
    std::vector<BaseTensor> nested_parts(const std::string& scales, std::int64_t count) const;
    void read_type(hid_t dataset, const std::string& name, const std::optional<StoredType>& needed,
                   StoredTensor& stored, CappedProblems& problems) const;
    bool has_bytes(const std::string& name) const;
    bool has_one_scale(const std::string& name) const;
    void check_dataset(const std::string& name) const;
    void read_dataset(const std::string& name, std::int64_t first, std::int64_t count,
                      void* target) const;
    void read_scales(const StoredTensor& stored, std::int64_t first_row, std::int64_t count,
                     float* scales) const;
    void read_nested(const StoredTensor& stored, std::int64_t first, std::int64_t count,
                     float* scales) const;
    void read_effective(const std::string& name, std::int64_t first_row,
                        const TensorView& target) const;
    std::string where(const std::string& name) const { return path_ + ":" + name; }
    void read_block(hid_t dataset, const std::string& name, std::int64_t first, std::int64_t count,
                    void* target) const;

    std::string path_;
    Hdf5Handle file_;
    std::string config_;
    ModelSpec spec_;
    std::string checksum_;
    std::string base_model_name_;
    std::map<std::string, StoredTensor> tensors_;
};

std::string BaseFile::checksum() const {
    Checksum config;
    config.update(config_.data(), config_.size());
    return checksum_ + "-" + config.hex();
}

void BaseFile::read_tensors() {
    Inventory found{root_names(file_.get()), {}, CappedProblems(path_)};
    for (const BaseTensor& tensor : base_tensors(spec_)) {
        if (spec_.quantization && is_linear_weight(tensor.name)) {
            read_quantized(tensor, found);
        } else {
            read_tensor(tensor, std::nullopt, found);
        }
    }
    for (const std::string& name : found.left) {
        found.problems.add(where(name),
                           "is no tensor of a " + spec_.family + " model with this config",
                           import_hint);
    }
    if (found.problems.empty() && combined_checksum(found.checksums) != checksum_) {
        found.problems.add(path_,
                           "the checksums of its tensors do not give its checksum " + checksum_,
                           "the file was changed after it was made; import the model again");
    }
    found.problems.throw_if_any();
}

bool BaseFile::has_bytes(const std::string& name) const {
    if (H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) <= 0) return false;
    const Hdf5Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset) return false;
    const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
    return H5Tequal(type.get(), H5T_STD_U8LE) > 0;
}

bool BaseFile::has_one_scale(const std::string& name) const {
    if (H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) <= 0) return false;
    const Hdf5Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    return dataset && dataset_shape(dataset.get()) == std::vector<std::int64_t>{1};
}

std::vector<BaseTensor> BaseFile::nested_parts(const std::string& scales,
                                               std::int64_t count) const {
    const std::string weight = scales.substr(0, scales.rfind('.'));
    return {{weight + nested_absmax_suffix, {(count + nested_block - 1) / nested_block}},
            {weight + nested_map_suffix, {256}},
            {weight + nested_offset_suffix, {1}}};
}

void BaseFile::read_quantized(const BaseTensor& tensor, Inventory& found) {
    const auto [format, source] = *spec_.quantization;
    const WeightTraits& traits = traits_of(format);
    const MatrixShape shape{tensor.shape[0], tensor.shape[1]};
    if (format == WeightFormat::nf4 && shape.cols % traits.block != 0) {
        found.problems.add(where(tensor.name),
                           cat("has rows of ", shape.cols, " weights, no multiple of ",
                               traits.block, " as nf4 needs"),
                           import_hint);
        return;
    }
    const auto row_bytes = static_cast<std::int64_t>(code_bytes(traits, shape.cols));
    const StoredType floats = dense_type(WeightFormat::f32);
    read_tensor({tensor.name, {shape.rows, row_bytes}}, codes_type(*spec_.quantization), found);
    BaseTensor scales{scales_name(format, tensor.name), scales_shape(format, shape)};
    const bool nested = format == WeightFormat::nf4 && has_bytes(scales.name);
    if (format == WeightFormat::e4m3 && has_one_scale(scales.name)) scales.shape = {1};
    read_tensor(scales, nested ? bytes_type() : floats, found);
    StoredTensor& stored = tensors_[tensor.name];
    stored.shape = shape;
    stored.parts = {scales.name};
    if (!nested) return;
    for (const BaseTensor& part : nested_parts(scales.name, scales.shape[0])) {
        read_tensor(part, floats, found);
        tensors_[tensor.name].parts.push_back(part.name);
    }
}

void BaseFile::read_type(hid_t dataset, const std::string& name,
                         const std::optional<StoredType>& needed, StoredTensor& stored,
                         CappedProblems& problems) const {
    const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
    if (needed) {
        stored.type = *needed;
        const bool bytes = needed->elements == StoredType::Elements::u8;
        const bool fits = bytes ? H5Tequal(type.get(), H5T_STD_U8LE) > 0 : is_f32_type(type.get());
        if (!fits) {
            problems.add(where(name),
                         cat("has another type of numbers than ", bytes ? "uint8" : "float32"),
                         import_hint);
        }
        return;
    }
    const std::string named = read_text_attribute(dataset, dtype_attribute).value_or("");
    stored.as_uint16 = H5Tget_class(type.get()) == H5T_INTEGER && H5Tget_size(type.get()) == 2 &&
                       (named == "bf16" || named == "bfloat16" || named == "BF16");
    stored.type = dense_type(is_f32_type(type.get()) ? WeightFormat::f32 : WeightFormat::bf16);
    if (!stored.as_uint16 && !is_f32_type(type.get()) && !is_bf16_type(type.get())) {
        problems.add(where(name), "is stored in an unknown number format",
                     "known: float32, bfloat16 as a 16-bit float type, or uint16 with the "
                     "attribute dtype = \"bf16\"");
    }
}

void BaseFile::read_tensor(const BaseTensor& tensor, const std::optional<StoredType>& needed,
                           Inventory& found) {
    CappedProblems& problems = found.problems;
    const auto position = std::lower_bound(found.left.begin(), found.left.end(), tensor.name);
    if (position == found.left.end() || *position != tensor.name) {
        problems.add(where(tensor.name), "tensor is missing", import_hint);
        return;
    }
    found.left.erase(position);
    const Hdf5Handle dataset(H5Dopen2(file_.get(), tensor.name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset) {
        problems.add(where(tensor.name), "is not a readable dataset: " + hdf5_reason(),
                     import_hint);
        return;
    }
    const std::vector<std::int64_t> shape = dataset_shape(dataset.get());
    if (shape != tensor.shape) {
        problems.add(
            where(tensor.name),
            "has shape " + shape_text(shape) + ", config.json needs " + shape_text(tensor.shape),
            import_hint);
    }
    StoredTensor stored;
    stored.vector = tensor.shape.size() == 1;
    stored.rows = stored.vector ? 1 : tensor.shape[0];
    stored.cols = tensor.shape.back();
    read_type(dataset.get(), tensor.name, needed, stored, problems);
    const auto checksum = read_text_attribute(dataset.get(), checksum_attribute);
    if (!checksum) problems.add(where(tensor.name), "has no attribute 'checksum'", import_hint);
    check_storage(dataset.get(), where(tensor.name), problems);
    stored.checksum = checksum.value_or("");
    tensors_[tensor.name] = stored;
    found.checksums[tensor.name] = type_and_checksum(stored.type, stored.checksum);
}

void BaseFile::read_block(hid_t dataset, const std::string& name, std::int64_t first,
                          std::int64_t count, void* target) const {
    const StoredTensor& stored = tensors_.at(name);
    const Hdf5Handle bf16 = make_bf16_type();
    const hid_t bf16_bits = stored.as_uint16 ? H5T_NATIVE_UINT16 : bf16.get();
    hid_t type = H5T_NATIVE_FLOAT;
    if (stored.type.elements == StoredType::Elements::bf16) type = bf16_bits;
    if (stored.type.elements == StoredType::Elements::u8) type = H5T_NATIVE_UINT8;
    read_hdf5_slab(dataset, type, first, stored.vector ? stored.cols : count, target, where(name));
}

void BaseFile::check_contents(const std::string& name) const {
    check_dataset(name);
    for (const std::string& part : tensors_.at(name).parts) check_dataset(part);
}

void BaseFile::check_dataset(const std::string& name) const {
    const StoredTensor& stored = tensors_.at(name);
    const Hdf5Lock lock;
    const Hdf5Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    const std::int64_t row_bytes = stored.row_bytes();
    const auto block = std::clamp<std::int64_t>(staging_bytes / row_bytes, 1, stored.rows);
    std::vector<char> staging(static_cast<std::size_t>(block * row_bytes));
    Checksum checksum;
    for (std::int64_t done = 0; done < stored.rows; done += block) {
        const std::int64_t count = std::min(block, stored.rows - done);
        read_block(dataset.get(), name, done, count, staging.data());
        checksum.update(staging.data(), static_cast<std::size_t>(count * row_bytes));
    }
    if (checksum.hex() != stored.checksum) {
        throw InputError(
            where(name),
            cat("its values have checksum ", checksum.hex(), ", it says ", stored.checksum),
            damaged_base_hint);
    }
}

void BaseFile::read_dataset(const std::string& name, std::int64_t first, std::int64_t count,
                            void* target) const {
    const Hdf5Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    const bool bytes = tensors_.at(name).type.elements == StoredType::Elements::u8;
    read_hdf5_slab(dataset.get(), bytes ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT, first, count, target,
                   where(name));
}

void BaseFile::read_nested(const StoredTensor& stored, std::int64_t first, std::int64_t count,
                           float* scales) const {
    NestedScales nested;
    nested.nested.resize(static_cast<std::size_t>(tensors_.at(stored.parts[1]).cols));
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(count));
    read_dataset(stored.parts[0], first, count, codes.data());
    read_dataset(stored.parts[1], 0, static_cast<std::int64_t>(nested.nested.size()),
                 nested.nested.data());
    read_dataset(stored.parts[2], 0, static_cast<std::int64_t>(nested.map.size()),
                 nested.map.data());
    read_dataset(stored.parts[3], 0, 1, &nested.offset);
    for (std::int64_t i = 0; i < count; ++i) {
        scales[i] = nested.scale(first + i, codes[static_cast<std::size_t>(i)]);
    }
}

void BaseFile::read_scales(const StoredTensor& stored, std::int64_t first_row, std::int64_t count,
                           float* scales) const {
    const WeightFormat format = spec_.quantization->format;
    const std::int64_t of_row = scale_count(traits_of(format), stored.shape.cols);
    const std::string& name = stored.parts[0];
    if (stored.parts.size() > 1) {
        return read_nested(stored, first_row * of_row, count * of_row, scales);
    }
    if (format == WeightFormat::e4m3_block) {
        for (std::int64_t i = 0; i < count; ++i) {
            float* row = scales + i * of_row;
            const bool repeats = i > 0 && (first_row + i) % tile_rows != 0;
            if (repeats) {
                std::copy_n(row - of_row, of_row, row);
            } else {
                read_dataset(name, (first_row + i) / tile_rows, 1, row);
            }
        }
    } else if (tensors_.at(name).cols == 1 && stored.shape.rows > 1) {
        read_dataset(name, 0, 1, scales);
        std::fill_n(scales, count, *scales);
    } else {
        read_dataset(name, first_row * of_row, count * of_row, scales);
    }
}

void BaseFile::read_codes(const std::string& name, std::int64_t first_row, std::int64_t count,
                          void* codes, float* scales) const {
    const auto found = tensors_.find(name);
    LORATRAIN_CHECK(found != tensors_.end() && found->second.quantized(), where(name));
    const StoredTensor& stored = found->second;
    LORATRAIN_CHECK(first_row >= 0 && count >= 0 && first_row + count <= stored.rows, where(name),
                    ": rows ", first_row, " + ", count, " of ", stored.rows);
    if (count == 0) return;
    const Hdf5Lock lock;
    read_dataset(name, first_row, count, codes);
    read_scales(stored, first_row, count, scales);
}

void BaseFile::read_effective(const std::string& name, std::int64_t first_row,
                              const TensorView& target) const {
    const auto [format, source] = *spec_.quantization;
    const WeightTraits& traits = traits_of(format);
    const auto row_bytes = static_cast<std::int64_t>(code_bytes(traits, target.cols));
    const auto block = std::clamp<std::int64_t>(staging_bytes / row_bytes, 1, target.rows);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(block * row_bytes));
    std::vector<float> scales(static_cast<std::size_t>(block * scale_count(traits, target.cols)));
    for (std::int64_t done = 0; done < target.rows; done += block) {
        const std::int64_t count = std::min(block, target.rows - done);
        read_codes(name, first_row + done, count, codes.data(), scales.data());
        effective_rows(
            {format, source, codes.data(), scales.data(), count, target.cols, target.cols},
            target.row_range(done, count));
    }
}

void convert_row(StoredType::Elements from, const void* source, std::int64_t cols,
                 const TensorView& row) {
    const bool f32 = from == StoredType::Elements::f32;
    const FloatFormat format = f32 ? FloatFormat::f32 : FloatFormat::bf16;
    if (row.dtype == DType::f32) {
        convert_to_f32(format, source, cols, row.f32());
    } else {
        convert_to_bf16(format, source, cols, static_cast<BFloat16*>(row.data));
    }
}

void BaseFile::read_rows(const std::string& name, std::int64_t first_row,
                         const TensorView& target) const {
    const auto found = tensors_.find(name);
    LORATRAIN_CHECK(found != tensors_.end(), where(name));
    const StoredTensor& stored = found->second;
    const std::int64_t cols = stored.quantized() ? stored.shape.cols : stored.cols;
    LORATRAIN_CHECK(first_row >= 0 && target.rows >= 0 && target.cols == cols &&
                        first_row + target.rows <= stored.rows,
                    where(name), ": rows ", first_row, " + ", target.rows, " of ", stored.rows,
                    ", columns ", target.cols, " of ", cols);
    if (target.rows == 0) return;
    if (stored.quantized()) return read_effective(name, first_row, target);
    const Hdf5Lock lock;
    const Hdf5Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    const bool f32 = stored.type.elements == StoredType::Elements::f32;
    const bool same = (f32 ? DType::f32 : DType::bf16) == target.dtype;
    if (same && (target.ld == target.cols || target.rows == 1)) {
        return read_block(dataset.get(), name, first_row, target.rows, target.data);
    }
    const std::int64_t row_bytes = stored.row_bytes();
    const auto block = std::clamp<std::int64_t>(staging_bytes / row_bytes, 1, target.rows);
    std::vector<char> staging(static_cast<std::size_t>(block * row_bytes));
    for (std::int64_t done = 0; done < target.rows; done += block) {
        const std::int64_t count = std::min(block, target.rows - done);
        read_block(dataset.get(), name, first_row + done, count, staging.data());
        for (std::int64_t i = 0; i < count; ++i) {
            convert_row(stored.type.elements, staging.data() + i * row_bytes, stored.cols,
                        target.row_range(done + i, 1));
        }
    }
}

void add_linear(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer,
                Linear linear) {
    const LinearShape shape = linear_shape(spec, linear);
    tensors.push_back({weight_name(layer, linear), {shape.out, shape.in}});
    if (has_bias(spec, linear)) tensors.push_back({bias_name(layer, linear), {shape.out}});
}

}  // namespace

void WeightSource::read_codes(const std::string& name, std::int64_t /*first_row*/,
                              std::int64_t /*count*/, void* /*codes*/, float* /*scales*/) const {
    LORATRAIN_CHECK(false, name, " has no codes");
}

std::vector<BaseTensor> base_tensors(const ModelSpec& spec) {
    std::vector<BaseTensor> tensors{{embedding_name, {spec.vocab_size, spec.hidden_size}}};
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        tensors.push_back({norm_name(layer, LayerNorm::input), {spec.hidden_size}});
        for (const Linear linear : {Linear::q, Linear::k, Linear::v, Linear::o}) {
            add_linear(tensors, spec, layer, linear);
        }
        if (spec.qk_norm) {
            tensors.push_back({norm_name(layer, LayerNorm::q), {spec.head_dim}});
            tensors.push_back({norm_name(layer, LayerNorm::k), {spec.head_dim}});
        }
        tensors.push_back({norm_name(layer, LayerNorm::post_attention), {spec.hidden_size}});
        for (const Linear linear : {Linear::gate, Linear::up, Linear::down}) {
            add_linear(tensors, spec, layer, linear);
        }
    }
    tensors.push_back({final_norm_name, {spec.hidden_size}});
    if (!spec.tie_word_embeddings) {
        tensors.push_back({head_name, {spec.vocab_size, spec.hidden_size}});
    }
    return tensors;
}

std::unique_ptr<WeightSource> open_base_weights(const std::string& path) {
    return std::make_unique<BaseFile>(path);
}

}  // namespace loratrain
