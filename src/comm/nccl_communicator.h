#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace loratrain {

/// Communicator over NCCL for device memory. Every channel between two neighbouring ranks is a
/// two-rank NCCL communicator with a stream of its own, so messages overlap with compute and
/// channels cannot block each other. Transfers are ordered against `compute_stream` by events: a
/// send waits for the work queued before it, Transfer::wait() makes later work wait for the
/// transfer.
///
/// Between ranks of one host a message of 4 MiB or more starts only when the streams of both ends
/// have come to it (StreamFlags); elsewhere the end that comes first waits in a kernel. Either way,
/// what is queued on a link's stream ends only when the peer's host has queued the other end:
/// - a receive is queued on the GPU only once the sender's send is (an empty MPI message says so):
///   a call that synchronises a device (first use of a kernel, growing memory) cannot deadlock
///   with the receives queued there;
/// - a send that is larger than NCCL's buffers ends only once the receiver's host has queued the
///   receive, which it does in send(), receive(), settle() and Transfer::wait(). Two ranks that
///   synchronise their devices at the same time, each with a send that the other has yet to queue
///   the receive of, would deadlock: so settle() goes before the first use of code, and nothing is
///   allocated or freed between messages (engine_memory.h). So would lanes, of which one has yet to
///   queue the sum that the other's device is at: settle() waits for the compute stream too.
/// Collective: all ranks give the same `neighbours`, in whose order the links are made. Throws
/// InputError when the program was built without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& mpi,
                                                     const std::vector<RankPair>& neighbours,
                                                     void* compute_stream);

/// "2.27.3", of the library that is loaded; "" when the program was built without NCCL.
std::string nccl_version();

}  // namespace loratrain
