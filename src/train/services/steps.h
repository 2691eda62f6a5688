#pragma once

#include "train/worker.h"

namespace loratrain {

/// Takes steps into the adapter table and the journal, and says what an adapter's last step has
/// made of it.
class StepService : public Service {
  public:
    explicit StepService(Worker& worker) : worker_(worker) {}

    /// An adapter whose gradients are not finite again and again has to be given up.
    bool needs_drain(std::int32_t round) override;
    void on_step(const BatchResult& result) override;

    /// What its last step has made of an adapter that trains: it has failed, is done, was stopped
    /// by order, or trains on.
    void settle(AdapterId adapter);

  private:
    Worker& worker_;
};

}  // namespace loratrain
