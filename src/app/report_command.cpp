#include "app/commands.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/system.h"
#include "base/text.h"
#include "comm/collective.h"
#include "io/files.h"
#include "report/merge_runs.h"
#include "report/report_page.h"

namespace loratrain {

namespace {

constexpr std::chrono::milliseconds between_looks{500};

struct Sight {
    std::optional<RunStatus> status;
    Pulse pulse;

    bool over() const {
        return status && (pulse.life == Life::ended || pulse.life == Life::vanished);
    }
};

Sight look_at(const std::string& dir) {
    Sight sight;
    sight.status = read_status(dir);
    if (sight.status) sight.pulse = pulse_now(*sight.status);
    return sight;
}

std::string text_of(const std::string& dir, const Sight& sight) {
    if (!sight.status) return dir + ": starting, no heartbeat yet";
    return status_text(dir, *sight.status, sight.pulse);
}

void show(const std::string& dir, const Sight& sight) {
    const std::size_t rows = log::live_rows();
    log::show_live(sight.status ? status_lines(dir, *sight.status, sight.pulse, rows)
                                : std::vector{text_of(dir, sight)});
}

/// The text without what changes with time alone: equal for two sights of one state.
std::string without_time(Sight sight) {
    sight.pulse.age = 0.0;
    if (!sight.status) return "";
    RunStatus& status = *sight.status;
    status.elapsed_seconds = status.tokens_per_second = 0.0;
    status.seconds_left.reset();
    return text_of("", sight);
}

void follow(const std::string& dir) {
    const bool live = log::start_live();
    std::optional<std::string> known;
    for (Sight sight = look_at(dir);; sight = look_at(dir)) {
        if (live) {
            show(dir, sight);
        } else if (std::string state = without_time(sight); state != known) {
            known = std::move(state);
            log::block(text_of(dir, sight));
        }
        if (sight.over()) break;
        std::this_thread::sleep_for(between_looks);
    }
    log::end_live();
}

std::string place_of_page(const CommandLine& command_line, const std::string& usual) {
    std::string out = command_line.output.empty() ? usual : command_line.output;
    check_place_of_file(out);
    return out;
}

void write_page(const std::string& out, const std::string& page) {
    write_text_atomic(out, page);
    log::info("wrote " + out);
}

void compare_runs(const CommandLine& command_line) {
    std::vector<RunRecord> runs{read_runs(command_line.run_dir)};
    for (const std::string& dir : command_line.other_runs) runs.push_back(read_runs(dir));
    if (runs.size() > most_compared_runs) {
        throw InputError("report",
                         cat("compares at most ", most_compared_runs, " runs, got ", runs.size()),
                         "give fewer run directories");
    }
    const std::string out = place_of_page(command_line, "comparison.html");
    write_page(out, comparison_page(runs, unix_time()));
}

void report_run(const CommandLine& command_line) {
    const RunRecord run = read_runs(command_line.run_dir);
    const std::string out = place_of_page(command_line, command_line.run_dir + "/report.html");
    if (!run.parts.empty()) {
        log::info(cat("merged ", run.parts.size(), " runs: ", join(run.parts, ", ")));
        write_merged(run);
    } else if (run.status && run.pulse.life == Life::vanished) {
        write_results(run);  // they still say RUNNING
    }
    write_page(out, report_page(run, unix_time()));
}

}  // namespace

ExitCode status_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        const std::string& dir = command_line.run_dir;
        if (command_line.follow) return follow(dir);
        log::block(text_of(dir, look_at(dir)));
    });
    return ExitCode::done;
}

ExitCode report_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        if (command_line.other_runs.empty()) {
            report_run(command_line);
        } else {
            compare_runs(command_line);
        }
    });
    return ExitCode::done;
}

}  // namespace loratrain
