#pragma once

#include <string>

#include "plan/sweep/deploy_sweep.h"

namespace loratrain {

/// A picture of the plan of a sweep: a block per replica, in it a bar per trial from where it
/// begins to where it ends, on the first line that is free then, in the colour of its batch size;
/// grey is time in which the replica has nothing to train. Complete in itself; texts are escaped,
/// and a bar's name shows under the pointer.
std::string sweep_svg(const Job& job, const SweepDeployment& deployment);

}  // namespace loratrain
