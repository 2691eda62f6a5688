#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/job_yaml.h"
#include "support/files.h"

namespace loratrain {

/// A folder of its own for one test, removed at the end, in which job files are written.
class JobFiles : public ::testing::Test {
  protected:
    std::string folder() const { return folder_.string(); }
    std::string job_path() const { return (folder_ / "tune.yaml").string(); }
    /// `where` of a problem in line `line` of the job file.
    std::string at(int line) const { return job_path() + ":" + std::to_string(line); }
    void write(const std::string& text) const;
    Job read(const std::string& text, const std::vector<Override>& overrides = {}) const;
    /// The problems found in `text`; fails the test when there is none.
    std::vector<Problem> problems(const std::string& text,
                                  const std::vector<Override>& overrides = {}) const;

  private:
    test::TempDir temp_;
    std::filesystem::path folder_ = std::filesystem::canonical(temp_.path());
};

/// Expects that exactly this one problem was found; the hint need only contain `hint`.
void expect_only(const std::vector<Problem>& problems, const std::string& where,
                 const std::string& what, const std::string& hint);
/// Expects that this is among the problems found.
void expect_among(const std::vector<Problem>& problems, const std::string& where,
                  const std::string& what, const std::string& hint);

/// The smallest job that is accepted, six lines long.
inline const std::string minimal_job =
    "model: {weights: base.h5}\n"
    "run: {dir: out}\n"
    "datasets:\n"
    "  math: {path: math.jsonl}\n"
    "adapters:\n"
    "  - {name: a}\n";

}  // namespace loratrain
