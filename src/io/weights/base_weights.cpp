#include "io/weights/base_weights.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/quantized.h"
#include "io/checksum.h"
#include "io/files.h"
#include "io/float_convert.h"
#include "io/hdf5_handle.h"
#include "io/hdf5_slab.h"
#include "io/hdf5_storage.h"
#include "io/weights/base_layout.h"
#include "io/weights/hf_config.h"
#include "io/weights/quantized_parts.h"

namespace loratrain {

namespace {

constexpr std::int64_t staging_bytes = 8 << 20;
constexpr std::int64_t compared_bytes = 1 << 20;  ///< a chunk: whoever compares has threads itself

class BaseFile : public WeightSource {
  public:
    explicit BaseFile(const std::string& path) : path_(path) {
        const Hdf5Lock lock;
        file_ = open_hdf5_file(path);
        layout_ = read_base_layout(file_.get(), path);
    }

    const ModelSpec& spec() const override { return layout_.spec; }
    std::string checksum() const override;
    std::string base_model_name() const override { return layout_.base_model_name; }
    std::string tokenizer() const override { return layout_.tokenizer; }
    std::int64_t max_positions() const override { return max_positions_of(layout_.config); }
    std::vector<std::int32_t> end_tokens() const override { return end_tokens_of(layout_.config); }
    std::string config() const override { return layout_.config; }
    DType dense_type_of(const std::string& name) const override;
    void read_rows(const std::string& name, std::int64_t first_row,
                   const TensorView& target) const override;
    void read_codes(const std::string& name, std::int64_t first_row, std::int64_t count,
                    void* codes, float* scales) const override;
    void check_contents(const std::string& name) const override;

  private:
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
    Hdf5Handle open_dataset(const std::string& name) const;
    void read_block(hid_t dataset, const std::string& name, std::int64_t first, std::int64_t count,
                    void* target) const;

    std::string path_;
    Hdf5Handle file_;
    BaseLayout layout_;
};

DType BaseFile::dense_type_of(const std::string& name) const {
    const StoredTensor& stored = layout_.tensors.at(name);
    const auto& quantization = layout_.spec.quantization;
    if (stored.quantized()) {
        return quantization->source == SourceType::f32 ? DType::f32 : DType::bf16;
    }
    return stored.type.elements == StoredType::Elements::bf16 ? DType::bf16 : DType::f32;
}

std::string BaseFile::checksum() const {
    Checksum config;
    config.update(layout_.config.data(), layout_.config.size());
    return layout_.checksum + "-" + config.hex();
}

Hdf5Handle memory_type_of(const StoredTensor& stored) {
    const Hdf5Lock lock;
    switch (stored.type.elements) {
        case StoredType::Elements::f32:
            return {H5Tcopy(H5T_NATIVE_FLOAT), H5Tclose};
        case StoredType::Elements::u8:
            return {H5Tcopy(H5T_NATIVE_UINT8), H5Tclose};
        case StoredType::Elements::bf16:
            break;
    }
    if (stored.as_uint16) return {H5Tcopy(H5T_NATIVE_UINT16), H5Tclose};
    return make_bf16_type();
}

Hdf5Handle BaseFile::open_dataset(const std::string& name) const {
    const Hdf5Lock lock;
    return {H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose};
}

void BaseFile::read_block(hid_t dataset, const std::string& name, std::int64_t first,
                          std::int64_t count, void* target) const {
    const StoredTensor& stored = layout_.tensors.at(name);
    const Hdf5Handle type = memory_type_of(stored);
    read_hdf5_slab(dataset, type.get(), first, stored.vector ? stored.cols : count, target,
                   where(name));
}

void BaseFile::check_contents(const std::string& name) const {
    check_dataset(name);
    for (const std::string& part : layout_.tensors.at(name).parts) check_dataset(part);
}

void BaseFile::check_dataset(const std::string& name) const {
    const StoredTensor& stored = layout_.tensors.at(name);
    const Hdf5Handle dataset = open_dataset(name);
    const std::int64_t row_bytes = stored.row_bytes();
    const auto block = std::clamp<std::int64_t>(compared_bytes / row_bytes, 1, stored.rows);
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
    const Hdf5Handle dataset = open_dataset(name);
    const bool bytes = layout_.tensors.at(name).type.elements == StoredType::Elements::u8;
    read_hdf5_slab(dataset.get(), bytes ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT, first, count, target,
                   where(name));
}

void BaseFile::read_nested(const StoredTensor& stored, std::int64_t first, std::int64_t count,
                           float* scales) const {
    NestedScales nested;
    nested.nested.resize(static_cast<std::size_t>(layout_.tensors.at(stored.parts[1]).cols));
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
    const WeightFormat format = layout_.spec.quantization->format;
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
    } else if (layout_.tensors.at(name).cols == 1 && stored.shape.rows > 1) {
        read_dataset(name, 0, 1, scales);
        std::fill_n(scales, count, *scales);
    } else {
        read_dataset(name, first_row * of_row, count * of_row, scales);
    }
}

void BaseFile::read_codes(const std::string& name, std::int64_t first_row, std::int64_t count,
                          void* codes, float* scales) const {
    const auto found = layout_.tensors.find(name);
    LORATRAIN_CHECK(found != layout_.tensors.end() && found->second.quantized(), where(name));
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
    const auto [format, source] = *layout_.spec.quantization;
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
    const auto found = layout_.tensors.find(name);
    LORATRAIN_CHECK(found != layout_.tensors.end(), where(name));
    const StoredTensor& stored = found->second;
    const std::int64_t cols = stored.quantized() ? stored.shape.cols : stored.cols;
    LORATRAIN_CHECK(first_row >= 0 && target.rows >= 0 && target.cols == cols &&
                        first_row + target.rows <= stored.rows,
                    where(name), ": rows ", first_row, " + ", target.rows, " of ", stored.rows,
                    ", columns ", target.cols, " of ", cols);
    if (target.rows == 0) return;
    if (stored.quantized()) return read_effective(name, first_row, target);
    const Hdf5Handle dataset = open_dataset(name);
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

}  // namespace

void WeightSource::read_codes(const std::string& name, std::int64_t /*first_row*/,
                              std::int64_t /*count*/, void* /*codes*/, float* /*scales*/) const {
    LORATRAIN_CHECK(false, name, " has no codes");
}

namespace {

namespace fs = std::filesystem;

/// What people give in place of an imported file.
void refuse_hugging_face_files(const std::string& weights) {
    const fs::path path(weights);
    std::error_code unknown;
    const bool folder = fs::is_directory(path, unknown);
    const bool shard = path.extension() == ".safetensors" || path.extension() == ".bin";
    const bool missing = !fs::exists(path, unknown) && path.extension() != ".h5";
    if (!folder && !shard && !missing) return;
    const fs::path model = shard ? path.parent_path() : path;
    const std::string where = missing && !shard ? "HF_DIR" : model.string();
    const std::string output = (where == "HF_DIR" ? std::string("base") : where) + ".h5";
    const char* what = shard ? "is a shard of Hugging Face weights" : "is a folder";
    throw InputError(weights,
                     cat(missing ? "does not exist" : what, "; base weights are an HDF5 file"),
                     cat("make it once from the model's folder: loratrain import-hf ", where, " ",
                         output, ", and give ", output, " (in a job: model: {weights: ", output,
                         "})", missing ? download_hint(weights) : ""));
}

}  // namespace

std::unique_ptr<WeightSource> open_base_weights(const std::string& path) {
    refuse_hugging_face_files(path);
    return std::make_unique<BaseFile>(path);
}

}  // namespace loratrain
