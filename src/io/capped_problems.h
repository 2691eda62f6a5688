#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace loratrain {

/// Problems of one file of which the first `limit` are listed and the rest counted.
class CappedProblems {
  public:
    explicit CappedProblems(std::string file, std::size_t limit = 20)
        : file_(std::move(file)), limit_(limit) {}

    void add(std::string where, std::string what, std::string hint = "") {
        if (problems_.list().size() < limit_) {
            problems_.add(std::move(where), std::move(what), std::move(hint));
        } else {
            ++unlisted_;
        }
    }
    void add(const InputError& error) {
        for (const Problem& problem : error.problems()) {
            add(problem.where, problem.what, problem.hint);
        }
    }
    bool empty() const { return problems_.empty(); }

    void throw_if_any() {
        if (unlisted_ > 0) {
            problems_.add(file_, cat("and ", unlisted_, " more problem", unlisted_ > 1 ? "s" : ""));
        }
        problems_.throw_if_any();
    }

  private:
    std::string file_;
    std::size_t limit_;
    std::size_t unlisted_ = 0;
    Problems problems_;
};

}  // namespace loratrain
