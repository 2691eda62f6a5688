#pragma once

#include "train/worker.h"

namespace loratrain {

/// Takes steps into the adapter table and the journal, and decides how adapters end. A gradient
/// that is not finite changes no parameters (backend/ops/optimizer.h) and is counted. An adapter
/// fails after bad_steps_allowed of them in a row (train/checkpoint/run_state.h), or if its last
/// loss is not finite: the stream ends once, and all others go on in the next one.
class StepService : public Service {
  public:
    explicit StepService(Worker& worker) : worker_(worker) {}

    /// True if an adapter has to be given up.
    bool needs_drain(std::int32_t round) override;
    void on_step(const BatchResult& result) override;

    /// Sets the status of an adapter after its last step: failed, done, stopped by order, or
    /// unchanged. Called after the stream for adapters that fail (worker_loop.h).
    void decide_end(AdapterId adapter);

  private:
    Worker& worker_;
};

}  // namespace loratrain
