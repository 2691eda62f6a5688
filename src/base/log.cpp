#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <exception>
#include <iostream>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/plain_file.h"
#include "base/system.h"
#include "base/terminal.h"

namespace loratrain::log {

namespace {

struct State {
    int rank = 0;
    int file = -1;
    std::mutex writing;                        ///< the watchdog writes too
    std::function<void(std::string)> forward;  ///< of info lines of other ranks than the root
    int silences = 0;

    std::unique_ptr<Terminal> terminal;  ///< while there is a live table
    bool shows_errors = false;           ///< standard error leads to it as well
    LiveRegion region;
    std::vector<std::string> lines;

    /// In the file; a full disk may have room again.
    void keep(const std::string& line) const {
        if (file < 0) return;
        const std::string text = line + '\n';
        static_cast<void>(::write(file, text.data(), text.size()) < 0);
    }
    /// In the background other programs write to the terminal.
    bool is_live() {
        if (!terminal) return false;
        const bool live = terminal->in_foreground();
        if (!live) region.leave();
        return live;
    }
};

State& state() {
    static State instance;
    return instance;
}

std::string clock_text() {
    return local_time(unix_time(), "%H:%M:%S");
}

/// All of a live table's terminal goes through standard output, to keep the order.
void write(std::ostream& stream, const std::string& text) {
    const std::string line = printable(text);
    State& all = state();
    const std::lock_guard lock(all.writing);
    all.keep(line);
    if (all.silences > 0) return;
    if (all.is_live() && (&stream == &std::cout || all.shows_errors)) {
        std::cout << all.region.draw(line + '\n', all.lines, all.terminal->size()) << std::flush;
    } else {
        stream << line << std::endl;
    }
}

std::string info_line(std::string_view text) {
    return cat(clock_text(), " ", text);
}

std::string rank_prefix() {
    return state().rank == 0 ? "" : cat("rank ", state().rank, ": ");
}

}  // namespace

Silence::Silence() {
    const std::lock_guard lock(state().writing);
    ++state().silences;
}

Silence::~Silence() {
    const std::lock_guard lock(state().writing);
    --state().silences;
}

void set_rank(int rank) {
    state().rank = rank;
}

bool is_root() {
    return state().rank == 0;
}

void open_file(const std::string& path) {
    State& all = state();
    if (all.rank != 0) return;
    const std::lock_guard lock(all.writing);
    const int file = open_plain_file(path, O_WRONLY | O_CREAT | O_APPEND);
    if (file < 0) throw Error(path + ": cannot open the log file for writing");
    if (all.file >= 0) ::close(all.file);
    all.file = file;
}

void info(std::string_view text) {
    State& all = state();
    if (all.rank == 0) return write(std::cout, info_line(text));
    const std::lock_guard lock(all.writing);
    if (all.forward) all.forward(std::string(text));
}

void forward_info(std::function<void(std::string)> take) {
    State& all = state();
    const std::lock_guard lock(all.writing);
    all.forward = std::move(take);
}

void progress(std::string_view text) {
    State& all = state();
    if (all.rank == 0) {
        const std::lock_guard lock(all.writing);
        if (all.is_live()) {
            all.keep(printable(info_line(text)));
            return;
        }
    }
    info(text);
}

void warn(std::string_view text) {
    write(std::cerr, cat(clock_text(), " warning: ", rank_prefix(), text));
}

void error(std::string_view text) {
    end_live();
    write(std::cerr, cat("error: ", rank_prefix(), text));
}

void block(std::string_view text) {
    if (state().rank == 0) write(std::cout, std::string(text));
}

bool start_live() {
    State& all = state();
    if (all.rank != 0) return false;
    const std::lock_guard lock(all.writing);
    all.terminal = Terminal::of_output();
    all.shows_errors = all.terminal && all.terminal->shows_errors();
    return all.terminal != nullptr;
}

std::size_t live_rows() {
    State& all = state();
    const std::lock_guard lock(all.writing);
    return all.terminal ? static_cast<std::size_t>(all.terminal->size().rows - 1) : 0;
}

void show_live(std::vector<std::string> lines) {
    State& all = state();
    const std::lock_guard lock(all.writing);
    if (!all.is_live()) return;
    all.lines = std::move(lines);
    std::cout << all.region.draw("", all.lines, all.terminal->size()) << std::flush;
}

void end_live() {
    State& all = state();
    const std::lock_guard lock(all.writing);
    all.terminal.reset();
    all.region.leave();
    all.lines.clear();
}

}  // namespace loratrain::log

namespace loratrain {

void warn_at_failure(const std::function<void()>& work, std::string_view what) {
    try {
        work();
    } catch (const std::exception& error) {
        log::warn(cat(what, error.what()));
    }
}

}  // namespace loratrain
