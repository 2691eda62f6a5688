#pragma once

#include <span>

#include "plan/replica_view.h"

namespace loratrain {

/// LoRA columns of a microbatch with these segments (design.md "One augmented matrix"):
/// - on CUDA, if the columns of all adapters of the job together are at most pad_columns and
///   free_columns: each adapter has the same columns in every microbatch, so that the pads of
///   weight matrices stay valid until one of the adapters is stepped;
/// - else, if the columns of the segments together are at most pad_columns: side by side;
/// - else the microbatch goes by segment, each from column 0.
LoraColumns lora_columns(const Job& job, const ReplicaView& view,
                         std::span<const Segment> segments);

}  // namespace loratrain
