#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/findings.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Checks the batches and microbatches of a window.

/// Batch of every segment: [microbatch][segment] -> index into Window::batches.
using SegmentBatches = std::vector<std::vector<std::int32_t>>;

/// True if every index in the window is valid. Each invalid one is a finding.
bool check_references(const ReplicaView& view, const Window& window, Findings& findings);

/// Finds the batch of every segment; -1 and a finding if there is none.
SegmentBatches find_segment_batches(const Window& window, Findings& findings);

/// Checks batches and microbatches without the action lists: capacity, one segment per adapter,
/// whole groups of samples, order of steps, sample multisets, counts, steps and epochs, LoRA
/// columns. The replicas together have to make up each batch. The windows have the same batches and
/// valid references.
void check_contents(const Job& job, std::span<const ReplicaView> views, const JointWindow& joint,
                    std::span<const SegmentBatches> batch_of, Findings& findings);

}  // namespace loratrain
