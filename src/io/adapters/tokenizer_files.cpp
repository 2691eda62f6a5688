#include "io/adapters/tokenizer_files.h"

#include <exception>
#include <filesystem>

#include "base/log.h"
#include "base/text.h"
#include "io/files.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* names[] = {"tokenizer.json",
                                 "tokenizer_config.json",
                                 "special_tokens_map.json",
                                 "added_tokens.json",
                                 "vocab.json",
                                 "merges.txt",
                                 "tokenizer.model",
                                 "chat_template.jinja",
                                 "chat_template.json"};

}  // namespace

void copy_tokenizer_files(const std::string& base, const std::string& dir) {
    for (const char* name : names) {
        std::error_code unreadable;
        const fs::path source = fs::path(base) / name;
        if (!fs::is_regular_file(source, unreadable)) continue;
        try {
            write_file_atomic((fs::path(dir) / name).string(),
                              [&](const std::string& path) { fs::copy_file(source, path); });
        } catch (const std::exception& error) {
            log::warn(cat("could not copy ", source.string(), ": ", error.what()));
        }
    }
}

}  // namespace loratrain
