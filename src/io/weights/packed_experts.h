#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace loratrain {

/// Experts as files of gpt_oss have them, read as the matrices [out, in] of base.h5. For E experts,
/// with gates in even and ups in odd places of the 2 F outputs:
///   gate_up_proj [E, H, 2 F], down_proj [E, F, H]    numbers, inputs first
///   gate_up_proj_blocks [E, 2 F, H / 32, 16],        MXFP4 (mxfp4.h): codes and exponents, a row
///   gate_up_proj_scales [E, 2 F, H / 32],            per output
///   down_proj_blocks, down_proj_scales
///   gate_up_proj_bias [E, 2 F]                       as base.h5 has it: gates, then ups

/// A tensor that is made of a tensor of a file.
struct PackedTensor {
    enum class Form : std::uint8_t {
        columns,  ///< output i is column begin + step i
        mxfp4,    ///< output i is row begin + step i
        bias,     ///< columns 0, 2, 4, ..., then 1, 3, 5, ...
    };
    Form form = Form::columns;
    std::string from;
    std::string scales = {};  ///< of mxfp4
    std::int64_t begin = 0;
    std::int64_t step = 1;
    std::string dtype = {};                ///< of the tensor that is made
    std::vector<std::int64_t> shape = {};  ///< likewise
};

/// How a tensor of all of a layer's experts becomes tensors of each.
struct PackedExperts {
    SafetensorsFile::Parts parts;                 ///< what it is split into; empty: it is not
    std::map<std::string, PackedTensor> tensors;  ///< what is made of these, or of itself
};

/// Of the tensor `name` among `all` of the folder, whose names are those of base.h5 where there are
/// such. Empty: it is none of the above, or its shape or that of its scales is another.
PackedExperts packed_experts(const std::string& name,
                             const std::map<std::string, SafetensorsEntry>& all);

/// The values of the whole tensor. `file` has PackedTensor::from, `scales` what that says.
std::vector<char> unpack(const PackedTensor& packed, const SafetensorsFile& file,
                         const SafetensorsFile& scales);

}  // namespace loratrain
