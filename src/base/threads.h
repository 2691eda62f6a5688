#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace loratrain {

/// Work on threads: loops shared by several threads, and work in the background.

/// Runs work(0) ... work(count - 1) on at most `threads` threads, the caller's thread included;
/// returns when all are done. Then rethrows the exception of the smallest index, if any threw.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

/// Runs work(begin, end) for consecutive shares of `rows` rows of `cols` numbers each, on as many
/// threads as this process may use if there is enough work to share. Exceptions as parallel_for().
void share_rows(std::int64_t rows, std::int64_t cols,
                const std::function<void(std::int64_t, std::int64_t)>& work);

/// Marks what the current thread does, as long as the object lives, as work that is needed later,
/// such as planning ahead. Such work takes idle time before it takes time from training:
///   - the thread keeps a lower priority from then on,
///   - it may run on all processors that the system gives this process, not just on the rank's own,
///   - the main thread gives its processor away while it waits for other ranks.
class BackgroundWork {
  public:
    BackgroundWork();
    ~BackgroundWork();
    BackgroundWork(const BackgroundWork&) = delete;
    BackgroundWork& operator=(const BackgroundWork&) = delete;
};

/// What goes on beside work on a thread of its own.
enum class Beside : std::uint8_t {
    training,  ///< the work takes idle time
    nothing,   ///< others wait for it
};

/// Does the work on this thread: as BackgroundWork where training goes on beside it, else at the
/// thread's own priority on AllProcessors.
void work_beside(Beside beside, const std::function<void()>& work);

/// While it lives, the current thread, and processes that it starts, may run on all processors that
/// the system gives this process, not just on the rank's own.
class AllProcessors {
  public:
    AllProcessors();
    ~AllProcessors();
    AllProcessors(const AllProcessors&) = delete;
    AllProcessors& operator=(const AllProcessors&) = delete;

  private:
    cpu_set_t former_;
};

/// True while a BackgroundWork lives in this process.
bool has_background_work();

}  // namespace loratrain
