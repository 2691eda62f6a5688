#pragma once

#include <string>

namespace loratrain {

/// A script that completes the command line of loratrain in bash: commands and options as the
/// parser knows them (command_words()), values that help_text() lists, keys of a job after --set.
std::string bash_completion();

}  // namespace loratrain
