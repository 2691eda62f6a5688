#pragma once

#include <optional>
#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Texts that adapters write when they have ended (eval.generate), with the pipeline empty, of
/// several at a time: the stream goes on until the texts that wait would take long.
class TextService : public Service {
  public:
    explicit TextService(Worker& worker) : worker_(worker) {}

    bool needs_drain(std::int32_t round) override;

    /// Adapters that end in the stream before the round and have texts to write then.
    int waiting(std::int32_t round) const;
    /// The adapter writes texts when it has ended.
    bool has_texts(AdapterId adapter) const;
    /// With an empty pipeline: of those of `trained` that have ended, while their memory is not
    /// given back.
    void write(const std::vector<AdapterId>& trained);

  private:
    Worker& worker_;
    std::optional<double> seconds_;  ///< that an adapter's texts took last
};

}  // namespace loratrain
