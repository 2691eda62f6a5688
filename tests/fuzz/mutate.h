#pragma once

#include <string>

#include "fuzz/draw.h"

namespace loratrain::fuzz {

/// A YAML or JSON text with one or a few changes that a person, a program or a disk may make:
/// numbers out of range, words and marks of the text exchanged, left out, given twice or put
/// elsewhere, stray marks, deep nesting, bytes changed, an end that is missing.
std::string mutate_text(std::string text, Draw& draw);

/// Bytes with one or a few changes: bits flipped, numbers of 1 to 8 bytes replaced by extreme ones,
/// blocks copied, zeroed or left out, an end that is missing or too long. Half of the changes are
/// near one of the places that begin with a signature of HDF5's structures, where there are any.
std::string mutate_bytes(std::string bytes, Draw& draw);

/// A safetensors file whose header is changed as a text, with a length that fits it, or as bytes.
std::string mutate_safetensors(const std::string& file, Draw& draw);

}  // namespace loratrain::fuzz
