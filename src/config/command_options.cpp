#include "config/command_options.h"

#include <algorithm>

namespace loratrain {

namespace po = boost::program_options;

namespace command_options {

namespace {

constexpr const char* arguments_key = "argument";

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

}  // namespace

po::options_description train_options(CommandLine& line) {
    po::options_description options;
    auto add = options.add_options();
    add("set", po::value<Words>()->composing());
    add("dry-run", po::bool_switch(&line.dry_run));
    add("verbose", po::bool_switch(&line.verbose));
    add("compare", po::bool_switch(&line.compare));
    add("ranks", po::value<std::string>());
    add("ranks-per-node", po::value<int>());
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

po::options_description merge_options(CommandLine& line) {
    po::options_description options = base_options(line);
    options.add_options()("quantize", po::value(&line.quantize));
    return options;
}

po::options_description bench_options(CommandLine& line) {
    CommandLine::Bench& bench = line.bench;
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
    add("target-experts", po::bool_switch(&bench.target_experts));
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
    add("offload", po::value(&bench.offload));
    add("predict", po::bool_switch(&bench.predict));
    add("quick", po::bool_switch(&bench.quick));
    add("json", po::bool_switch(&bench.json));
    return options;
}

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

void check_arguments(const char* command, const Words& arguments, std::size_t needed,
                     const char* usage, Problems& problems) {
    if (arguments.size() == needed) return;
    problems.add(
        command,
        cat("needs ", needed, needed == 1 ? " argument" : " arguments", ", got ", arguments.size()),
        usage);
}

void check_word(const char* option, const std::string& word, const Words& known,
                Problems& problems) {
    if (std::find(known.begin(), known.end(), word) != known.end()) return;
    problems.add(option, "'" + word + "' is not known", "give one of: " + join(known, ", "));
}

}  // namespace command_options

}  // namespace loratrain
