#pragma once

#include "base/ids.h"

namespace loratrain::tags {

/// All MPI tags. A tag separates kinds of messages that two ranks exchange in one communicator;
/// messages of one kind keep their order. Commands, and the messages of each Communicator, have an
/// MPI communicator of their own, since they go on while other ranks set up or end. So only tags of
/// one group below must differ; all differ, so that a tag names its kind in a debugger. Take the
/// next free number of a group for a new kind.

/// Commands, in the CommandChannel's MPI communicator.
inline constexpr int command = 1;
inline constexpr int command_report = 2;
inline constexpr int command_report_text = 3;

/// In the session's MPI communicator, by calls that both ranks make in the same order.
inline constexpr int nccl_id = 90;
inline constexpr int memory_name = 91;  ///< shared_memory.h
inline constexpr int memory_answer = 92;
inline constexpr int flags_work = 93;  ///< stream_flags.h

/// Messages of the pipeline, in the Communicator's MPI communicator: a tag per channel; the sender
/// distinguishes links. 100 to 102 carry data over MPI; 120 to 122 report that a send is queued
/// with NCCL.
constexpr int pipeline(Channel channel) {
    return 100 + static_cast<int>(channel);
}
constexpr int nccl_token(Channel channel) {
    return 120 + static_cast<int>(channel);
}

}  // namespace loratrain::tags
