#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "base/text.h"

namespace loratrain {

/// Where a line of results/*.jsonl comes from, as JSON members, of the arguments COMMIT DEVICE
/// DATE; none, and a word on stderr, where they are not given. `more`: the name of one that may
/// follow.
inline std::optional<std::string> result_origin(int argc, char** argv,
                                                const std::string& more = "") {
    if (argc < 4 || argc > (more.empty() ? 4 : 5)) {
        const std::string program = std::filesystem::path(argv[0]).filename();
        std::fprintf(stderr, "usage: %s COMMIT DEVICE DATE%s\n", program.c_str(), more.c_str());
        return std::nullopt;
    }
    return cat(R"("commit": ")", argv[1], R"(", "device": ")", argv[2], R"(", "date": ")", argv[3],
               "\"");
}

}  // namespace loratrain
