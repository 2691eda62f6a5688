#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/weight_format.h"
#include "io/checksum.h"
#include "io/hdf5_handle.h"

namespace loratrain {

/// Writes base.h5.

/// Names of the formats and attributes of base.h5 (base_weights.h).
inline constexpr const char* base_format = "loratrain-base-1";
inline constexpr const char* quantized_base_format = "loratrain-base-2";
inline constexpr const char* config_attribute = "config.json";
inline constexpr const char* format_attribute = "format";
inline constexpr const char* checksum_attribute = "checksum";
inline constexpr const char* dtype_attribute = "dtype";
inline constexpr const char* name_attribute = "base_model_name_or_path";
inline constexpr const char* tokenizer_attribute = "tokenizer";
inline constexpr const char* quantization_attribute = "quantization";
inline constexpr const char* source_attribute = "source_dtype";

/// Element type of a dataset, and its `name` in the lines of the root checksum.
struct StoredType {
    enum class Elements : std::uint8_t { f32, bf16, u8 };
    Elements elements = Elements::f32;
    std::string name;
};
/// Type of a dataset of fp32 or bf16 values.
StoredType dense_type(WeightFormat format);
/// Type of a dataset of codes. Its name, which the checksum covers, includes the type of the
/// weights before quantisation.
StoredType codes_type(const Quantization& quantization);
/// Type of a dataset of scales that are codes themselves.
StoredType bytes_type();
std::uint64_t size_of(StoredType::Elements elements);

/// The root checksum: over name, type and data checksum of every dataset, sorted by name.
std::string combined_checksum(const std::map<std::string, std::string>& types_and_checksums);
std::string type_and_checksum(const StoredType& type, const std::string& checksum);

/// Writes base.h5 tensor by tensor, the rows of each in order. Every error is an Error that names
/// file and dataset.
class BaseWriter {
  public:
    BaseWriter(const std::string& path, const std::string& config_json,
               const std::string& base_model_name, const std::string& tokenizer,
               const std::optional<Quantization>& quantization = std::nullopt);

    /// Suitable number of rows for one write_rows(): whole chunks of the file.
    static std::int64_t rows_per_block(const std::vector<std::int64_t>& shape,
                                       const StoredType& type);

    void begin(const std::string& name, const std::vector<std::int64_t>& shape,
               const StoredType& type);
    /// Writes the next `count` entries along the first axis, in the stored type.
    void write_rows(std::int64_t count, const void* data);
    void end();
    /// Writes a whole dataset: begin(), write_rows() and end().
    void write(const std::string& name, const std::vector<std::int64_t>& shape,
               const StoredType& type, const void* data);
    /// Writes the root checksum and closes the file.
    void finish();

  private:
    std::string where() const { return path_ + ":" + name_; }
    std::uint64_t chunk_data_bytes() const;
    void write_chunk();

    std::string path_;
    Hdf5Handle file_;
    std::map<std::string, std::string> tensors_;

    std::string name_;
    std::vector<std::int64_t> shape_;
    StoredType type_;
    std::int64_t written_ = 0;
    Hdf5Handle dataset_;
    Checksum checksum_;
    std::vector<char> chunk_;     ///< rows that fill the file's next chunk, then its Fletcher-32
    std::uint64_t pending_ = 0;   ///< bytes of rows in it
    std::int64_t chunk_row_ = 0;  ///< its first row
};

}  // namespace loratrain
