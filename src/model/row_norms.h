#pragma once

#include <vector>

#include "backend/rank_group.h"
#include "model/frozen_weights.h"
#include "model/workspace.h"

namespace loratrain {

/// Norms of the rows of a linear's W, as the backend multiplies with it, that the lane has, over
/// the columns of all lanes. Every lane calls it; waits for the backend.
struct RowNormsSite {
    const ReplicaView& view;
    const Workspace& workspace;
    const StageLanes& lanes;
    Backend& backend;
};
std::vector<float> row_norms(const RowNormsSite& site, LayerWeights& weights, Linear linear);

}  // namespace loratrain
