#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace loratrain {

/// One line per event, "HH:MM:SS text", to standard output and, once opened, to a log file.
/// Only the root rank prints info lines; warnings and errors of other ranks carry their rank.
namespace log {

void set_rank(int rank);
/// Appends everything from now on to `path` too (root rank only); throws Error if not writable.
void open_file(const std::string& path);
void info(std::string_view text);
void warn(std::string_view text);
void error(std::string_view text);
/// Without the time: tables and listings that a person reads as a block.
void block(std::string_view text);

}  // namespace log
}  // namespace loratrain
