#pragma once

#include "backend/backend.h"
#include "comm/communicator.h"
#include "plan/plan.h"

namespace loratrain {

/// Measured costs of one rank: two layers and a head with random weights of the plan's model and
/// the adapters of its first group run a few microbatches of up to microbatch_tokens, as samples as
/// long as can be and as short ones; lines are fitted to the medians (fit_costs.h). Takes about a
/// second, beside the timing of GEMM algorithms on a GPU: what is slower than that is measured with
/// fewer loads, down to one. Messages are taken from `plan.costs`. Frees what it allocates.
CostModel profile_costs(const Job& job, const Plan& plan, Backend& backend);

/// Sets the message costs to those between ranks 0 and 1, by sending small and boundary-sized
/// messages to and fro; does nothing on other ranks and with one stage. Times of rank 0 count.
void profile_messages(const Plan& plan, int rank, Communicator& communicator, Backend& backend,
                      CostModel& costs);

}  // namespace loratrain
