#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace loratrain {

/// Communicator over NCCL for device memory. Every channel between two neighbouring ranks is a
/// two-rank NCCL communicator with a stream of its own, so messages overlap with compute and
/// channels cannot block each other. Transfers are ordered against `compute_stream` by events: a
/// send waits for the work queued before it, Transfer::wait() makes later work wait for the
/// transfer. A receive is queued on the GPU only once the sender's send is (an empty MPI message
/// says so), so no kernel spins for a message that the peer's host has yet to issue: calls that
/// synchronise a device (first use of a kernel, growing memory) cannot deadlock with it.
/// Collective; throws InputError when the program was built without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& mpi, void* compute_stream);

/// "2.27.3", of the library that is loaded; "" when the program was built without NCCL.
std::string nccl_version();

}  // namespace loratrain
