#pragma once

#include <string>
#include <vector>

#include "config/command_line.h"

namespace loratrain {

/// What follows `loratrain bench`. Throws InputError on bad usage.
CommandLine parse_bench_line(const std::vector<std::string>& words);

}  // namespace loratrain
