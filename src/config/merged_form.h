#pragma once

#include <cstdint>

namespace loratrain {

/// How `merge --quantize` writes weights in few bits (io/adapters/merged_rows.h has the layouts).
enum class MergedForm : std::uint8_t {
    nf4,    ///< linears of the layers, as bitsandbytes has them
    int8,   ///< likewise
    fp8,    ///< linears of the layers, as compressed-tensors has them
    mxfp4,  ///< experts, as gpt_oss has them
};

}  // namespace loratrain
