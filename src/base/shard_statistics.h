#pragma once

namespace loratrain {

/// What one lane knows of a row of logits by the columns that it has.
struct ShardStatistics {
    double largest = 0.0;  ///< of its logits
    double sum = 0.0;      ///< of exp(logit - largest)
    double target = 0.0;   ///< the target's logit, where it is among its columns
    /// 0: the target is among other lanes' columns; 1: among these, and would be the guess without
    /// the others; -1: among these, and would not.
    double standing = 0.0;
    double logits = 0.0;  ///< their sum, where the loss is smoothed; else 0
};

}  // namespace loratrain
