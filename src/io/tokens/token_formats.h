#pragma once

#include <memory>
#include <string>

#include "io/tokens/token_file.h"

namespace loratrain {

/// open_token_file() of text lines and of HDF5 files.
std::unique_ptr<TokenFile> open_token_jsonl(const std::string& path, bool bytes,
                                            const SampleVisitor& visit);
std::unique_ptr<TokenFile> open_token_hdf5(const std::string& path, const SampleVisitor& visit);

}  // namespace loratrain
