#pragma once

#include <string>

#include "comm/mpi_session.h"
#include "config/job.h"
#include "io/weights/base_weights.h"

namespace loratrain {

/// Compares all tensors of the base weights with the file's checksums; every rank reads a share.
/// Done once per file and again after each change: the result is noted beside measured costs
/// (measure/cost_cache.h). `weights`: null on ranks other than the root. Returns a line for the
/// root's log; "" if nothing was read. InputError that names the tensors, on all ranks. Collective.
std::string check_weights(const MpiSession& mpi, const Job& job, const WeightSource* weights);

}  // namespace loratrain
