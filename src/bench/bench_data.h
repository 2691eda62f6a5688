#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/command_line.h"
#include "config/model_spec.h"

namespace loratrain {

/// The preset of --model, or a llama of the five sizes.
ModelSpec bench_model(const CommandLine::Bench& bench);

/// cpu or cuda.
BackendKind bench_backend(const CommandLine::Bench& bench);

/// Rounds that a bench runs before it measures.
inline constexpr int bench_warmup_rounds = 2;
/// More rounds than any run of a bench takes from one job.
int bench_rounds(const CommandLine::Bench& bench);

/// Tokens of `count` samples of --lengths `lengths`, none above `longest`.
///   fixed: all `longest`; xsum, cnn, wikisum: log-normal like the data sets of these names, of
///   mean 0.122, 0.22 and 0.415 `longest` (500, 900 and 1700 of 4096) and sigma 0.6, 0.5 and 0.6.
std::vector<int> bench_lengths(const std::string& lengths, std::int64_t count, int longest);

/// Files of random samples, removed with the object; what has been opened can be read further. One
/// data set for all adapters, or three of different lengths that adapters take in turn (--lengths
/// mix). With fixed lengths as many samples as a step of one adapter has, else as many as all its
/// steps.
class RandomData {
  public:
    explicit RandomData(const CommandLine::Bench& bench);
    ~RandomData();
    RandomData(const RandomData&) = delete;
    RandomData& operator=(const RandomData&) = delete;
    const std::vector<std::string>& paths() const { return paths_; }

  private:
    std::vector<std::string> paths_;
};

}  // namespace loratrain
