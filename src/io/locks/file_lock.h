#pragma once

#include <memory>
#include <string>

namespace loratrain {

class HeartbeatLock;

/// Exclusive lock on a file, held until destruction or process death (flock). On a file system
/// without flock it is a HeartbeatLock on <path>.held.
class FileLock {
  public:
    /// Throws InputError when another live process holds it; `what` names the protected thing.
    FileLock(const std::string& path, const std::string& what);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

    /// The holder before ("process 7 on node3") where it died without releasing the lock, else "".
    const std::string& left_behind() const { return left_behind_; }
    /// Why there is no flock and what is used instead; "" = it is flock.
    const std::string& substitute() const { return substitute_; }

  private:
    int descriptor_ = -1;
    std::string left_behind_;
    std::string substitute_;
    std::unique_ptr<HeartbeatLock> heartbeat_;
};

}  // namespace loratrain
