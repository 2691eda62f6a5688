#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "io/raw_file.h"

namespace loratrain {

/// One tensor of a safetensors file.
struct SafetensorsEntry {
    std::string dtype;  ///< "F32", "BF16", "F16", ...
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< byte range in the data section
    std::uint64_t end = 0;
};

/// Reader of one file; the header is checked in full (offsets cover the buffer without holes or
/// overlap, sizes match shapes, file not truncated). Every error is an InputError with path and
/// tensor name. Reads are thread-safe.
class SafetensorsFile {
  public:
    explicit SafetensorsFile(const std::string& path);
    const std::string& path() const { return file_->path(); }
    const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    /// The tensor's entry; an InputError when the file does not have it.
    const SafetensorsEntry& entry(const std::string& name) const;
    /// Gives tensors the names that `name_of` makes of theirs; those with none, "", are left out.
    void rename(const std::function<std::string(const std::string&)>& name_of);
    /// Raw bytes [first, first + bytes) of a tensor.
    void read_bytes(const std::string& name, std::uint64_t first, std::uint64_t bytes,
                    void* target) const;
    /// Whole tensor converted to float (F32, BF16, F16, F64).
    std::vector<float> read_floats(const std::string& name) const;

  private:
    std::shared_ptr<const InputFile> file_;
    std::uint64_t data_start_ = 0;
    std::map<std::string, SafetensorsEntry> entries_;
    std::map<std::string, std::string> metadata_;
};

/// A float tensor to be written.
struct NamedTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

/// Writes F32 or BF16 tensors with metadata {"format":"pt", extra...}; header padded to 8 bytes,
/// names sorted, atomically.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& extra_metadata = {},
                       DType dtype = DType::f32);

}  // namespace loratrain
