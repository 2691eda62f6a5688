#pragma once

#include <string>

namespace loratrain {

/// loratrain(1) in the macros of man(7): the text of `loratrain --help`, section by section, and
/// all keys of a job file (job_keys.h). Nothing in it is said a second time.
std::string man_page();

/// A script that completes the command line of loratrain in bash: commands and options as the
/// parser knows them (command_words()), values that help_text() lists, keys of a job after --set.
std::string bash_completion();

}  // namespace loratrain
