#pragma once

#include <hdf5.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "config/model_spec.h"
#include "io/weights/base_writer.h"

namespace loratrain {

/// How one dataset lies in the file.
struct StoredTensor {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    bool vector = false;  ///< one-dimensional: one row here, one axis there
    StoredType type;
    bool as_uint16 = false;
    std::string checksum;
    MatrixShape shape;               ///< of quantised weights: theirs, not that of the codes
    std::vector<std::string> parts;  ///< of quantised weights: the datasets beside them

    bool quantized() const { return !parts.empty(); }
    std::int64_t row_bytes() const {
        return cols * static_cast<std::int64_t>(size_of(type.elements));
    }
};

/// What a base.h5 (base_weights.h) says of itself.
struct BaseLayout {
    std::string config;  ///< text of config.json
    ModelSpec spec;
    std::string checksum;                         ///< root attribute
    std::string base_model_name;                  ///< root attribute, "" = missing
    std::string tokenizer;                        ///< root attribute, "" = missing
    std::map<std::string, StoredTensor> tensors;  ///< all datasets, those of scales too
};

/// Reads it, and checks names, shapes, types, chunks and checksums' checksum: InputError with all
/// that is wrong. The caller holds Hdf5Lock.
BaseLayout read_base_layout(hid_t file, const std::string& path);

inline constexpr const char* damaged_base_hint =
    "the file is damaged; copy it again or import the model again";

}  // namespace loratrain
