#include "io/weights/base_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int64_t chunk_bytes = 1 << 20;
constexpr std::int64_t chunks_per_block = 8;

std::int64_t row_elements(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) count *= shape[i];
    return count;
}

std::uint64_t row_bytes(const std::vector<std::int64_t>& shape, const StoredType& type) {
    return static_cast<std::uint64_t>(row_elements(shape)) * size_of(type.elements);
}

std::int64_t rows_per_chunk(const std::vector<std::int64_t>& shape, const StoredType& type) {
    const auto bytes = static_cast<std::int64_t>(row_bytes(shape, type));
    return std::clamp<std::int64_t>(chunk_bytes / bytes, 1, shape[0]);
}

std::vector<hsize_t> extents(const std::vector<std::int64_t>& shape, std::int64_t first) {
    std::vector<hsize_t> result(shape.begin(), shape.end());
    result[0] = static_cast<hsize_t>(first);
    return result;
}

Hdf5Handle chunked_layout(const std::vector<std::int64_t>& shape, const StoredType& type,
                          const std::string& where) {
    Hdf5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    const std::vector<hsize_t> chunk = extents(shape, rows_per_chunk(shape, type));
    check_status(H5Pset_chunk(properties.get(), static_cast<int>(chunk.size()), chunk.data()),
                 where, "set chunks");
    check_status(H5Pset_fletcher32(properties.get()), where, "set the checksum filter");
    // Every element is written, and the file's bytes must not depend on the clock.
    H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(properties.get(), false);
    return properties;
}

Hdf5Handle type_of(StoredType::Elements elements) {
    if (elements == StoredType::Elements::bf16) return make_bf16_type();
    const hid_t plain = elements == StoredType::Elements::u8 ? H5T_STD_U8LE : H5T_IEEE_F32LE;
    return {H5Tcopy(plain), H5Tclose};
}

}  // namespace

StoredType dense_type(WeightFormat format) {
    const bool f32 = format == WeightFormat::f32;
    return {f32 ? StoredType::Elements::f32 : StoredType::Elements::bf16,
            std::string(traits_of(format).name)};
}

StoredType codes_type(const Quantization& quantization) {
    return {StoredType::Elements::u8, to_string(quantization)};
}

StoredType bytes_type() {
    return {StoredType::Elements::u8, "uint8"};
}

std::uint64_t size_of(StoredType::Elements elements) {
    if (elements == StoredType::Elements::u8) return 1;
    return elements == StoredType::Elements::bf16 ? 2 : 4;
}

std::string type_and_checksum(const StoredType& type, const std::string& checksum) {
    return cat(type.name, " ", checksum);
}

std::string combined_checksum(const std::map<std::string, std::string>& types_and_checksums) {
    Checksum checksum;
    for (const auto& [name, value] : types_and_checksums) {
        const std::string line = cat(name, " ", value, "\n");
        checksum.update(line.data(), line.size());
    }
    return checksum.hex();
}

BaseWriter::BaseWriter(const std::string& path, const std::string& config_json,
                       const std::string& base_model_name, const std::string& tokenizer,
                       const std::optional<Quantization>& quantization)
    : path_(path) {
    const Hdf5Lock lock;
    file_ = create_hdf5_file(path);
    write_text_attribute(file_.get(), format_attribute,
                         quantization ? quantized_base_format : base_format, path);
    write_text_attribute(file_.get(), config_attribute, config_json, path);
    write_text_attribute(file_.get(), name_attribute, base_model_name, path);
    if (!tokenizer.empty()) {
        write_text_attribute(file_.get(), tokenizer_attribute, tokenizer, path);
    }
    if (quantization) {
        write_text_attribute(file_.get(), quantization_attribute,
                             std::string(traits_of(quantization->format).name), path);
        write_text_attribute(file_.get(), source_attribute,
                             std::string(name_of(quantization->source)), path);
    }
}

