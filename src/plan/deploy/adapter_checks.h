#pragma once

#include <string>

#include "base/error.h"
#include "plan/plan.h"

namespace loratrain {

/// Checks of adapters and their data, for adapters of the job file and for adapters added later.
/// Problems are placed at "<source>: <key>".
class AdapterChecks {
  public:
    AdapterChecks(const Job& job, const ModelSpec& model, std::string source, Problems& problems);

    /// Checks that the dataset has samples to train on, and that no sample, and no global batch
    /// that must fit into one microbatch, has more than `most` tokens. `hint_longer`: what to do
    /// about longer samples, other than to cut them. `limit`: the key that sets `most`.
    void dataset(DatasetId id, const DatasetInfo& info, std::int64_t most,
                 const std::string& hint_longer = "use microbatch_tokens: # or auto",
                 const std::string& limit = "parallel.microbatch_tokens");
    /// Checks that the adapter's form can be computed with the base in its weight format.
    void form(const AdapterJob& adapter);
    /// Checks that rows of tokens are in the embedding, and can be trained on `replicas`.
    void tokens(const AdapterJob& adapter, const std::vector<ReplicaJob>& replicas);
    /// Checks that the adapter targets something in this model.
    void targets(const AdapterJob& adapter);
    /// The numbers of the adapter's training: samples and steps.
    AdapterPlan plan(const AdapterJob& adapter, const DatasetInfo& info);

    std::string where(const std::string& key) const { return source_ + ": " + key; }

  private:
    /// Checks that each target has enough rows and columns for an initial value taken from W.
    void start(const AdapterJob& adapter);
    /// Checks that the model has the linears that the adapter names.
    void named_targets(const AdapterJob& adapter);
    /// Checks that the adapter's patterns, layers and names match something in this model.
    void rules(const AdapterJob& adapter);
    /// Checks the combination of LoRA in experts with the adapter's other keys.
    void experts(const AdapterJob& adapter);
    /// Checks that the dataset has the kind of samples that the loss takes, and that batches are
    /// whole groups.
    void check_kind(const AdapterJob& adapter, const DatasetInfo& info);
    /// Of an adapter whose dataset grows.
    void check_growing(const AdapterJob& adapter);
    void samples(const std::string& key, const std::string& path,
                 const std::vector<SampleInfo>& samples);
    /// For losses that compare samples with each other: checks that the compared samples fit into
    /// one microbatch, and that there is something to compare.
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

/// Whether the job's adapters can train on replicas of this shape: those that train rows of tokens
/// cannot on every one (Ability::tokens_on_stages).
bool can_hold_adapters(const Job& job, const ModelSpec& model, const ReplicaJob& replica);

/// Raises Plan::longest_sample to the longest training sample of `info`.
void take_lengths(const DatasetInfo& info, Plan& plan);

}  // namespace loratrain
