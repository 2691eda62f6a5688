#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "io/safetensors.h"

namespace loratrain {

struct SafetensorsHeader {
    std::map<std::string, SafetensorsEntry> entries;
    std::map<std::string, std::string> metadata;
};

/// Reads the JSON header of a file whose data section has `data_bytes` bytes, in full strictness:
/// known dtypes, sizes that match shapes, ranges that cover the section without hole or overlap.
SafetensorsHeader parse_safetensors_header(const std::string& json, std::uint64_t data_bytes,
                                           const std::string& path);

}  // namespace loratrain
