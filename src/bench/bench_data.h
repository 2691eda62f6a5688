#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/command_line.h"
#include "config/model_spec.h"

namespace loratrain {

/// Inputs of a bench: model, backend, random data.

/// --layers layers of the preset of --model, or of a llama of the sizes given.
ModelSpec bench_model(const CommandLine::Bench& bench);

/// cpu or cuda.
BackendKind bench_backend(const CommandLine::Bench& bench);

/// Rounds of warm-up before a measurement.
inline constexpr int bench_warmup_rounds = 2;
/// An upper bound of the rounds that a bench takes from one job.
int bench_rounds(const CommandLine::Bench& bench);

/// Lengths in tokens of `count` samples, at most `longest`. `lengths` (--lengths):
///   fixed    all `longest`
///   xsum     log-normal, mean 0.122 `longest` (500 of 4096), sigma 0.6
///   cnn      log-normal, mean 0.22 `longest` (900 of 4096), sigma 0.5
///   wikisum  log-normal, mean 0.415 `longest` (1700 of 4096), sigma 0.6
/// The log-normal ones resemble the data sets of these names.
std::vector<int> bench_lengths(const std::string& lengths, std::int64_t count, int longest);

/// Files of random samples, removed with the object; open files can still be read. There is one
/// data set for all adapters, or with --lengths mix three of different lengths that adapters take
/// in turn. A file has the samples of one step of an adapter with fixed lengths, else those of all
/// its steps.
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
