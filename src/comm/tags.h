#pragma once

#include "base/ids.h"

namespace loratrain::tags {

/// All MPI tags. A tag keeps kinds of messages apart that the same two ranks exchange in one
/// communicator; messages of one kind keep their order. What goes on while others set up or end has
/// a communicator of its own besides (the commands; the messages of the pipeline, those of one
/// Communicator), so that only tags of one group below must differ; they differ all the same, for a
/// message's tag to name its kind in a debugger. Take the next free number of a group for a new
/// kind.

/// Commands, in a communicator of the CommandChannel.
inline constexpr int command = 1;
inline constexpr int command_report = 2;
inline constexpr int command_report_text = 3;

/// Within the session's communicator, by calls that both ends make: one after another.
inline constexpr int floats = 77;  ///< collective.h
inline constexpr int nccl_id = 90;
inline constexpr int memory_name = 91;  ///< shared_memory.h
inline constexpr int memory_answer = 92;
inline constexpr int flags_work = 93;  ///< stream_flags.h

/// Messages of the pipeline, in a communicator of the Communicator: one tag per channel, the sender
/// tells links apart. 100 to 102 carry the data over MPI, 120 to 122 say that NCCL's are queued.
constexpr int pipeline(Channel channel) {
    return 100 + static_cast<int>(channel);
}
constexpr int nccl_token(Channel channel) {
    return 120 + static_cast<int>(channel);
}

}  // namespace loratrain::tags
