#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// The log-probabilities under a reference with which dpo, kto and others compare.

/// A reference that the samples of a dataset are compared with: the base model alone, or with the
/// adapter in a PEFT directory (AdapterJob::ref_adapter).
struct ReferenceId {
    DatasetId dataset{};
    std::string ref_adapter;
    friend auto operator<=>(const ReferenceId&, const ReferenceId&) = default;
};
inline ReferenceId reference_of(const AdapterJob& adapter) {
    return {adapter.dataset, adapter.ref_adapter};
}

/// Values of all samples of a dataset under a reference: z (ObjectiveSamples), or of rollouts
/// -log p of each target. The samples to train on come first, then those to evaluate on.
struct ReferenceValues {
    std::vector<double> values;      ///< sample by sample
    std::vector<std::int64_t> ends;  ///< by sample, where its values end

    void add(std::span<const double> of_sample) {
        values.insert(values.end(), of_sample.begin(), of_sample.end());
        ends.push_back(std::ssize(values));
    }
    std::span<const double> of(std::size_t sample) const {
        const auto first = static_cast<std::size_t>(sample == 0 ? 0 : ends.at(sample - 1));
        return std::span(values).subspan(first, static_cast<std::size_t>(ends.at(sample)) - first);
    }
};

/// The values under each reference. They are computed once and shared by all adapters with that
/// reference.
class ReferenceLosses {
  public:
    void set(const ReferenceId& id, ReferenceValues values) { of_[id] = std::move(values); }
    const ReferenceValues& of(const ReferenceId& id) const { return of_.at(id); }

  private:
    std::map<ReferenceId, ReferenceValues> of_;
};

}  // namespace loratrain
