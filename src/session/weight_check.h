#pragma once

#include <string>

#include "comm/mpi_session.h"
#include "config/job.h"
#include "io/weights/base_weights.h"

namespace loratrain {

/// Compares all tensors of the base weights' file with its checksums, every rank a share of them.
/// Done once for a file and after each change of it: what was compared is noted beside the measured
/// costs (measure/cost_cache.h). `weights` is the root's, null elsewhere. Returns what to log on
/// the root, "" where nothing had to be read. InputError naming the tensors on all ranks.
/// Collective.
std::string check_weights(const MpiSession& mpi, const Job& job, const WeightSource* weights);

}  // namespace loratrain
