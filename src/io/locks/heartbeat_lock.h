#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.h"

namespace loratrain {

/// "process 7 on node3, Slurm job 12": this process, for the person who finds its lock.
std::string this_process_text();

/// The error of a lock that a live process holds.
InputError in_use(const std::string& path, const std::string& what, const std::string& holder);

/// Seconds, and what happens when another process has taken the lock away.
struct HeartbeatOptions {
    double beat = 10.0;      ///< between two signs of life
    double patience = 60.0;  ///< without one the holder counts as dead
    double settle = 1.0;     ///< until a lock taken over is looked at again
    /// Called once, on the thread of the lock; the default ends the process with an error.
    std::function<void(const std::string& message)> lost;
};

/// Exclusive lock for file systems without flock: a file that only one process can create, that
/// says who did, and that its holder touches every so often. The lock of a dead process is taken
/// over: at once where the process table of this machine or Slurm (an earlier start of the same
/// job) tells that it is dead, else after watching the file for as long as the patience lasts, by
/// the clock of this process alone. Two that take over at the same moment see in the end which of
/// them has it. A holder that was suspended beyond the patience finds its lock gone and ends.
class HeartbeatLock {
  public:
    /// Throws InputError when another live process holds it; `what` names the protected thing.
    HeartbeatLock(std::string path, const std::string& what, HeartbeatOptions options = {});
    /// Removes the file.
    ~HeartbeatLock();
    HeartbeatLock(const HeartbeatLock&) = delete;
    HeartbeatLock& operator=(const HeartbeatLock&) = delete;

    const std::string& path() const { return path_; }
    /// The holder before where it died without releasing the lock, else "".
    const std::string& left_behind() const { return left_behind_; }

  private:
    void acquire(const std::string& what);
    void take_over(const std::string& dead, const std::string& what);
    void keep_alive();
    bool still_held();

    std::string path_;
    std::string mine_;  ///< contents of the file while this object holds it
    HeartbeatOptions options_;
    std::string left_behind_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool done_ = false;
    std::thread thread_;
};

}  // namespace loratrain
