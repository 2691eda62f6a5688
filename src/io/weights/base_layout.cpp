#include "io/weights/base_layout.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "io/capped_problems.h"
#include "io/hdf5_handle.h"
#include "io/hdf5_storage.h"
#include "io/tensor_names.h"
#include "io/weights/base_tensors.h"
#include "io/weights/hf_config.h"
#include "io/weights/quantized_parts.h"

namespace loratrain {

namespace {

constexpr const char* import_hint = "make the file with: loratrain import-hf HF_DIR base.h5";

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
    check_format(path, format, {base_format, quantized_base_format}, import_hint);
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

class LayoutReader {
  public:
    LayoutReader(hid_t file, const std::string& path) : file_(file), path_(path) {
        const std::optional<Quantization> quantization = read_format(file, path);
        layout_.config = required_attribute(file, config_attribute, path);
        layout_.spec = parse_hf_config(layout_.config, path + ":config.json");
        layout_.spec.quantization = quantization;
        layout_.checksum = required_attribute(file, checksum_attribute, path);
        layout_.base_model_name = read_text_attribute(file, name_attribute).value_or("");
        layout_.tokenizer = read_text_attribute(file, tokenizer_attribute).value_or("");
        read_tensors();
    }
    BaseLayout take() { return std::move(layout_); }

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
    std::string where(const std::string& name) const { return path_ + ":" + name; }

    hid_t file_;
    const std::string& path_;
    BaseLayout layout_;
};

void LayoutReader::read_tensors() {
    Inventory found{root_names(file_), {}, CappedProblems(path_)};
    for (const BaseTensor& tensor : base_tensors(layout_.spec)) {
        if (layout_.spec.quantization && is_linear_weight(tensor.name)) {
            read_quantized(tensor, found);
        } else {
            read_tensor(tensor, std::nullopt, found);
        }
    }
    for (const std::string& name : found.left) {
        found.problems.add(
            where(name), "is not a tensor of a " + layout_.spec.family + " model with this config",
            import_hint);
    }
    if (found.problems.empty() && combined_checksum(found.checksums) != layout_.checksum) {
        found.problems.add(
            path_, "the checksums of its tensors do not give its checksum " + layout_.checksum,
            "the file was changed after it was made; import the model again");
    }
    found.problems.throw_if_any();
}

bool LayoutReader::has_bytes(const std::string& name) const {
    if (H5Lexists(file_, name.c_str(), H5P_DEFAULT) <= 0) return false;
    const Hdf5Handle dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset) return false;
    const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
    return H5Tequal(type.get(), H5T_STD_U8LE) > 0;
}

bool LayoutReader::has_one_scale(const std::string& name) const {
    if (H5Lexists(file_, name.c_str(), H5P_DEFAULT) <= 0) return false;
    const Hdf5Handle dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose);
    return dataset && dataset_shape(dataset.get()) == std::vector<std::int64_t>{1};
}

std::vector<BaseTensor> LayoutReader::nested_parts(const std::string& scales,
                                                   std::int64_t count) const {
    const std::string weight = scales.substr(0, scales.rfind('.'));
    return {{weight + nested_absmax_suffix, {(count + nested_block - 1) / nested_block}},
            {weight + nested_map_suffix, {256}},
            {weight + nested_offset_suffix, {1}}};
}

void LayoutReader::read_quantized(const BaseTensor& tensor, Inventory& found) {
    const auto [format, source] = *layout_.spec.quantization;
    const WeightTraits& traits = traits_of(format);
    const MatrixShape shape{tensor.shape[0], tensor.shape[1]};
    if (format == WeightFormat::nf4 && shape.cols % traits.block != 0) {
        found.problems.add(where(tensor.name),
                           cat("has rows of ", shape.cols, " weights, not a multiple of ",
                               traits.block, " as nf4 needs"),
                           import_hint);
        return;
    }
    const auto row_bytes = static_cast<std::int64_t>(code_bytes(traits, shape.cols));
    const StoredType floats = dense_type(WeightFormat::f32);
    read_tensor({tensor.name, {shape.rows, row_bytes}}, codes_type(*layout_.spec.quantization),
                found);
    BaseTensor scales{scales_name(format, tensor.name), scales_shape(format, shape)};
    const bool nested = format == WeightFormat::nf4 && has_bytes(scales.name);
    if (format == WeightFormat::e4m3 && has_one_scale(scales.name)) scales.shape = {1};
    read_tensor(scales, nested ? bytes_type() : floats, found);
    StoredTensor& stored = layout_.tensors[tensor.name];
    stored.shape = shape;
    stored.parts = {scales.name};
    if (!nested) return;
    for (const BaseTensor& part : nested_parts(scales.name, scales.shape[0])) {
        read_tensor(part, floats, found);
        layout_.tensors[tensor.name].parts.push_back(part.name);
    }
}

void LayoutReader::read_type(hid_t dataset, const std::string& name,
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

void LayoutReader::read_tensor(const BaseTensor& tensor, const std::optional<StoredType>& needed,
                               Inventory& found) {
    CappedProblems& problems = found.problems;
    const auto position = std::lower_bound(found.left.begin(), found.left.end(), tensor.name);
    if (position == found.left.end() || *position != tensor.name) {
        problems.add(where(tensor.name), "tensor is missing", import_hint);
        return;
    }
    found.left.erase(position);
    const Hdf5Handle dataset(H5Dopen2(file_, tensor.name.c_str(), H5P_DEFAULT), H5Dclose);
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
    layout_.tensors[tensor.name] = stored;
    found.checksums[tensor.name] = type_and_checksum(stored.type, stored.checksum);
}

}  // namespace

BaseLayout read_base_layout(hid_t file, const std::string& path) {
    return LayoutReader(file, path).take();
}

}  // namespace loratrain
