#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace loratrain {

/// Where a value was written: a line of a file, or an option of the command line.
struct Place {
    std::string text;  ///< "tune.yaml:12" or "--set run.dir"
    int line = 0;      ///< counted from 1; 0 on the command line
    bool on_command_line = false;
};

/// "did you mean 'x'?", or "one of: a, b, c" when none is near.
std::string hint_among(const std::string& word, const std::vector<std::string>& candidates);

/// Problems with their places. They are thrown in the order of the lines, and those of the command
/// line last.
class ProblemLog {
  public:
    /// Drops a key at the start of `what` if the option names it already. A problem that is equal
    /// at the same place is added once: trials of a sweep share the places of their values.
    void add(const Place& place, std::string what, std::string hint);
    /// As hint_among(), but only the list after many words were compared with long lists.
    std::string hint_among(const std::string& word, const std::vector<std::string>& candidates);
    /// Throws InputError when there is at least one problem.
    void throw_if_any() const;

  private:
    struct Entry {
        Place place;
        Problem problem;
    };
    std::vector<Entry> entries_;
    std::set<std::pair<std::string, std::string>> known_;  ///< place, what
    std::size_t compared_ = 0;                             ///< words with candidates
};

}  // namespace loratrain
