#include "config/command_line.h"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "config/job_words.h"
#include "config/model_presets.h"

namespace loratrain {

namespace {

namespace po = boost::program_options;

using Words = std::vector<std::string>;

constexpr const char* see_help = "see loratrain --help";
constexpr const char* arguments_key = "argument";
constexpr int longest_random_sample = 4096;
constexpr int largest_bench_count = 1000000;
constexpr std::array<const char*, 3> general_options{"--help", "--keys", "--version"};

po::options_description train_options(CommandLine& line) {
    po::options_description options;
    auto add = options.add_options();
    add("set", po::value<Words>()->composing());
    add("dry-run", po::bool_switch(&line.dry_run));
    add("ranks", po::value<int>());
    add("device", po::value<std::string>());
    add("out", po::value(&line.output));
    add("restart", po::value<std::string>());
    add("stop-after", po::value<int>());
    add("max-hours", po::value<double>());
    return options;
}

po::options_description import_options(CommandLine& line) {
    po::options_description options;
    auto add = options.add_options();
    add("force", po::bool_switch(&line.force));
    add("dtype", po::value<std::string>());
    add("base-model-name", po::value(&line.base_model_name));
    add("quantize", po::value(&line.quantize));
    return options;
}

po::options_description status_options(CommandLine& line) {
    po::options_description options;
    options.add_options()("follow", po::bool_switch(&line.follow));
    return options;
}

po::options_description report_options(CommandLine& line) {
    po::options_description options;
    options.add_options()("out", po::value(&line.output));
    return options;
}

po::options_description base_options(CommandLine& line) {
    po::options_description options;
    options.add_options()("base", po::value(&line.base));
    return options;
}

po::options_description bench_options(CommandLine::Bench& bench) {
    po::options_description options;
    auto add = options.add_options();
    add("steps", po::value(&bench.steps));
    add("hidden", po::value(&bench.hidden));
    add("intermediate", po::value(&bench.intermediate));
    add("layers", po::value(&bench.layers));
    add("heads", po::value(&bench.heads));
    add("vocab", po::value(&bench.vocab));
    add("adapters", po::value(&bench.adapters));
    add("rank", po::value(&bench.rank));
    add("mixed-ranks", po::bool_switch(&bench.mixed_ranks));
    add("dora", po::bool_switch(&bench.dora));
    add("vera", po::bool_switch(&bench.vera));
    add("optim", po::value(&bench.optim));
    add("samples", po::value(&bench.samples));
    add("sample-tokens", po::value(&bench.sample_tokens));
    add("lengths", po::value(&bench.lengths));
    add("policy", po::value(&bench.policy));
    add("packing", po::value(&bench.packing));
    add("model", po::value(&bench.model));
    add("dropout", po::value(&bench.dropout));
    add("microbatch-tokens", po::value(&bench.microbatch_tokens));
    add("backend", po::value(&bench.backend));
    add("precision", po::value(&bench.precision));
    add("weights", po::value(&bench.weights));
    add("recompute", po::value(&bench.recompute));
    add("residency", po::value(&bench.residency));
    add("predict", po::bool_switch(&bench.predict));
    add("quick", po::bool_switch(&bench.quick));
    add("json", po::bool_switch(&bench.json));
    return options;
}

Words option_names(const po::options_description& options) {
    Words names;
    for (const auto& option : options.options()) names.push_back("--" + option->long_name());
    return names;
}

std::string owner_of(const std::string& option) {
    for (const CommandWords& command : command_words()) {
        const bool owns = std::any_of(command.options.begin(), command.options.end(),
                                      [&](const OptionWord& word) { return word.name == option; });
        if (!owns) continue;
        return command.word.empty() ? "loratrain JOB.yaml" : "loratrain " + command.word;
    }
    return "";
}

std::string unknown_option_hint(const std::string& option, Words known) {
    known.insert(known.end(), general_options.begin(), general_options.end());
    const std::string owner = owner_of(option);
    if (!owner.empty()) return "it is an option of: " + owner;
    const std::string near = nearest(option, known);
    return near.empty() ? see_help : "did you mean " + near + "?";
}

struct Parsed {
    po::variables_map values;
    Words arguments;
};

Parsed parse_words(const Words& words, const po::options_description& options) {
    po::options_description all;
    all.add(options);
    all.add_options()(arguments_key, po::value<Words>());
    po::positional_options_description positions;
    positions.add(arguments_key, -1);
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    Parsed parsed;
    try {
        const auto result =
            po::command_line_parser(words).options(all).positional(positions).style(style).run();
        po::store(result, parsed.values);
        po::notify(parsed.values);
    } catch (const po::unknown_option& error) {
        const std::string option = error.get_option_name();
        throw InputError(option, "unknown option",
                         unknown_option_hint(option, option_names(options)));
    } catch (const po::error_with_option_name& error) {
        throw InputError(error.get_option_name(), error.what(), see_help);
    } catch (const po::error& error) {
        throw InputError("command line", error.what(), see_help);
    }
    if (parsed.values.count(arguments_key) > 0) {
        parsed.arguments = parsed.values[arguments_key].as<Words>();
    }
    return parsed;
}

std::optional<int> read_count(const Parsed& parsed, const char* name, Problems& problems) {
    if (parsed.values.count(name) == 0) return std::nullopt;
    const int value = parsed.values[name].as<int>();
    if (value < 1) problems.add(cat("--", name), cat(value, " is out of range"), "give at least 1");
    return value;
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

/// A command that was probably meant by a first word that names no file of a usual form.
std::string meant_command(const std::string& word) {
    if (word.find_first_of("./") != std::string::npos) return "";
    Words known(general_options.begin(), general_options.end());
    for (const CommandWords& command : command_words()) {
        if (!command.word.empty()) known.push_back(command.word);
    }
    return nearest(word, known);
}

void read_job_path(const Words& arguments, CommandLine& line, Problems& problems) {
    if (arguments.empty() || arguments.front().empty()) {
        problems.add("command line",
                     arguments.empty() ? "no job file given" : "'' names no job file",
                     "write loratrain JOB.yaml, or see loratrain --help");
        return;
    }
    line.job_path = arguments.front();
    const std::string command = meant_command(line.job_path);
    if (!command.empty()) {
        problems.add("command line", "unknown command '" + line.job_path + "'",
                     "did you mean " + command + "? A job file of this name is ./" + line.job_path);
        return;
    }
    for (std::size_t i = 1; i < arguments.size(); ++i) {
        problems.add("command line", "unexpected argument '" + arguments[i] + "'",
                     arguments[i].find('=') != std::string::npos
                         ? "write --set before each KEY=VALUE"
                         : "give one job file");
    }
}

/// Options that only a dry run has.
void read_preview(const Parsed& parsed, CommandLine& line, Problems& problems) {
    line.ranks = read_count(parsed, "ranks", problems);
    if (parsed.values.count("device") > 0) {
        line.device = parsed.values["device"].as<std::string>();
        if (line.device.empty()) problems.add("--device", "'' names no device", see_help);
    }
    if (line.dry_run) return;
    if (line.ranks) {
        problems.add("--ranks", "only goes with --dry-run",
                     cat("to train on ", *line.ranks, " ranks: mpirun -np ", *line.ranks,
                         " loratrain ", line.job_path));
    }
    for (const char* option : {"device", "out"}) {
        if (parsed.values.count(option) == 0) continue;
        problems.add(cat("--", option), "only goes with --dry-run",
                     "training uses what is there and writes to run.dir");
    }
}

CommandLine parse_train(const Words& words) {
    CommandLine line;
    line.command = Command::train;
    const Parsed parsed = parse_words(words, train_options(line));
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

void check_word(const char* option, const std::string& word, const Words& known,
                Problems& problems) {
    if (std::find(known.begin(), known.end(), word) != known.end()) return;
    problems.add(option, "'" + word + "' is not known", "give one of: " + join(known, ", "));
}

CommandLine parse_import(const Words& words) {
    CommandLine line;
    line.command = Command::import_hf;
    const Parsed parsed = parse_words(words, import_options(line));
    Problems problems;
    if (parsed.arguments.size() == 2) {
        line.hf_dir = parsed.arguments[0];
        line.output = parsed.arguments[1];
    } else {
        problems.add("import-hf", cat("needs 2 arguments, got ", parsed.arguments.size()),
                     "write loratrain import-hf HF_DIR OUT.h5");
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

CommandLine parse_about_run(Command command, const Words& words) {
    CommandLine line;
    line.command = command;
    const bool report = command == Command::report;
    const Parsed parsed = parse_words(words, report ? report_options(line) : status_options(line));
    const std::size_t count = parsed.arguments.size();
    if (count == 0 || (count > 1 && !report)) {
        throw InputError(report ? "report" : "status", cat("needs 1 argument, got ", count),
                         report ? "write loratrain report RUN_DIR [RUN_DIR ...] [--out FILE]"
                                : "write loratrain status RUN_DIR [--follow]");
    }
    line.run_dir = parsed.arguments.front();
    line.other_runs.assign(parsed.arguments.begin() + 1, parsed.arguments.end());
    return line;
}

CommandLine parse_stop(const Words& words) {
    CommandLine line;
    line.command = Command::stop;
    const Parsed parsed = parse_words(words, po::options_description());
    if (parsed.arguments.size() != 2) {
        throw InputError("stop", cat("needs 2 arguments, got ", parsed.arguments.size()),
                         "write loratrain stop RUN_DIR ADAPTER");
    }
    line.run_dir = parsed.arguments[0];
    line.adapter = parsed.arguments[1];
    return line;
}

CommandLine parse_check_export(const Words& words) {
    CommandLine line;
    line.command = Command::check_export;
    const Parsed parsed = parse_words(words, base_options(line));
    constexpr const char* usage = "write loratrain check-export ADAPTER_DIR --base BASE.h5";
    if (parsed.arguments.size() != 1) {
        throw InputError("check-export", cat("needs 1 argument, got ", parsed.arguments.size()),
                         usage);
    }
    if (line.base.empty()) throw InputError("--base", "is missing", usage);
    line.run_dir = parsed.arguments.front();
    return line;
}

CommandLine parse_merge(const Words& words) {
    CommandLine line;
    line.command = Command::merge;
    const Parsed parsed = parse_words(words, base_options(line));
    constexpr const char* usage = "write loratrain merge ADAPTER_DIR OUT_DIR --base BASE.h5";
    if (parsed.arguments.size() != 2) {
        throw InputError("merge", cat("needs 2 arguments, got ", parsed.arguments.size()), usage);
    }
    if (line.base.empty()) throw InputError("--base", "is missing", usage);
    line.run_dir = parsed.arguments[0];
    line.output = parsed.arguments[1];
    return line;
}

CommandLine parse_selftest(const Words& words) {
    CommandLine line;
    line.command = Command::selftest;
    const Parsed parsed = parse_words(words, po::options_description());
    if (!parsed.arguments.empty()) {
        throw InputError("selftest", "unexpected argument '" + parsed.arguments.front() + "'",
                         "write loratrain selftest");
    }
    return line;
}

void check_bench(const CommandLine::Bench& bench, Problems& problems) {
    const std::array<std::pair<const char*, int>, 10> counts{{
        {"--steps", bench.steps},
        {"--hidden", bench.hidden},
        {"--intermediate", bench.intermediate},
        {"--layers", bench.layers},
        {"--heads", bench.heads},
        {"--vocab", bench.vocab},
        {"--adapters", bench.adapters},
        {"--rank", bench.rank},
        {"--samples", bench.samples},
        {"--sample-tokens", bench.sample_tokens},
    }};
    for (const auto& [option, value] : counts) {
        if (value >= 1 && value <= largest_bench_count) continue;
        problems.add(option, cat(value, " is out of range"),
                     cat("give at least 1 and at most ", largest_bench_count));
    }
    if (!(bench.dropout >= 0.0 && bench.dropout <= largest_dropout)) {
        problems.add("--dropout", cat(bench.dropout, " is out of range"),
                     cat("give at least 0 and at most ", largest_dropout));
    }
    if (bench.microbatch_tokens < 0) {
        problems.add("--microbatch-tokens", cat(bench.microbatch_tokens, " is out of range"),
                     "give at least 1, or leave the option out");
    }
    if (bench.dora && bench.vera) {
        problems.add("--vera", "does not go with --dora", "give one of the two");
    }
    check_word("--optim", bench.optim, word_texts(optim_words), problems);
    check_word("--backend", bench.backend, {"cpu", "cuda"}, problems);
    check_word("--precision", bench.precision, {"auto", "fp32", "bf16", "fp8"}, problems);
    if (!bench.weights.empty()) {
        check_word("--weights", bench.weights, word_texts(quantize_words), problems);
    }
    for (const auto& [option, size] :
         {std::pair{"--hidden", bench.hidden}, std::pair{"--intermediate", bench.intermediate}}) {
        const bool whole_blocks = size % traits_of(WeightFormat::nf4).block == 0;
        if (bench.weights != "nf4" || !bench.model.empty() || whole_blocks) continue;
        problems.add(option, cat(size, " is no multiple of 64, as --weights nf4 needs"),
                     "give a multiple of 64, or --weights int8");
    }
    check_word("--recompute", bench.recompute, {"auto", "none", "layer"}, problems);
    if (!residency_of(bench.residency)) {
        problems.add("--residency", "'" + bench.residency + "' is not known",
                     "give auto, all, stream, or the layers that stay, as in 60");
    }
    check_word("--lengths", bench.lengths, {"fixed", "xsum", "cnn", "wikisum", "mix"}, problems);
    check_word("--policy", bench.policy, word_texts(schedule_policy_words), problems);
    check_word("--packing", bench.packing, word_texts(packing_words), problems);
    if (!bench.model.empty()) check_word("--model", bench.model, model_preset_names(), problems);
    if (problems.empty() && bench.hidden % (2 * bench.heads) != 0) {
        problems.add("--heads", cat(bench.heads, " does not fit --hidden ", bench.hidden),
                     "hidden / heads must be an even whole number");
    }
}

CommandLine parse_bench(const Words& words) {
    CommandLine line;
    line.command = Command::bench;
    const Parsed parsed = parse_words(words, bench_options(line.bench));
    Problems problems;
    for (const std::string& argument : parsed.arguments) {
        problems.add("bench", "unexpected argument '" + argument + "'", see_help);
    }
    if (line.bench.lengths != "fixed" && parsed.values.count("sample-tokens") == 0) {
        line.bench.sample_tokens = longest_random_sample;
    }
    check_bench(line.bench, problems);
    problems.throw_if_any();
    return line;
}

bool has_word(const Words& words, const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

std::vector<CommandWords> command_words() {
    CommandLine line;
    const auto words_of = [](const char* word, const po::options_description& options) {
        CommandWords command{word, {}};
        for (const auto& option : options.options()) {
            command.options.push_back(
                {"--" + option->long_name(), option->semantic()->max_tokens() > 0});
        }
        return command;
    };
    std::vector<CommandWords> all{
        words_of("status", status_options(line)),
        words_of("report", report_options(line)),
        words_of("", train_options(line)),
        words_of("import-hf", import_options(line)),
        words_of("check-export", base_options(line)),
        words_of("merge", base_options(line)),
        words_of("bench", bench_options(line.bench)),
        words_of("stop", po::options_description()),
        words_of("selftest", po::options_description()),
    };
    const auto no_command = std::find_if(
        all.begin(), all.end(), [](const CommandWords& command) { return command.word.empty(); });
    for (const char* option : general_options) no_command->options.push_back({option, false});
    return all;
}

CommandLine parse_command_line(int argc, const char* const* argv) {
    const Words words(argv + std::min(argc, 1), argv + argc);
    CommandLine line;
    if (has_word(words, "--help") || has_word(words, "-h")) {
        line.command = Command::help;
        return line;
    }
    if (has_word(words, "--keys")) {
        line.command = Command::keys;
        return line;
    }
    if (has_word(words, "--version")) {
        line.command = Command::version;
        return line;
    }
    const std::string command = words.empty() ? "" : words.front();
    if (command == "import-hf") return parse_import({words.begin() + 1, words.end()});
    if (command == "bench") return parse_bench({words.begin() + 1, words.end()});
    if (command == "status")
        return parse_about_run(Command::status, {words.begin() + 1, words.end()});
    if (command == "report")
        return parse_about_run(Command::report, {words.begin() + 1, words.end()});
    if (command == "stop") return parse_stop({words.begin() + 1, words.end()});
    if (command == "check-export") return parse_check_export({words.begin() + 1, words.end()});
    if (command == "merge") return parse_merge({words.begin() + 1, words.end()});
    if (command == "selftest") return parse_selftest({words.begin() + 1, words.end()});
    line = parse_train(words);
    line.arguments = words;
    return line;
}

}  // namespace loratrain
