#pragma once

#include <span>

#include "plan/replica_view.h"

namespace loratrain {

/// LoRA columns of a microbatch with these segments (design.md "One augmented matrix"):
/// - on CUDA, where the columns of all the job's adapters side by side are at most pad_columns and
///   free_columns, each adapter's are the same in every microbatch: the pads of weight matrices
///   hold for microbatches of other adapters too, until one of them is stepped;
/// - else those of the segments side by side, where they are at most pad_columns;
/// - else the microbatch goes by segment, each from column 0.
LoraColumns lora_columns(const Job& job, const ReplicaView& view,
                         std::span<const Segment> segments);

}  // namespace loratrain
