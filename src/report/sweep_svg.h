#pragma once

#include <string>

#include "plan/sweep/deploy_sweep.h"

namespace loratrain {

/// A picture of the plan of a sweep. Each replica is a block; in it each trial is a bar from its
/// beginning to its end, on the first free line, in the colour of its batch size. Grey is time in
/// which the replica has nothing to train. The SVG needs no other file; texts are escaped; the
/// pointer over a bar shows its name.
std::string sweep_svg(const Job& job, const SweepDeployment& deployment);

}  // namespace loratrain
