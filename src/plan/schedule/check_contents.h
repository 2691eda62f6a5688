#pragma once

#include <cstdint>
#include <vector>

#include "plan/replica_view.h"
#include "plan/schedule/findings.h"

namespace loratrain {

/// Batch of every segment: [microbatch][segment] -> index into Window::batches.
using SegmentBatches = std::vector<std::vector<std::int32_t>>;

/// Whether every index in the window points to something; what does not is a finding.
bool check_references(const ReplicaView& view, const Window& window, Findings& findings);

/// Finds the batch of every segment; -1, and a finding, where there is none.
SegmentBatches find_segment_batches(const Window& window, Findings& findings);

/// Everything about batches and microbatches that does not need the action lists: capacity, one
/// segment per adapter, whole groups of samples, order of its steps, sample multisets, counts,
/// steps and epochs, LoRA columns. References must be valid.
void check_contents(const Job& job, const ReplicaView& view, const Window& window,
                    const SegmentBatches& batch_of, Findings& findings);

}  // namespace loratrain
