#include "base/log.h"

#include <fstream>
#include <iostream>
#include <mutex>

#include "base/error.h"
#include "base/system.h"

namespace loratrain::log {

namespace {

struct State {
    int rank = 0;
    std::ofstream file;
    std::mutex writing;  ///< the watchdog writes too
};

State& state() {
    static State instance;
    return instance;
}

std::string clock_text() {
    return local_time(unix_time(), "%H:%M:%S");
}

void write(std::ostream& stream, const std::string& line) {
    const std::lock_guard lock(state().writing);
    stream << line << std::endl;
    if (state().file.is_open()) state().file << line << std::endl;
}

std::string rank_prefix() {
    return state().rank == 0 ? "" : cat("rank ", state().rank, ": ");
}

}  // namespace

void set_rank(int rank) {
    state().rank = rank;
}

void open_file(const std::string& path) {
    if (state().rank != 0) return;
    state().file.close();
    state().file.clear();
    state().file.open(path, std::ios::app);
    if (!state().file) throw Error(path + ": cannot open the log file for writing");
}

void info(std::string_view text) {
    if (state().rank == 0) write(std::cout, cat(clock_text(), " ", text));
}

void warn(std::string_view text) {
    write(std::cerr, cat(clock_text(), " warning: ", rank_prefix(), text));
}

void error(std::string_view text) {
    write(std::cerr, cat("error: ", rank_prefix(), text));
}

void block(std::string_view text) {
    if (state().rank == 0) write(std::cout, std::string(text));
}

}  // namespace loratrain::log
