#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace loratrain {

/// A list of problems of a job file, each with the line or option that it comes from.

/// Where a value was written: a line of a file, or an option of the command line.
struct Place {
    std::string text;  ///< "tune.yaml:12" or "--set run.dir"
    int line = 0;      ///< counted from 1; 0 on the command line
    bool on_command_line = false;
};

/// "did you mean 'x'?", or "one of: a, b, c" if no candidate is near.
std::string hint_among(const std::string& word, const std::vector<std::string>& candidates);

/// Problems with their places. They are thrown in the order of lines; problems of the command line
/// come last.
class ProblemLog {
  public:
    /// Adds a problem. If the place is an option that names the key at the start of `what`, the key
    /// is dropped. An equal problem at the same place is added once, because trials of a sweep
    /// share the places of their values.
    void add(const Place& place, std::string what, std::string hint);
    /// As hint_among(). After many words were compared with long lists, only the list of
    /// candidates.
    std::string hint_among(const std::string& word, const std::vector<std::string>& candidates);
    /// Throws InputError if there is at least one problem.
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
