#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace loratrain {

/// One line per event, "HH:MM:SS text", to standard output and, once opened, to a log file.
/// Only the root rank prints info lines; warnings and errors of other ranks carry their rank.
/// Control characters are made visible (base/printable.h): texts may come from anybody's files.
namespace log {

void set_rank(int rank);
bool is_root();
/// Appends everything from now on to `path` too (root rank only); throws Error if not writable.
void open_file(const std::string& path);
void info(std::string_view text);
/// Where info lines of a rank other than the root go from now on; {} = nowhere, as at first. May be
/// called from any thread.
void forward_info(std::function<void(std::string)> take);
/// An info line that a live table on the terminal replaces: then it goes to the file alone.
void progress(std::string_view text);
void warn(std::string_view text);
/// Ends the live table.
void error(std::string_view text);
/// Without the time: tables and listings that a person reads as a block.
void block(std::string_view text);

/// While one lives nothing of this process goes to the terminal or a pipe, only to the log file.
class Silence {
  public:
    Silence();
    ~Silence();
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;
};

/// A live table: lines at the foot of the terminal, drawn anew in place; what is logged scrolls by
/// above them. Never written to the file. False when standard output is no terminal
/// (base/terminal.h) or this is not the root rank; then the next three do nothing.
bool start_live();
/// Lines that have room now; 0 without a live table.
std::size_t live_rows();
void show_live(std::vector<std::string> lines);
/// Leaves the last table on the screen.
void end_live();

}  // namespace log
}  // namespace loratrain
