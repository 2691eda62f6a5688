#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

namespace loratrain {

/// MPI: start and end of the library, and groups of ranks with a communicator of their own.

/// Throws Error with the expression and MPI's text.
[[noreturn]] void fail_mpi(int code, const char* expression, const char* file, int line);

/// The ranks that work on one job: all ranks of the program (MpiRuntime::world()) or a part of them
/// (split()). Functions that take an MpiSession count ranks within it and have its rank 0 as root.
/// Messages of different sessions never meet.
class MpiSession {
  public:
    MpiSession(MpiSession&& other) noexcept;
    /// Collective for a session that split() made; everything made from it must be gone.
    ~MpiSession();
    MpiSession(const MpiSession&) = delete;
    MpiSession& operator=(const MpiSession&) = delete;
    MpiSession& operator=(MpiSession&&) = delete;

    /// The ranks of this session that give the same `color` (>= 0), ordered by `key`, then by rank.
    /// Collective.
    MpiSession split(int color, int key = 0) const;

    MPI_Comm comm() const { return comm_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    bool is_root() const { return rank_ == 0; }
    /// Place among the session's ranks on this host.
    int local_rank() const { return local_.rank; }
    int local_size() const { return local_.size; }
    const std::string& host() const { return hosts_[static_cast<std::size_t>(rank_)]; }
    /// Hosts of the session's ranks, in rank order. LORATRAIN_HOST replaces a rank's host for
    /// tests: ranks with different values count as on several hosts.
    const std::vector<std::string>& hosts() const { return hosts_; }

    /// Place among all ranks of the program on this host, of any session; chooses the GPU.
    int host_rank() const { return host_.rank; }
    /// Number of the program's ranks on this host, which share its processors and memory.
    int host_size() const { return host_.size; }
    /// Number of processors that these ranks may run on, in total.
    int host_processors() const { return host_processors_; }

    /// Ends the program at once, on all ranks of all sessions: the second error regime, in which
    /// calls may be in flight (design.md). May be called on any thread.
    [[noreturn]] static void abort(int exit_code);
    /// Sets what abort() does first; {} = nothing.
    static void before_abort(std::function<void()> act);
    /// Sets what abort() does next, with the exit code; {} = nothing.
    static void at_abort(std::function<void(int exit_code)> act);

  private:
    friend class MpiRuntime;
    /// A rank and the number of ranks.
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

/// MPI from start to end; one per process. Construction and destruction are collective over all
/// processes of the program.
class MpiRuntime {
  public:
    MpiRuntime(int* argc, char*** argv);

    /// All ranks of the program.
    const MpiSession& world() const { return world_; }
    /// "Open MPI v4.1.4"
    static std::string library_version();

  private:
    struct Library {
        Library(int* argc, char*** argv);
        ~Library();
        Library(const Library&) = delete;
        Library& operator=(const Library&) = delete;
    };

    Library library_;
    MpiSession world_;
};

/// OpenMP threads for this rank: OMP_NUM_THREADS if set; else the processors to which this process
/// is bound, divided among the program's ranks on the host if several ranks are bound to the same
/// processors. InputError for more threads than OpenMP can be expected to start.
int threads_per_rank(const MpiSession& mpi);
/// threads_per_rank() if `host_size` ranks had been started on this host.
int threads_per_rank(const MpiSession& mpi, int host_size);

}  // namespace loratrain

/// Throws Error if an MPI call fails.
#define MPI_CHECK(call)                                                           \
    do {                                                                          \
        const int loratrain_mpi_code = (call);                                    \
        if (loratrain_mpi_code != MPI_SUCCESS) {                                  \
            ::loratrain::fail_mpi(loratrain_mpi_code, #call, __FILE__, __LINE__); \
        }                                                                         \
    } while (false)
