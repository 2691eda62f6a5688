#pragma once

#include "plan/compute_order.h"
#include "plan/plan.h"

namespace loratrain {

/// Fills window.actions and window.peak_in_flight from window.batches and window.microbatches.
///
/// Receives stand directly before their use, sends directly after what they send was produced.
/// Gradient norms travel without a bubble (design decision 3):
/// - partial sums of (a, j) ride down with the messages of its last backward;
/// - the total rides up with the first microbatch of (a, j+1); every stage steps (a, j) right
/// before
///   that forward, stages above the first right after its recv_forward;
/// - what is left at the end of the window is stepped on the first stage, then goes up with one
///   recv_norms / send_norms per boundary, each stage passing it on before its own steps.
///
/// Free of deadlock as long as forward sends never wait (a slot keeps its output until the backward
/// has come back) and at least one gradient send may be under way; with few send buffers in both
/// directions two neighbours can wait for each other.
void add_pipeline_actions(const Plan& plan, Window& window);

}  // namespace loratrain
