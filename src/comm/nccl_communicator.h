#pragma once

#include <memory>

#include "comm/communicator.h"

namespace loratrain {

/// Communicator over NCCL for device memory. Every channel between two neighbouring ranks is a
/// two-rank NCCL communicator with a stream of its own, so messages overlap with compute and
/// channels cannot block each other. Transfers are ordered against `compute_stream` by events: a
/// send waits for the work queued before it, Transfer::wait() makes later work wait for the
/// transfer; the host never blocks. Collective; ids travel over MPI. Throws InputError when the
/// program was built without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& mpi, void* compute_stream);

}  // namespace loratrain
