#pragma once

#include <optional>
#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Writes texts of adapters that have ended (eval.generate). That needs an empty pipeline, so texts
/// of several adapters are collected: the stream ends when waiting texts would take long.
class TextService : public Service {
  public:
    explicit TextService(Worker& worker) : worker_(worker) {}

    bool needs_drain(std::int32_t round) override;

    /// Number of adapters that end in the stream before `round` and have texts to write.
    int waiting(std::int32_t round) const;
    /// The adapter writes texts at its end.
    bool has_texts(AdapterId adapter) const;
    /// With an empty pipeline: writes texts of the adapters of `trained` that have ended, before
    /// their memory is freed.
    void write(const std::vector<AdapterId>& trained);

  private:
    Worker& worker_;
    std::optional<double> seconds_;  ///< of the last adapter's texts
};

}  // namespace loratrain
