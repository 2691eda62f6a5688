#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "data/loader.h"
#include "io/base_weights.h"
#include "plan/plan.h"

namespace loratrain {

/// Rounds that a bench runs before it measures, in one window.
inline constexpr int bench_warmup_rounds = 2;

/// The preset of --model, or a llama of the five sizes.
ModelSpec bench_model(const CommandLine::Bench& bench);

/// A file of random samples as many as a step of one adapter has, removed with the object.
class RandomData {
  public:
    explicit RandomData(const CommandLine::Bench& bench);
    ~RandomData();
    RandomData(const RandomData&) = delete;
    RandomData& operator=(const RandomData&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

/// A planned job of equal adapters on random data and random weights.
struct BenchCase {
    /// Without `lora` no linear has adapters. `microbatch_tokens`: none = as --microbatch-tokens
    /// says. Collective.
    BenchCase(const CommandLine::Bench& bench, const MpiSession& mpi, const RandomData& data,
              bool lora, std::optional<std::int64_t> microbatch_tokens = {});

    Job job;
    std::unique_ptr<WeightSource> weights;
    DatasetFiles files;
    std::vector<DatasetInfo> infos;
    Plan plan;
};

}  // namespace loratrain