std::int64_t BaseWriter::rows_per_block(const std::vector<std::int64_t>& shape,
                                        const StoredType& type) {
    return std::min(shape[0], chunks_per_block * rows_per_chunk(shape, type));
}

void BaseWriter::begin(const std::string& name, const std::vector<std::int64_t>& shape,
                       const StoredType& type) {
    const Hdf5Lock lock;
    name_ = name;
    shape_ = shape;
    type_ = type;
    written_ = 0;
    checksum_ = Checksum();
    pending_ = 0;
    chunk_row_ = 0;
    chunk_.assign(chunk_data_bytes() + fletcher32_bytes, 0);
    const std::vector<hsize_t> extent = extents(shape, shape[0]);
    const Hdf5Handle space(
        H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), H5Sclose);
    const Hdf5Handle layout = chunked_layout(shape, type, where());
    const Hdf5Handle elements = type_of(type.elements);
    dataset_ = checked({H5Dcreate2(file_.get(), name.c_str(), elements.get(), space.get(),
                                   H5P_DEFAULT, layout.get(), H5P_DEFAULT),
                        H5Dclose},
                       where(), "create the dataset");
}

std::uint64_t BaseWriter::chunk_data_bytes() const {
    return static_cast<std::uint64_t>(rows_per_chunk(shape_, type_)) * row_bytes(shape_, type_);
}

/// As HDF5's filter would, which is slower by its own sum and by its copies of chunks.
void BaseWriter::write_chunk() {
    const std::uint64_t bytes = chunk_data_bytes();
    std::fill(chunk_.begin() + static_cast<std::ptrdiff_t>(pending_), chunk_.end(), char{0});
    const std::uint32_t sum = fletcher32(chunk_.data(), bytes);
    static_assert(std::endian::native == std::endian::little && sizeof(sum) == fletcher32_bytes);
    std::memcpy(chunk_.data() + bytes, &sum, sizeof(sum));
    std::vector<hsize_t> start(shape_.size(), 0);
    start[0] = static_cast<hsize_t>(chunk_row_);
    check_status(
        H5Dwrite_chunk(dataset_.get(), H5P_DEFAULT, 0, start.data(), chunk_.size(), chunk_.data()),
        where(), "write");
    chunk_row_ += rows_per_chunk(shape_, type_);
    pending_ = 0;
}

void BaseWriter::write_rows(std::int64_t count, const void* data) {
    LORATRAIN_CHECK(written_ + count <= shape_[0], where());
    const Hdf5Lock lock;
    const char* next = static_cast<const char*>(data);
    std::uint64_t left = static_cast<std::uint64_t>(count) * row_bytes(shape_, type_);
    checksum_.update(data, left);
    while (left > 0) {
        const std::uint64_t taken = std::min(left, chunk_data_bytes() - pending_);
        std::memcpy(chunk_.data() + pending_, next, taken);
        pending_ += taken;
        next += taken;
        left -= taken;
        if (pending_ == chunk_data_bytes()) write_chunk();
    }
    written_ += count;
}

void BaseWriter::end() {
    LORATRAIN_CHECK(written_ == shape_[0], where(), " has ", written_, " rows");
    const Hdf5Lock lock;
    if (pending_ > 0) write_chunk();
    write_text_attribute(dataset_.get(), checksum_attribute, checksum_.hex(), where());
    tensors_[name_] = type_and_checksum(type_, checksum_.hex());
    check_status(dataset_.close() ? 0 : -1, where(), "write the last rows");
}

void BaseWriter::write(const std::string& name, const std::vector<std::int64_t>& shape,
                       const StoredType& type, const void* data) {
    begin(name, shape, type);
    write_rows(shape[0], data);
    end();
}

void BaseWriter::finish() {
    const Hdf5Lock lock;
    write_text_attribute(file_.get(), checksum_attribute, combined_checksum(tensors_), path_);
    check_status(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL), path_, "write");
    check_status(file_.close() ? 0 : -1, path_, "close");
}

}  // namespace loratrain
