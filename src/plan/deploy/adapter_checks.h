#pragma once

#include <string>

#include "base/error.h"
#include "plan/plan.h"

namespace loratrain {

/// Checks of adapters and their data that hold at the start and for what is added later; problems
/// are placed at "<source>: <key>".
class AdapterChecks {
  public:
    AdapterChecks(const Job& job, const ModelSpec& model, std::string source, Problems& problems);

    /// Samples to train on, none with more than `most` tokens, nor a global batch that one
    /// microbatch must have. `hint_longer`: what else to do about
    /// those than to cut them; `limit`: what has that most.
    void dataset(DatasetId id, const DatasetInfo& info, std::int64_t most,
                 const std::string& hint_longer = "use microbatch_tokens: # or auto",
                 const std::string& limit = "parallel.microbatch_tokens");
    /// What it computes can be computed with the base as it is kept.
    void form(const AdapterJob& adapter);
    /// It targets something in this model.
    void targets(const AdapterJob& adapter);
    /// The adapter's training in numbers.
    AdapterPlan plan(const AdapterJob& adapter, const DatasetInfo& info);

    std::string where(const std::string& key) const { return source_ + ": " + key; }

  private:
    /// Each target has as many columns and rows as a start that is taken from W needs.
    void start(const AdapterJob& adapter);
    /// The model has the linears that it names.
    void named_targets(const AdapterJob& adapter);
    /// Patterns, layers and names that it gives match something in this model.
    void rules(const AdapterJob& adapter);
    /// What LoRA in experts goes with.
    void experts(const AdapterJob& adapter);
    /// The dataset is of the kind that its loss takes, and its batches are whole groups.
    void check_kind(const AdapterJob& adapter, const DatasetInfo& info);
    void samples(const std::string& key, const std::string& path,
                 const std::vector<SampleInfo>& samples);
    /// No sample is longer than what longrope's factors are for.
    void positions(const std::string& key, const std::vector<SampleInfo>& samples);
    /// What an adapter compares with each other fits one microbatch, and has something to compare.
    void compared(const AdapterJob& adapter, const DatasetInfo& info, std::int64_t most,
                  const std::string& hint_longer, const std::string& limit);
    void lengths(const std::string& key, const std::vector<SampleInfo>& samples,
                 std::int32_t group_samples, std::int64_t most, const std::string& hint_longer,
                 const std::string& limit);

    const Job& job_;
    const ModelSpec& model_;
    std::string source_;
    Problems& problems_;
};

/// Into Plan::longest_sample, those of the training samples.
void take_lengths(const DatasetInfo& info, Plan& plan);

}  // namespace loratrain
