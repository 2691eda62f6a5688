#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/findings.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Batch of every segment: [microbatch][segment] -> index into Window::batches.
using SegmentBatches = std::vector<std::vector<std::int32_t>>;

/// Whether every index in the window points to something; what does not is a finding.
bool check_references(const ReplicaView& view, const Window& window, Findings& findings);

/// Finds the batch of every segment; -1, and a finding, where there is none.
SegmentBatches find_segment_batches(const Window& window, Findings& findings);

/// Everything about batches and microbatches that does not need the action lists: capacity, one
/// segment per adapter, whole groups of samples, order of its steps, sample multisets, counts,
/// steps and epochs, LoRA columns; of the replicas together where they have to make up a batch. The
/// windows have the same batches; references must be valid.
void check_contents(const Job& job, std::span<const ReplicaView> views, const JointWindow& joint,
                    std::span<const SegmentBatches> batch_of, Findings& findings);

}  // namespace loratrain
