#pragma once

#include <string>

namespace loratrain {

/// The manual page and the shell completion, made from the command line's tables.

/// The page loratrain(1) in the macros of man(7): the text of `loratrain --help`, section by
/// section, and all keys of a job file (job_keys.h). Both texts come from their only source.
std::string man_page();

/// A bash script that completes the command line of loratrain: commands and options as the parser
/// has them (command_words()), values that help_text() lists, and keys of a job after --set.
std::string bash_completion();

}  // namespace loratrain
