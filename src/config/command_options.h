#pragma once

#include <array>
#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/command_line.h"

/// What the parts of the parser share; for command_line.cpp and bench_line.cpp alone.
namespace loratrain::command_options {

using Words = std::vector<std::string>;

/// Of `loratrain` without a command.
inline constexpr std::array<const char*, 3> general_options{"--help", "--keys", "--version"};
inline constexpr const char* see_help = "see loratrain --help";

/// The options of a command; those that need no look write to `line`, which outlives the parsing.
boost::program_options::options_description train_options(CommandLine& line);
boost::program_options::options_description import_options(CommandLine& line);
boost::program_options::options_description status_options(CommandLine& line);
boost::program_options::options_description report_options(CommandLine& line);
/// Of check-export and merge.
boost::program_options::options_description base_options(CommandLine& line);
boost::program_options::options_description bench_options(CommandLine& line);

struct Parsed {
    boost::program_options::variables_map values;
    Words arguments;  ///< what is no option
};

/// Throws InputError on an option that is not among `options`, or has a value that it cannot have.
Parsed parse_words(const Words& words, const boost::program_options::options_description& options);

/// A problem of `command` unless it has so many arguments.
void check_arguments(const char* command, const Words& arguments, std::size_t needed,
                     const char* usage, Problems& problems);
void check_word(const char* option, const std::string& word, const Words& known,
                Problems& problems);

/// What follows `loratrain bench`. Throws InputError on bad usage.
CommandLine parse_bench_line(const Words& words);

}  // namespace loratrain::command_options
