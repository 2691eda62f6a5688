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

/// What base.h5 says of its tensors: names, types and shapes, checked when it is opened.

/// How one dataset is stored in the file.
struct StoredTensor {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    bool vector = false;  ///< one-dimensional in the file; here it is one row
    StoredType type;
    bool as_uint16 = false;
    std::string checksum;
    MatrixShape shape;               ///< quantised weights: shape of the matrix, not of the codes
    std::vector<std::string> parts;  ///< quantised weights: names of the datasets with their scales

    bool quantized() const { return !parts.empty(); }
    std::int64_t row_bytes() const {
        return cols * static_cast<std::int64_t>(size_of(type.elements));
    }
};

/// Contents of a base.h5 (base_weights.h) without the tensors' values.
struct BaseLayout {
    std::string config;  ///< text of config.json
    ModelSpec spec;
    std::string checksum;                         ///< root attribute
    std::string base_model_name;                  ///< root attribute, "" = missing
    std::string tokenizer;                        ///< root attribute, "" = missing
    std::map<std::string, StoredTensor> tensors;  ///< all datasets, including scales
};

/// Reads the layout of an open base.h5. Checks names, shapes, types and chunks, and the root
/// checksum over the datasets' checksums. Throws InputError with all problems at once. The caller
/// holds Hdf5Lock.
BaseLayout read_base_layout(hid_t file, const std::string& path);

inline constexpr const char* damaged_base_hint =
    "the file is damaged; copy it again or import the model again";

}  // namespace loratrain
