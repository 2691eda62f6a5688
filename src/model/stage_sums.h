#pragma once

namespace loratrain {

/// Sums of a stage in backend memory. Those per adapter travel in message tails (src/design.md
/// "Gradient norms ride on messages").
struct StageSums {
    double* partial = nullptr;     ///< squared gradients of this stage and the stages above
    double* received = nullptr;    ///< the stage above's partial
    double* total = nullptr;       ///< over all stages, once it reached this stage
    double* loss = nullptr;        ///< losses of the running batch
    double* wrong = nullptr;       ///< tokens whose argmax is not the target
    double* sample_nll = nullptr;  ///< per sample of a microbatch: of an evaluation or first pass
    double* sample_wrong = nullptr;
};

}  // namespace loratrain
