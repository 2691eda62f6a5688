#include "comm/mpi_session.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/system.h"

namespace loratrain {

namespace {

/// Replaces the name of a rank's host, for tests.
constexpr const char* host_variable = "LORATRAIN_HOST";

std::vector<std::string> gather_hosts(MPI_Comm comm, int size) {
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    MPI_CHECK(MPI_Get_processor_name(name.data(), &length));
    const std::string other = environment(host_variable);
    if (!other.empty()) {
        name = {};
        other.copy(name.data(), name.size() - 1);
    }
    std::vector<char> all(static_cast<std::size_t>(size) * name.size());
    const int count = static_cast<int>(name.size());
    MPI_CHECK(MPI_Allgather(name.data(), count, MPI_CHAR, all.data(), count, MPI_CHAR, comm));
    std::vector<std::string> hosts;
    hosts.reserve(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
        hosts.emplace_back(all.data() + static_cast<std::size_t>(r) * name.size());
    }
    return hosts;
}

/// The processors on which this process may run.
cpu_set_t bound_processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_SET(0, &set);
    return set;
}

int processors_of_all(MPI_Comm node) {
    cpu_set_t set = bound_processors();
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, &set, sizeof(set), MPI_BYTE, MPI_BOR, node));
    return CPU_COUNT(&set);
}

/// The ranks of a communicator that share this rank's memory and host name.
class Node {
  public:
    Node(MPI_Comm comm, int rank, const std::vector<std::string>& hosts) {
        const auto first =
            std::find(hosts.begin(), hosts.end(), hosts[static_cast<std::size_t>(rank)]);
        MPI_Comm sharing = MPI_COMM_NULL;
        MPI_CHECK(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &sharing));
        MPI_CHECK(MPI_Comm_split(sharing, static_cast<int>(first - hosts.begin()), rank, &node_));
        MPI_CHECK(MPI_Comm_free(&sharing));
    }
    ~Node() { MPI_Comm_free(&node_); }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    MPI_Comm comm() const { return node_; }

  private:
    MPI_Comm node_ = MPI_COMM_NULL;
};

/// The first number of OMP_NUM_THREADS ("8", "8,2"), which may be too large for an int; 0 = none.
int wanted_threads(const char* text) {
    if (text == nullptr) return 0;
    const long number = std::strtol(text, nullptr, 10);
    return static_cast<int>(std::clamp<long>(number, 0, std::numeric_limits<int>::max()));
}

/// Something that abort() does, at most once.
template <class... Arguments>
class AbortHook {
  public:
    using Act = std::function<void(Arguments...)>;
    void set(Act act) {
        const std::lock_guard lock(mutex_);
        act_ = std::move(act);
    }
    void run(Arguments... arguments) {
        const std::lock_guard lock(mutex_);
        if (act_) std::exchange(act_, {})(arguments...);
    }

  private:
    std::mutex mutex_;
    Act act_;
};

AbortHook<> first_at_abort;
AbortHook<int> then_at_abort;

/// Refuses numbers of threads for which OpenMP would end the program without a message.
void check_threads(int threads, int processors, const char* wanted) {
    constexpr int always_allowed = 256;
    const int most = std::max(always_allowed, 4 * processors);
    if (threads <= most) return;
    throw InputError("OMP_NUM_THREADS",
                     cat("'", wanted, "' threads for each rank on a host of ", processors,
                         processors == 1 ? " processor" : " processors"),
                     cat("give at most ", most, ", or leave it out"));
}

}  // namespace

void fail_mpi(int code, const char* expression, const char* file, int line) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw Error(cat(file, ":", line, ": ", expression, ": ", text.data()));
}

MpiSession::MpiSession() : comm_(MPI_COMM_WORLD) {
    look_around();
    host_ = local_;
    host_processors_ = processors_of_all(Node(comm_, rank_, hosts_).comm());
}

MpiSession::MpiSession(MPI_Comm comm, const MpiSession& whole)
    : comm_(comm), host_(whole.host_), host_processors_(whole.host_processors_) {
    MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    look_around();
}

MpiSession::Place MpiSession::place_in(MPI_Comm comm) {
    Place place;
    MPI_CHECK(MPI_Comm_rank(comm, &place.rank));
    MPI_CHECK(MPI_Comm_size(comm, &place.size));
    return place;
}

void MpiSession::look_around() {
    const Place place = place_in(comm_);
    rank_ = place.rank;
    size_ = place.size;
    hosts_ = gather_hosts(comm_, size_);
    local_ = place_in(Node(comm_, rank_, hosts_).comm());
}

MpiSession::MpiSession(MpiSession&& other) noexcept
    : comm_(std::exchange(other.comm_, MPI_COMM_NULL)),
      rank_(other.rank_),
      size_(other.size_),
      local_(other.local_),
      host_(other.host_),
      host_processors_(other.host_processors_),
      hosts_(std::move(other.hosts_)) {}

MpiSession::~MpiSession() {
    if (comm_ != MPI_COMM_WORLD && comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

MpiSession MpiSession::split(int color, int key) const {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_CHECK(MPI_Comm_split(comm_, color, key, &part));
    return {part, *this};
}

void MpiSession::before_abort(std::function<void()> act) {
    first_at_abort.set(std::move(act));
}

void MpiSession::at_abort(std::function<void(int exit_code)> act) {
    then_at_abort.set(std::move(act));
}

void MpiSession::abort(int exit_code) {
    first_at_abort.run();
    then_at_abort.run(exit_code);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
}

int threads_per_rank(const MpiSession& mpi) {
    return threads_per_rank(mpi, mpi.host_size());
}

int threads_per_rank(const MpiSession& mpi, int host_size) {
    const char* wanted = std::getenv("OMP_NUM_THREADS");
    if (const int threads = wanted_threads(wanted); threads > 0) {
        check_threads(threads, mpi.host_processors(), wanted);
        return threads;
    }
    const cpu_set_t set = bound_processors();
    const int bound = CPU_COUNT(&set);
    const bool bound_apart = bound * host_size <= mpi.host_processors();
    return bound_apart ? bound : std::max(1, mpi.host_processors() / host_size);
}

MpiRuntime::Library::Library(int* argc, char*** argv) {
    int provided = 0;
    MPI_CHECK(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
}

MpiRuntime::Library::~Library() {
    MPI_Finalize();
}

MpiRuntime::MpiRuntime(int* argc, char*** argv) : library_(argc, argv) {}

std::string MpiRuntime::library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string version(text.data());
    return version.substr(0, version.find(','));
}

}  // namespace loratrain
