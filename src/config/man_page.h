#pragma once

#include <string>

namespace loratrain {

/// loratrain(1) in the macros of man(7): the text of `loratrain --help`, section by section, and
/// all keys of a job file (job_keys.h). Nothing in it is said a second time.
std::string man_page();

}  // namespace loratrain
