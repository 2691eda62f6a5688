#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace loratrain {

/// MPI from start-up to shutdown. Collective construction and destruction; one per process.
class MpiSession {
  public:
    MpiSession(int* argc, char*** argv);
    ~MpiSession();
    MpiSession(const MpiSession&) = delete;
    MpiSession& operator=(const MpiSession&) = delete;

    MPI_Comm world() const { return MPI_COMM_WORLD; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    bool is_root() const { return rank_ == 0; }
    int local_rank() const { return local_rank_; }  ///< rank among those of this host
    int local_size() const { return local_size_; }
    /// Processors that this host's ranks may run on, all together.
    int host_processors() const { return host_processors_; }
    const std::string& host() const { return host_; }
    /// Hosts of all ranks, in rank order.
    const std::vector<std::string>& hosts() const { return hosts_; }
    static std::string library_version();

    /// Ends the whole job at once: the second error regime (calls may be in flight).
    [[noreturn]] static void abort(int exit_code);

  private:
    int rank_ = 0;
    int size_ = 1;
    int local_rank_ = 0;
    int local_size_ = 1;
    int host_processors_ = 1;
    std::string host_;
    std::vector<std::string> hosts_;
};

/// OpenMP threads for this rank: OMP_NUM_THREADS where set; else the processors this process is
/// bound to, shared among the ranks of the host when they are not bound apart.
int threads_per_rank(const MpiSession& mpi);
/// The same if so many ranks had been started on this host.
int threads_per_rank(const MpiSession& mpi, int local_size);

}  // namespace loratrain
