#pragma once

#include <string>

#include "config/job.h"

namespace loratrain {

/// "q_proj v_proj", or "all-linear".
std::string targets_text(const AdapterJob& adapter);

}  // namespace loratrain
