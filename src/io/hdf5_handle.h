#pragma once

#include <hdf5.h>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace loratrain {

/// HDF5 in C++: a lock, owners of identifiers, files, types, attributes.

/// A lock for every use of HDF5, which is not thread-safe in all builds. While it is held, the
/// library prints no errors.
class Hdf5Lock {
  public:
    Hdf5Lock();

  private:
    std::unique_lock<std::recursive_mutex> lock_;
};

/// Owner of one HDF5 identifier.
class Hdf5Handle {
  public:
    using Closer = herr_t (*)(hid_t);

    Hdf5Handle() = default;
    Hdf5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
    ~Hdf5Handle() { close(); }
    Hdf5Handle(Hdf5Handle&& other) noexcept;
    Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;

    hid_t get() const { return id_; }
    explicit operator bool() const { return id_ >= 0; }
    /// False if HDF5 could not close it, for example because buffered data cannot be written.
    bool close();

  private:
    hid_t id_ = -1;
    Closer closer_ = nullptr;
};

/// The innermost message of HDF5's error stack.
std::string hdf5_reason();

/// Opens a file for reading. InputError if it is missing, is not HDF5, is truncated, or has links
/// into other files. (storage_problem() finds data in other files.)
Hdf5Handle open_hdf5_file(const std::string& path);
/// Creates a new file in a format that HDF5 1.8 and later read. Error naming the path.
Hdf5Handle create_hdf5_file(const std::string& path);

/// Returns the handle if it is valid; else throws Error "where: cannot ACTION: reason".
Hdf5Handle checked(Hdf5Handle handle, const std::string& where, const std::string& action);
/// Throws Error "where: cannot ACTION: reason" if a call's status is a failure.
void check_status(herr_t status, const std::string& where, const std::string& action);

/// Names of the root group's links, sorted.
std::vector<std::string> root_names(hid_t file);

/// bfloat16 as an HDF5 float type: 16 bits, sign 15, exponent 8 bits at 7 (bias 127), mantissa 7.
Hdf5Handle make_bf16_type();
/// True for the layout of make_bf16_type() in either byte order.
bool is_bf16_type(hid_t type);
/// True for IEEE floats of 32 bits in either byte order.
bool is_f32_type(hid_t type);

/// Text attribute of fixed or variable length; none if it is missing or no text.
std::optional<std::string> read_text_attribute(hid_t object, const std::string& name);
void write_text_attribute(hid_t object, const std::string& name, const std::string& value,
                          const std::string& where);

/// Extents of a dataset.
std::vector<std::int64_t> dataset_shape(hid_t dataset);

}  // namespace loratrain
