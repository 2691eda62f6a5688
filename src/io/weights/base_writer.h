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

/// Root attributes and format name of base.h5 (base_weights.h).
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

/// What the elements of a dataset are, and what its line in the root checksum says of them.
struct StoredType {
    enum class Elements : std::uint8_t { f32, bf16, u8 };
    Elements elements = Elements::f32;
    std::string name;
};
/// Of fp32 or bf16.
StoredType dense_type(WeightFormat format);
/// Of codes; the type that the weights had before is a part of what the checksum covers.
StoredType codes_type(const Quantization& quantization);
/// Of codes of scales.
StoredType bytes_type();
std::uint64_t size_of(StoredType::Elements elements);

/// What the root checksum covers: name, type and data checksum of every dataset, by name.
std::string combined_checksum(const std::map<std::string, std::string>& types_and_checksums);
std::string type_and_checksum(const StoredType& type, const std::string& checksum);

/// Writes base.h5 tensor by tensor, rows in order. Every error is an Error naming file and dataset.
class BaseWriter {
  public:
    BaseWriter(const std::string& path, const std::string& config_json,
               const std::string& base_model_name, const std::string& tokenizer,
               const std::optional<Quantization>& quantization = std::nullopt);

    /// Rows that fit well into one write_rows(): whole chunks of the file.
    static std::int64_t rows_per_block(const std::vector<std::int64_t>& shape,
                                       const StoredType& type);

    void begin(const std::string& name, const std::vector<std::int64_t>& shape,
               const StoredType& type);
    /// The next `count` entries along the first axis, as they are stored.
    void write_rows(std::int64_t count, const void* data);
    void end();
    /// A dataset in one piece.
    void write(const std::string& name, const std::vector<std::int64_t>& shape,
               const StoredType& type, const void* data);
    /// Writes the root checksum and closes the file.
    void finish();

  private:
    std::string where() const { return path_ + ":" + name_; }

    std::string path_;
    Hdf5Handle file_;
    std::map<std::string, std::string> tensors_;

    std::string name_;
    std::vector<std::int64_t> shape_;
    StoredType type_;
    std::int64_t written_ = 0;
    Hdf5Handle dataset_;
    Hdf5Handle memory_type_;
    Checksum checksum_;
};

}  // namespace loratrain
