#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace loratrain {

/// Exclusive locks on files between processes: flock, and a substitute for file systems without it.

/// "process 7 on node3, Slurm job 12": this process, for a person who finds its lock.
std::string this_process_text();

/// Seconds, and what happens when another process has taken the lock away.
struct HeartbeatOptions {
    double beat = 10.0;      ///< between two heartbeats
    double patience = 60.0;  ///< after so long without a heartbeat, the holder counts as dead
    double settle = 1.0;     ///< after a takeover, before the lock is looked at again
    /// Called once, on the lock's thread; by default ends the process with an error.
    std::function<void(const std::string& message)> lost;
};

/// Exclusive lock for file systems without flock: a file that only one process can create, with the
/// name of its holder, which touches it every `beat` seconds.
///
/// A process takes over the lock of a dead one
///   - at once if the process table of this machine, or Slurm (an earlier start of the same job),
///     shows that the holder is dead,
///   - else after watching the file for `patience` seconds by its own clock.
/// Of two processes that take over at the same moment, one finds afterwards that it has the lock. A
/// holder that was suspended for more than `patience` finds its lock gone and ends.
class HeartbeatLock {
  public:
    /// Throws InputError if another live process holds the lock; `what` names the protected thing.
    HeartbeatLock(std::string path, const std::string& what, HeartbeatOptions options = {});
    /// Removes the file.
    ~HeartbeatLock();
    HeartbeatLock(const HeartbeatLock&) = delete;
    HeartbeatLock& operator=(const HeartbeatLock&) = delete;

    const std::string& path() const { return path_; }
    /// The holder before, if it died without releasing the lock; else "".
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

/// Exclusive lock on a file (flock), held until destruction or the end of the process. On a file
/// system without flock it is a HeartbeatLock on <path>.held.
class FileLock {
  public:
    /// Throws InputError if another live process holds the lock; `what` names the protected thing.
    FileLock(const std::string& path, const std::string& what);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

    /// The holder before ("process 7 on node3") if it died without releasing the lock; else "".
    const std::string& left_behind() const { return left_behind_; }
    /// Why flock is not used, and what is used instead; "" = flock is used.
    const std::string& substitute() const { return substitute_; }

  private:
    int descriptor_ = -1;
    std::string left_behind_;
    std::string substitute_;
    std::unique_ptr<HeartbeatLock> heartbeat_;
};

}  // namespace loratrain
