#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Executes the action lists of all stages symbolically and returns what is wrong (empty =
/// accepted):
/// - deadlock: every list runs to its end with in-order channels between neighbours, receives
///   matching sends in microbatch and `carried`;
/// - staleness: at every stage, step (a, j) precedes every forward of (a, j+1) and follows every
///   backward of (a, j), and happens only after the norm total reached the stage; every forward of
///   an evaluation of a after j steps comes behind step (a, j-1) and before all of (a, j);
/// - every microbatch is forwarded and backwarded exactly once per stage, both in order
///   (evaluation: forwarded only); every batch is stepped exactly once per stage;
/// - every batch holds exactly its samples, each once (multiset), in microbatches between
///   first_microbatch and last_microbatch; its counts agree;
/// - no microbatch exceeds microbatch_tokens; at most one segment per adapter; all of (a, j) is in
///   earlier microbatches than (a, j+1);
/// - LoRA columns of a microbatch's segments lie side by side within its width and the pad, or each
///   at 0 where it goes by segment; where columns last, all adapters' lie side by side and segments
///   have them;
/// - peak in flight per stage equals peak_in_flight;
/// - an activation slot is taken (by the input's receive, on the first stage by forward) only after
///   its last microbatch was backwarded, or evaluated and sent on; all actions of a microbatch name
///   the same slot; likewise message buffers;
/// - the peer of a message is the neighbour's rank;
/// - what is computed is sent in the same window, and no action names a batch that its stage has
///   stepped in a window before: finished batches and microbatches may be forgotten then.
/// With several replicas:
/// - their windows say the same of rounds and batches, and their samples together are the batches;
/// - all lists together run to their end, where a step waits for all stages of all replicas to
///   reduce its batch; each reduces and steps in one order, JointWindow::reductions, and what has
///   to be reduced by the end of the window is (check_joint.h);
/// - a batch is reduced once, behind all its backwards, behind the step of the adapter's batch
///   before and before its own step; no messages carry sums.
/// The window begins and drains.
std::vector<std::string> check_window(const Job& job, const Plan& plan, const JointWindow& joint);
/// The same for a plan with one replica.
std::vector<std::string> check_window(const Job& job, const Plan& plan, const Window& window);

/// The same checks for a stream, window by window. Actions may wait for later windows until one
/// drains; everything else is checked at once.
class StreamChecker {
  public:
    StreamChecker(const Job& job, const Plan& plan);  ///< kept by reference
    ~StreamChecker();
    StreamChecker(const StreamChecker&) = delete;
    StreamChecker& operator=(const StreamChecker&) = delete;

    std::vector<std::string> check(const JointWindow& joint);

    /// Number of batches, microbatches and adapters that it keeps in memory.
    std::size_t size() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace loratrain
