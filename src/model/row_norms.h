#pragma once

#include <vector>

#include "backend/rank_group.h"
#include "model/frozen_weights.h"
#include "model/workspace.h"

namespace loratrain {

/// L2 norms of the rows of a linear's W that this lane holds, over the columns of all lanes, with W
/// as the backend multiplies with it. Collective over the stage's lanes; waits for the backend.
struct RowNormsSite {
    const ReplicaView& view;
    const Workspace& workspace;
    const StageLanes& lanes;
    Backend& backend;
};
std::vector<float> row_norms(const RowNormsSite& site, LayerWeights& weights, Linear linear);

}  // namespace loratrain
