#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// What a rank is in a deployment.
struct Place {
    std::size_t replica = 0;  ///< of Plan::replicas
    std::size_t stage = 0;    ///< of its stages
    std::int32_t lane = 0;
    friend bool operator==(const Place&, const Place&) = default;
};

/// Orders replicas by falling `tensor`, equal ones as they are, and numbers the ranks of their
/// stages in that order: replicas, then stages, then lanes. So lanes of 2^k are on ranks that start
/// at a multiple of 2^k, and on one host.
void number_ranks(std::vector<ReplicaPlan>& replicas);

/// Error when the plan has nothing for the rank.
Place place_of(const Plan& plan, int rank);

/// The ranks that exchange messages, the lower one first: each lane with that of the next stage.
std::vector<std::pair<int, int>> neighbours_in(const Plan& plan);

/// Stages whose lanes are not on one host, as "ranks 2-3 (replica 1, stage 0) are on hosts a and
/// b": the sums of every layer go from host to host there. `hosts`: of the ranks.
std::vector<std::string> stages_over_hosts(const Plan& plan, std::span<const std::string> hosts);

}  // namespace loratrain
