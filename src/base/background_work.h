#pragma once

namespace loratrain {

/// What a thread beside the main one does as long as the object, made on it, lives: work that is
/// wanted later, as planning ahead. Its thread keeps a lower priority from then on, and runs on any
/// processor that the system lets this process have, not just on those that the rank computes on;
/// the main thread, as it waits for other ranks, leaves its processor to it. So it takes time that
/// would be idle before it takes time from training.
class BackgroundWork {
  public:
    BackgroundWork();
    ~BackgroundWork();
    BackgroundWork(const BackgroundWork&) = delete;
    BackgroundWork& operator=(const BackgroundWork&) = delete;
};

/// Whether there is any in this process.
bool has_background_work();

}  // namespace loratrain
