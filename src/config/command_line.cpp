#include "config/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "config/command_options.h"
#include "config/job_words.h"

namespace loratrain {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using namespace command_options;

namespace {

std::optional<int> read_count(const Parsed& parsed, const char* name, Problems& problems) {
    if (parsed.values.count(name) == 0) return std::nullopt;
    const int value = parsed.values[name].as<int>();
    if (value < 1) problems.add(cat("--", name), cat(value, " is out of range"), "give at least 1");
    return value;
}

void read_ranks(const Parsed& parsed, CommandLine& line, Problems& problems) {
    if (parsed.values.count("ranks") == 0) return;
    const auto& text = parsed.values["ranks"].as<std::string>();
    std::string_view left = text;
    for (bool more = true; more;) {
        const std::size_t comma = left.find(',');
        const std::string_view word = left.substr(0, comma);
        int number = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
        if (error != std::errc() || end != word.data() + word.size() || number < 1) {
            problems.add("--ranks", cat("'", text, "' is not a number of ranks"),
                         "give at least 1, or several as in 1,2,4,8 to compare them");
            return;
        }
        line.ranks.push_back(number);
        more = comma != std::string_view::npos;
        if (more) left.remove_prefix(comma + 1);
    }
}

void read_overrides(const Parsed& parsed, CommandLine& line, Problems& problems) {
    if (parsed.values.count("set") == 0) return;
    for (const std::string& word : parsed.values["set"].as<Words>()) {
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos || equals == 0) {
            problems.add("--set", "'" + word + "' is not KEY=VALUE",
                         "write for example --set defaults.learning_rate=1e-4");
        } else {
            line.overrides.push_back({word.substr(0, equals), word.substr(equals + 1)});
        }
    }
}

void read_restart(const Parsed& parsed, CommandLine& line, Problems& problems) {
    if (parsed.values.count("restart") == 0) return;
    const auto& word = parsed.values["restart"].as<std::string>();
    if (word.empty()) {
        problems.add("--restart", "'' names no checkpoint", "give auto, never or a path");
    } else if (word == "never") {
        line.restart = Restart::never;
    } else if (word != "auto") {
        line.restart = Restart::from_path;
        line.restart_path = word;
    }
}

void read_max_hours(const Parsed& parsed, CommandLine& line, Problems& problems) {
    if (parsed.values.count("max-hours") == 0) return;
    const auto hours = parsed.values["max-hours"].as<double>();
    if (std::isfinite(hours) && hours > 0) {
        line.overrides.push_back({"run.max_hours", format_exact(hours)});
    } else {
        problems.add("--max-hours", cat(hours, " is out of range"),
                     "give hours above 0, as in 7.5");
    }
}

constexpr const char* command_line_name = "command line";  ///< in messages

/// What others call training; no command here.
constexpr const char* train_word = "train";

/// A first word without a suffix is probably a command: where one is near, or where no file has
/// this name, a problem says so.
std::optional<Problem> unknown_command(const std::string& word) {
    if (word.find_first_of("./") != std::string::npos) return std::nullopt;
    Words commands;
    for (const CommandWords& command : command_words()) {
        if (!command.word.empty()) commands.push_back(command.word);
    }
    Words known = commands;
    known.insert(known.end(), general_options.begin(), general_options.end());
    known.emplace_back(train_word);
    const std::string meant = nearest(word, known);
    const std::string what = cat("unknown command '", word, "'");
    const std::string as_file = cat("A job file of this name is ./", word);
    std::error_code unknown;
    const bool is_file = fs::is_regular_file(word, unknown);
    if (meant == train_word) {
        if (is_file) return std::nullopt;
        return Problem{command_line_name, what,
                       cat("to train, write loratrain JOB.yaml. ", as_file)};
    }
    if (!meant.empty()) {
        return Problem{command_line_name, what, cat("did you mean ", meant, "? ", as_file)};
    }
    if (is_file) return std::nullopt;
    return Problem{command_line_name, cat(what, ", and no file has this name"),
                   cat("to train, write loratrain JOB.yaml; or one of: ", join(commands, ", "))};
}

void read_job_path(const Words& arguments, CommandLine& line, Problems& problems) {
    if (arguments.empty() || arguments.front().empty()) {
        problems.add(command_line_name,
                     arguments.empty() ? "no job file given" : "'' names no job file",
                     "write loratrain JOB.yaml, or see loratrain --help");
        return;
    }
    line.job_path = arguments.front();
    if (const auto problem = unknown_command(line.job_path)) {
        problems.add(problem->where, problem->what, problem->hint);
        return;
    }
    for (std::size_t i = 1; i < arguments.size(); ++i) {
        problems.add(command_line_name, "unexpected argument '" + arguments[i] + "'",
                     arguments[i].find('=') != std::string::npos
                         ? "write --set before each KEY=VALUE"
                         : "give one job file");
    }
}

/// Options that only a dry run has.
void read_preview(const Parsed& parsed, CommandLine& line, Problems& problems) {
    read_ranks(parsed, line, problems);
    line.ranks_per_node = read_count(parsed, "ranks-per-node", problems);
    if (parsed.values.count("device") > 0) {
        line.device = parsed.values["device"].as<std::string>();
        if (line.device.empty()) problems.add("--device", "'' names no device", see_help);
    }
    if (line.dry_run) {
        if (line.ranks.size() > 1 && (line.compare || !line.output.empty())) {
            problems.add(line.compare ? "--compare" : "--out", "goes with one number of --ranks",
                         "leave it out for a table of several");
        }
        return;
    }
    if (parsed.values.count("ranks") > 0) {
        const auto& ranks = parsed.values["ranks"].as<std::string>();
        problems.add(
            "--ranks", "only goes with --dry-run",
            cat("to train on ", ranks, " ranks: mpirun -np ", ranks, " loratrain ", line.job_path));
    }
    if (line.compare) {
        problems.add("--compare", "only goes with --dry-run",
                     "leave it out: training uses schedule and parallel as the job has them");
    }
    if (line.verbose) {
        problems.add("--verbose", "only goes with --dry-run",
                     "leave it out: training logs its plan anyway");
    }
    for (const char* option : {"ranks-per-node", "device", "out"}) {
        if (parsed.values.count(option) == 0) continue;
        problems.add(cat("--", option), "only goes with --dry-run",
                     "leave it out: training uses the GPUs and hosts that there are, and writes to "
                     "run.dir");
    }
}

/// What may follow `loratrain`.
struct CommandRow {
    const char* word;  ///< "" = a job file
    Command command;
    po::options_description (*options)(CommandLine& line);
    CommandLine (*parse)(const CommandRow& row, const Words& words);
    /// Of parse_folders: what to write, a second argument beside run_dir, and whether it takes
    /// --base.
    const char* usage = "";
    std::string CommandLine::*second = nullptr;
    bool needs_base = false;
};

CommandLine parse_train(const CommandRow& row, const Words& words) {
    CommandLine line;
    line.arguments = words;
    const Parsed parsed = parse_words(words, row.options(line));
    Problems problems;
    read_job_path(parsed.arguments, line, problems);
    read_overrides(parsed, line, problems);
    read_restart(parsed, line, problems);
    read_max_hours(parsed, line, problems);
    line.stop_after = read_count(parsed, "stop-after", problems);
    read_preview(parsed, line, problems);
    problems.throw_if_any();
    return line;
}

CommandLine parse_import(const CommandRow& row, const Words& words) {
    CommandLine line;
    line.command = row.command;
    const Parsed parsed = parse_words(words, row.options(line));
    Problems problems;
    check_arguments("import-hf", parsed.arguments, 2, "write loratrain import-hf HF_DIR OUT.h5",
                    problems);
    if (problems.empty()) {
        line.hf_dir = parsed.arguments[0];
        line.output = parsed.arguments[1];
    }
    if (parsed.values.count("base-model-name") > 0 && line.base_model_name.empty()) {
        problems.add("--base-model-name", "'' names no model",
                     "give a hub name, as in meta-llama/Llama-3.2-1B, or a folder");
    }
    if (parsed.values.count("quantize") > 0) {
        check_word("--quantize", line.quantize, word_texts(quantize_words), problems);
    }
    if (parsed.values.count("dtype") > 0) {
        const auto& dtype = parsed.values["dtype"].as<std::string>();
        line.store_bf16 = dtype == "bf16";
        if (!line.store_bf16) {
            problems.add(
                "--dtype", "'" + dtype + "' is not known here",
                "give bf16, or leave the option out: fp32 and bf16 stay, fp16 becomes fp32");
        }
    }
    problems.throw_if_any();
    return line;
}

/// A command about one folder, or about several.
CommandLine parse_folders(const CommandRow& row, const Words& words) {
    CommandLine line;
    line.command = row.command;
    const Parsed parsed = parse_words(words, row.options(line));
    const std::string usage = cat("write loratrain ", row.word, " ", row.usage);
    const Words& folders = parsed.arguments;
    if (row.command != Command::report || folders.empty()) {
        Problems problems;
        check_arguments(row.word, folders, row.second != nullptr ? 2 : 1, usage.c_str(), problems);
        problems.throw_if_any();
    }
    if (row.needs_base && line.base.empty()) throw InputError("--base", "is missing", usage);
    if (parsed.values.count("quantize") > 0) {
        Problems problems;
        check_word("--quantize", line.quantize, word_texts(merged_form_words), problems);
        problems.throw_if_any();
    }
    line.run_dir = folders.front();
    if (row.second != nullptr) {
        line.*row.second = folders.back();
    } else {
        line.other_runs.assign(folders.begin() + 1, folders.end());
    }
    return line;
}

CommandLine parse_bench(const CommandRow& /*row*/, const Words& words) {
    return parse_bench_line(words);
}

CommandLine parse_selftest(const CommandRow& row, const Words& words) {
    CommandLine line;
    line.command = row.command;
    const Parsed parsed = parse_words(words, row.options(line));
    if (parsed.arguments.empty()) return line;
    throw InputError("selftest", "unexpected argument '" + parsed.arguments.front() + "'",
                     "write loratrain selftest");
}

po::options_description no_options(CommandLine& /*line*/) {
    return po::options_description();
}

constexpr CommandRow train_row{"", Command::train, train_options, parse_train};
constexpr CommandRow command_rows[] = {
    {"status", Command::status, status_options, parse_folders, "RUN_DIR [--follow]"},
    {"report", Command::report, report_options, parse_folders,
     "RUN_DIR [RUN_DIR ...] [--out FILE]"},
    train_row,
    {"import-hf", Command::import_hf, import_options, parse_import},
    {"check-export", Command::check_export, base_options, parse_folders,
     "ADAPTER_DIR --base BASE.h5", nullptr, true},
    {"merge", Command::merge, merge_options, parse_folders,
     "ADAPTER_DIR OUT_DIR --base BASE.h5 [--quantize nf4|int8|fp8|mxfp4]", &CommandLine::output,
     true},
    {"bench", Command::bench, bench_options, parse_bench},
    {"stop", Command::stop, no_options, parse_folders, "RUN_DIR ADAPTER", &CommandLine::adapter},
    {"selftest", Command::selftest, no_options, parse_selftest},
};

CommandLine parse_keys(const Words& words) {
    CommandLine line;
    line.command = Command::keys;
    po::options_description options;
    options.add_options()("keys", po::bool_switch())("markdown", po::bool_switch(&line.markdown));
    const Parsed parsed = parse_words(words, options);
    if (parsed.arguments.size() > 1) {
        throw InputError("--keys", "unexpected argument '" + parsed.arguments[1] + "'",
                         "give one part of a name, as in loratrain --keys lr");
    }
    if (!parsed.arguments.empty()) line.keys = parsed.arguments.front();
    return line;
}

/// Of `loratrain` without a command: it asks for a text.
constexpr std::pair<const char*, Command> texts[] = {
    {"--help", Command::help},
    {"-h", Command::help},
    {"--keys", Command::keys},
    {"--version", Command::version},
};

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
    const Words words(argv + std::min(argc, 1), argv + argc);
    for (const auto& [word, command] : texts) {
        if (std::find(words.begin(), words.end(), word) == words.end()) continue;
        if (command == Command::keys) return parse_keys(words);
        CommandLine line;
        line.command = command;
        return line;
    }
    const std::string first = words.empty() ? "" : words.front();
    const auto* const row = std::ranges::find_if(
        command_rows, [&](const CommandRow& each) { return !first.empty() && first == each.word; });
    if (row == std::end(command_rows)) return train_row.parse(train_row, words);
    return row->parse(*row, {words.begin() + 1, words.end()});
}

std::vector<CommandWords> command_words() {
    std::vector<CommandWords> all;
    for (const CommandRow& row : command_rows) {
        CommandLine line;
        const po::options_description options = row.options(line);
        CommandWords& command = all.emplace_back(CommandWords{row.word, {}});
        for (const auto& option : options.options()) {
            command.options.push_back(
                {"--" + option->long_name(), option->semantic()->max_tokens() > 0});
        }
        if (!command.word.empty()) continue;
        for (const char* option : general_options) command.options.push_back({option, false});
    }
    return all;
}

}  // namespace loratrain
