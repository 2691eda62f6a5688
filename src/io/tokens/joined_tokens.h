#pragma once

#include <memory>
#include <vector>

#include "io/tokens/token_file.h"

namespace loratrain {

/// Files of one kind (group_samples, is_labelled) as one: the samples of each behind those of the
/// one before. Of one file that file.
std::unique_ptr<TokenFile> join_token_files(std::vector<std::unique_ptr<TokenFile>> files);

}  // namespace loratrain
