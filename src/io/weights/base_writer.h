#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/weight_format.h"
#include "io/checksum.h"
#include "io/hdf5_handle.h"

namespace loratrain {

/// Root attributes and format name of base.h5 (base_weights.h).
inline constexpr const char* base_format = "loratrain-base-1";
inline constexpr const char* config_attribute = "config.json";
inline constexpr const char* format_attribute = "format";
inline constexpr const char* checksum_attribute = "checksum";
inline constexpr const char* dtype_attribute = "dtype";
inline constexpr const char* name_attribute = "base_model_name_or_path";

/// What the root checksum covers: name, format and data checksum of every tensor, by name.
std::string combined_checksum(const std::map<std::string, std::string>& format_and_checksum);
std::string format_and_checksum(WeightFormat format, const std::string& checksum);

/// Writes base.h5 tensor by tensor, rows in order. Every error is an Error naming file and dataset.
class BaseWriter {
  public:
    BaseWriter(const std::string& path, const std::string& config_json,
               const std::string& base_model_name);

    /// Rows that fit well into one write_rows(): whole chunks of the file.
    static std::int64_t rows_per_block(const std::vector<std::int64_t>& shape, WeightFormat format);

    void begin(const std::string& name, const std::vector<std::int64_t>& shape,
               WeightFormat format);
    /// The next `count` entries along the first axis, as they are stored.
    void write_rows(std::int64_t count, const void* data);
    void end();
    /// Writes the root checksum and closes the file.
    void finish();

  private:
    std::string where() const { return path_ + ":" + name_; }

    std::string path_;
    Hdf5Handle file_;
    std::map<std::string, std::string> tensors_;

    std::string name_;
    std::vector<std::int64_t> shape_;
    WeightFormat format_ = WeightFormat::f32;
    std::int64_t written_ = 0;
    Hdf5Handle dataset_;
    Hdf5Handle memory_type_;
    Checksum checksum_;
};

}  // namespace loratrain
