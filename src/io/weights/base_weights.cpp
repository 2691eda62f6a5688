#include "io/weights/base_weights.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/shape.h"
#include "io/capped_problems.h"
#include "io/checksum.h"
#include "io/float_convert.h"
#include "io/hdf5_handle.h"
#include "io/hdf5_storage.h"
#include "io/tensor_names.h"
#include "io/weights/base_writer.h"
#include "io/weights/hf_config.h"

namespace loratrain {

namespace {

constexpr const char* import_hint = "make the file with: loratrain import-hf HF_DIR base.h5";
constexpr const char* damaged_base_hint =
    "the file is damaged; copy it again or import the model again";
constexpr std::int64_t staging_bytes = 8 << 20;

/// How one tensor lies in the file.
struct StoredTensor {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    bool vector = false;  ///< one-dimensional: one row here, one axis there
    WeightFormat format = WeightFormat::f32;
    bool as_uint16 = false;
    std::string checksum;
};

std::string required_attribute(hid_t file, const char* name, const std::string& path) {
    auto text = read_text_attribute(file, name);
    if (!text) {
        throw InputError(path, cat("has no attribute '", name, "': not a base-weights file"),
                         import_hint);
    }
    return *text;
}

void check_format(hid_t file, const std::string& path) {
    const std::string format = required_attribute(file, format_attribute, path);
    if (format != base_format) {
        throw InputError(path, cat("has format '", format, "', must be '", base_format, "'"),
                         import_hint);
    }
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
        check_format(file_.get(), path);
        config_ = required_attribute(file_.get(), config_attribute, path);
        spec_ = parse_hf_config(config_, path + ":config.json");
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
    void check_contents(const std::string& name) const override;

  private:
    void read_tensors();
    std::string read_tensor(const BaseTensor& tensor, CappedProblems& problems);
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
    CappedProblems problems(path_);
    std::vector<std::string> found = root_names(file_.get());
    std::map<std::string, std::string> checksums;
    for (const BaseTensor& tensor : base_tensors(spec_)) {
        const auto position = std::lower_bound(found.begin(), found.end(), tensor.name);
        if (position == found.end() || *position != tensor.name) {
            problems.add(where(tensor.name), "tensor is missing", import_hint);
            continue;
        }
        found.erase(position);
        checksums[tensor.name] = read_tensor(tensor, problems);
    }
    for (const std::string& name : found) {
        problems.add(where(name), "is no tensor of a " + spec_.family + " model with this config",
                     import_hint);
    }
    if (problems.empty() && combined_checksum(checksums) != checksum_) {
        problems.add(path_, "the checksums of its tensors do not give its checksum " + checksum_,
                     "the file was changed after it was made; import the model again");
    }
    problems.throw_if_any();
}

/// Checks one dataset and remembers its layout; returns what it adds to the file's checksum.
std::string BaseFile::read_tensor(const BaseTensor& tensor, CappedProblems& problems) {
    const Hdf5Handle dataset(H5Dopen2(file_.get(), tensor.name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset) {
        problems.add(where(tensor.name), "is not a readable dataset: " + hdf5_reason(),
                     import_hint);
        return "";
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
    const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
    const std::string named = read_text_attribute(dataset.get(), dtype_attribute).value_or("");
    stored.as_uint16 = H5Tget_class(type.get()) == H5T_INTEGER && H5Tget_size(type.get()) == 2 &&
                       (named == "bf16" || named == "bfloat16" || named == "BF16");
    stored.format = is_f32_type(type.get()) ? WeightFormat::f32 : WeightFormat::bf16;
    if (!stored.as_uint16 && !is_f32_type(type.get()) && !is_bf16_type(type.get())) {
        problems.add(where(tensor.name), "is stored in an unknown number format",
                     "known: float32, bfloat16 as a 16-bit float type, or uint16 with the "
                     "attribute dtype = \"bf16\"");
    }
    const auto checksum = read_text_attribute(dataset.get(), checksum_attribute);
    if (!checksum) problems.add(where(tensor.name), "has no attribute 'checksum'", import_hint);
    check_storage(dataset.get(), where(tensor.name), problems);
    stored.checksum = checksum.value_or("");
    tensors_[tensor.name] = stored;
    return format_and_checksum(stored.format, stored.checksum);
}

void BaseFile::read_block(hid_t dataset, const std::string& name, std::int64_t first,
                          std::int64_t count, void* target) const {
    const StoredTensor& stored = tensors_.at(name);
    const Hdf5Handle bf16 = make_bf16_type();
    const hid_t bf16_bits = stored.as_uint16 ? H5T_NATIVE_UINT16 : bf16.get();
    const hid_t type = stored.format == WeightFormat::f32 ? H5T_NATIVE_FLOAT : bf16_bits;
    read_hdf5_slab(dataset, type, first, stored.vector ? stored.cols : count, target, where(name));
}

void BaseFile::check_contents(const std::string& name) const {
    const StoredTensor& stored = tensors_.at(name);
    const Hdf5Lock lock;
    const Hdf5Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    const auto row_bytes =
        static_cast<std::int64_t>(code_bytes(traits_of(stored.format), stored.cols));
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

void convert_row(WeightFormat from, const void* source, std::int64_t cols, const TensorView& row) {
    const FloatFormat format = from == WeightFormat::f32 ? FloatFormat::f32 : FloatFormat::bf16;
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
    LORATRAIN_CHECK(first_row >= 0 && target.rows >= 0 && target.cols == stored.cols &&
                        first_row + target.rows <= stored.rows,
                    where(name), ": rows ", first_row, " + ", target.rows, " of ", stored.rows,
                    ", columns ", target.cols, " of ", stored.cols);
    if (target.rows == 0) return;
    const Hdf5Lock lock;
    const Hdf5Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    const WeightTraits& traits = traits_of(stored.format);
    if (traits.dense == target.dtype && (target.ld == target.cols || target.rows == 1)) {
        return read_block(dataset.get(), name, first_row, target.rows, target.data);
    }
    const auto row_bytes = static_cast<std::int64_t>(code_bytes(traits, stored.cols));
    const auto block = std::clamp<std::int64_t>(staging_bytes / row_bytes, 1, target.rows);
    std::vector<char> staging(static_cast<std::size_t>(block * row_bytes));
    for (std::int64_t done = 0; done < target.rows; done += block) {
        const std::int64_t count = std::min(block, target.rows - done);
        read_block(dataset.get(), name, first_row + done, count, staging.data());
        for (std::int64_t i = 0; i < count; ++i) {
            convert_row(stored.format, staging.data() + i * row_bytes, stored.cols,
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
