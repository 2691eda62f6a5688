#pragma once

#include <array>
#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/command_line.h"

/// Shared parts of the command line's parser, for command_line.cpp and bench_line.cpp alone.
namespace loratrain::command_options {

using Words = std::vector<std::string>;

/// Options of `loratrain` without a command.
inline constexpr std::array<const char*, 3> general_options{"--help", "--keys", "--version"};
inline constexpr const char* see_help = "see loratrain --help";

/// The options of a command. Options whose values need no check are written to `line`, which must
/// outlive the parsing.
boost::program_options::options_description train_options(CommandLine& line);
boost::program_options::options_description import_options(CommandLine& line);
boost::program_options::options_description status_options(CommandLine& line);
boost::program_options::options_description report_options(CommandLine& line);
/// Options of check-export; those of merge, too.
boost::program_options::options_description base_options(CommandLine& line);
boost::program_options::options_description merge_options(CommandLine& line);
boost::program_options::options_description bench_options(CommandLine& line);

/// The parsed words of a command line.
struct Parsed {
    boost::program_options::variables_map values;
    Words arguments;  ///< words that are not options
};

/// Parses options and arguments. Throws InputError on an option that is not among `options`, or
/// that has an unusable value.
Parsed parse_words(const Words& words, const boost::program_options::options_description& options);

/// Adds a problem if `command` does not have exactly `needed` arguments.
void check_arguments(const char* command, const Words& arguments, std::size_t needed,
                     const char* usage, Problems& problems);
/// Adds a problem if `word`, the value of `option`, is not among `known`.
void check_word(const char* option, const std::string& word, const Words& known,
                Problems& problems);

/// Parses the words after `loratrain bench`. Throws InputError on bad usage.
CommandLine parse_bench_line(const Words& words);

}  // namespace loratrain::command_options
