#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "io/raw_file.h"

namespace loratrain {

/// Files of tensors in the safetensors format: reader and writer.

/// Where a file has a tensor.
struct SafetensorsEntry {
    std::string dtype;  ///< "F32", "BF16", "F16", ...
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< byte range in the data section
    std::uint64_t end = 0;
};

/// Reader of one file. The header is checked in full: offsets cover the data section without holes
/// or overlap, sizes match shapes, the file is not truncated. Every error is an InputError with
/// path and tensor name. Reads are thread-safe.
class SafetensorsFile {
  public:
    explicit SafetensorsFile(const std::string& path);
    const std::string& path() const { return file_->path(); }
    const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    /// The tensor's entry; InputError if the file does not have the tensor.
    const SafetensorsEntry& entry(const std::string& name) const;
    /// Renames every tensor to name_of(name); tensors for which that is "" are left out.
    void rename(const std::function<std::string(const std::string&)>& name_of);
    /// Makes tensors of a tensor: `parts` are names and shapes of values that lie one behind
    /// another in it, all of it together.
    using Parts = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
    void split(const std::string& name, const Parts& parts);
    /// Raw bytes [first, first + bytes) of a tensor.
    void read_bytes(const std::string& name, std::uint64_t first, std::uint64_t bytes,
                    void* target) const;
    /// A whole tensor converted to float, from F32, BF16, F16 or F64.
    std::vector<float> read_floats(const std::string& name) const;

  private:
    std::shared_ptr<const InputFile> file_;
    std::uint64_t data_start_ = 0;
    std::map<std::string, SafetensorsEntry> entries_;
    std::map<std::string, std::string> metadata_;
};

/// A float tensor with a name.
struct NamedTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

/// A float tensor whose values lie elsewhere, or are put together when they are written.
struct TensorSource {
    std::string name;
    std::vector<std::int64_t> shape;
    /// Values that are valid until `room` is used again, in which they may lie.
    std::function<std::span<const float>(std::vector<float>& room)> values;
};

/// The tensors outlive their sources.
std::vector<TensorSource> sources_of(const std::vector<NamedTensor>& tensors);

/// Writes a file atomically: tensors in F32 or BF16, sorted by name; metadata {"format": "pt",
/// extra_metadata...}; the header padded to 8 bytes. Returns the checksum of the bytes that it has
/// written, which is file_checksum() of a file that is whole.
std::string write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                              const std::map<std::string, std::string>& extra_metadata = {},
                              DType dtype = DType::f32);
std::string write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& extra_metadata = {},
                              DType dtype = DType::f32);

}  // namespace loratrain
