#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace loratrain {

/// Problems of one file, with a limit to how many are listed; the others are counted. At most
/// `limit` are listed, and at most `most_alike` with the same text, such as those of lines that are
/// all wrong in the same way.
class CappedProblems {
  public:
    static constexpr std::size_t default_limit = 20;
    static constexpr std::size_t alike_lines = 3;

    explicit CappedProblems(std::string file, std::size_t limit = default_limit,
                            std::size_t most_alike = SIZE_MAX)
        : file_(std::move(file)), limit_(limit), most_alike_(most_alike) {}

    void add(std::string where, std::string what, std::string hint = "") {
        const auto kind = std::find_if(kinds_.begin(), kinds_.end(),
                                       [&](const Kind& known) { return known.what == what; });
        if (kind != kinds_.end() && kind->count++ >= most_alike_) return;
        if (problems_.list().size() >= limit_) {
            ++unlisted_;
            return;
        }
        if (kind == kinds_.end()) kinds_.push_back({what, 1});
        problems_.add(std::move(where), std::move(what), std::move(hint));
    }
    void add(const InputError& error) {
        for (const Problem& problem : error.problems()) {
            add(problem.where, problem.what, problem.hint);
        }
    }
    bool empty() const { return problems_.empty(); }

    void throw_if_any() {
        for (const Kind& kind : kinds_) {
            if (kind.count <= most_alike_) continue;
            problems_.add(file_, cat(kind.count - most_alike_, " more: ", kind.what));
        }
        if (unlisted_ > 0) {
            problems_.add(file_, cat("and ", unlisted_, " more problem", unlisted_ > 1 ? "s" : ""));
        }
        problems_.throw_if_any();
    }

  private:
    /// Listed problems with the same text.
    struct Kind {
        std::string what;
        std::size_t count = 0;
    };

    std::string file_;
    std::size_t limit_;
    std::size_t most_alike_;
    std::size_t unlisted_ = 0;
    std::vector<Kind> kinds_;
    Problems problems_;
};

}  // namespace loratrain
