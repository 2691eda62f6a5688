#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace loratrain {

/// The log: one line per event, "HH:MM:SS text", to standard output and, once opened, to a log
/// file. Only the root rank prints info lines; warnings and errors of other ranks carry their rank.
/// Control characters are made visible (printable()), since texts may come from anybody's files.
namespace log {

void set_rank(int rank);
bool is_root();
/// Appends all further lines to `path` too (root rank only). Throws Error if it is not writable.
void open_file(const std::string& path);
void info(std::string_view text);
/// Sets where info lines of ranks other than the root go from now on; {} = nowhere, the default.
/// May be called from any thread.
void forward_info(std::function<void(std::string)> take);
/// An info line that goes to the file alone while a live table shows the same.
void progress(std::string_view text);
void warn(std::string_view text);
/// Ends the live table.
void error(std::string_view text);
/// Writes lines without the time: tables and listings that a person reads as a block.
void block(std::string_view text);

/// While one lives, this process writes to the log file alone, not to the terminal or a pipe.
class Silence {
  public:
    Silence();
    ~Silence();
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;
};

/// A live table: lines at the foot of the terminal, redrawn in place, while the log scrolls above
/// them. The table is never written to the file. start_live() returns false if standard output is
/// no terminal (terminal.h) or this is not the root rank; then the other three do nothing.
bool start_live();
/// Lines that have room now; 0 without a live table.
std::size_t live_rows();
void show_live(std::vector<std::string> lines);
/// Leaves the last table on the screen.
void end_live();

}  // namespace log

/// Runs `work`, whose failure is no reason to end a run: an exception becomes a warning, `what`
/// followed by the exception's text.
void warn_at_failure(const std::function<void()>& work, std::string_view what = "");

}  // namespace loratrain
