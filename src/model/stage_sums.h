#pragma once

namespace loratrain {

/// Sums of a stage in backend memory. Sums per adapter travel in message tails (src/design.md
/// "Gradient norms ride on messages").
struct StageSums {
    double* partial = nullptr;   ///< squared gradients of this stage and of the stages above
    double* received = nullptr;  ///< `partial` of the stage above
    /// Squared gradients of all stages, once the sum has reached this stage.
    double* total = nullptr;
    double* loss = nullptr;        ///< losses of the running batch
    double* wrong = nullptr;       ///< tokens whose argmax is not the target
    double* sample_nll = nullptr;  ///< per sample or target of a microbatch (LabelBins)
    double* sample_wrong = nullptr;
};

}  // namespace loratrain
