#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

namespace loratrain {

/// The ranks that work on one job, with a communicator of their own: all of the program's
/// (MpiRuntime::world()) or a part of them (split()). Whatever takes an MpiSession is collective
/// over it, counts ranks in it, has its rank 0 as root, and cannot meet messages of another one.
class MpiSession {
  public:
    MpiSession(MpiSession&& other) noexcept;
    /// Of what split() made: collective, once all that was made from it is gone.
    ~MpiSession();
    MpiSession(const MpiSession&) = delete;
    MpiSession& operator=(const MpiSession&) = delete;
    MpiSession& operator=(MpiSession&&) = delete;

    /// Those ranks of this session that give the same `color` (not negative), by rising `key`, then
    /// rank. Collective.
    MpiSession split(int color, int key = 0) const;

    MPI_Comm comm() const { return comm_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    bool is_root() const { return rank_ == 0; }
    int local_rank() const { return local_.rank; }  ///< rank among the session's of this host
    int local_size() const { return local_.size; }
    const std::string& host() const { return hosts_[static_cast<std::size_t>(rank_)]; }
    /// Hosts of the session's ranks, in rank order; for a test, what LORATRAIN_HOST says: ranks
    /// with unlike ones count as on several hosts, also where these are one.
    const std::vector<std::string>& hosts() const { return hosts_; }

    /// Rank among all of the program's on this host, whatever their session: chooses the GPU.
    int host_rank() const { return host_.rank; }
    int host_size() const { return host_.size; }  ///< those share the host's processors and memory
    /// Processors that they may run on, all together.
    int host_processors() const { return host_processors_; }

    /// Ends the program at once, on all ranks of all sessions: the second error regime (calls may
    /// be in flight).
    [[noreturn]] static void abort(int exit_code);
    /// What abort() does first; one at a time, {} = nothing.
    static void before_abort(std::function<void()> act);
    /// What it then tells its exit code, of whichever thread; one at a time, {} = nothing.
    static void at_abort(std::function<void(int exit_code)> act);

  private:
    friend class MpiRuntime;
    /// A rank's number and their count.
    struct Place {
        int rank = 0;
        int size = 1;
    };

    /// All ranks.
    MpiSession();
    MpiSession(MPI_Comm comm, const MpiSession& whole);
    static Place place_in(MPI_Comm comm);
    void look_around();

    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
    Place local_;
    Place host_;
    int host_processors_ = 1;
    std::vector<std::string> hosts_;
};

/// OpenMP threads for this rank: OMP_NUM_THREADS where set; else the processors this process is
/// bound to, shared among the program's ranks of the host when they are not bound apart. InputError
/// for more than OpenMP can be expected to start.
int threads_per_rank(const MpiSession& mpi);
/// The same if so many ranks had been started on this host.
int threads_per_rank(const MpiSession& mpi, int host_size);

}  // namespace loratrain
