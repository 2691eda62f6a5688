#include "comm/mpi_session.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"
#include "comm/mpi_check.h"

namespace loratrain {

namespace {

std::vector<std::string> gather_hosts(int size) {
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    MPI_CHECK(MPI_Get_processor_name(name.data(), &length));
    std::vector<char> all(static_cast<std::size_t>(size) * name.size());
    const int count = static_cast<int>(name.size());
    MPI_CHECK(
        MPI_Allgather(name.data(), count, MPI_CHAR, all.data(), count, MPI_CHAR, MPI_COMM_WORLD));
    std::vector<std::string> hosts;
    hosts.reserve(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
        hosts.emplace_back(all.data() + static_cast<std::size_t>(r) * name.size());
    }
    return hosts;
}

/// Those that this process may run on.
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

}  // namespace

void fail_mpi(int code, const char* expression, const char* file, int line) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw Error(cat(file, ":", line, ": ", expression, ": ", text.data()));
}

MpiSession::MpiSession(int* argc, char*** argv) {
    int provided = 0;
    MPI_CHECK(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size_));
    MPI_Comm node = MPI_COMM_NULL;
    MPI_CHECK(
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node));
    MPI_CHECK(MPI_Comm_rank(node, &local_rank_));
    MPI_CHECK(MPI_Comm_size(node, &local_size_));
    host_processors_ = processors_of_all(node);
    MPI_CHECK(MPI_Comm_free(&node));
    hosts_ = gather_hosts(size_);
    host_ = hosts_[static_cast<std::size_t>(rank_)];
}

MpiSession::~MpiSession() {
    MPI_Finalize();
}

std::string MpiSession::library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string version(text.data());
    return version.substr(0, version.find(','));
}

void MpiSession::abort(int exit_code) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
}

int threads_per_rank(const MpiSession& mpi) {
    return threads_per_rank(mpi, mpi.local_size());
}

int threads_per_rank(const MpiSession& mpi, int local_size) {
    const char* wanted = std::getenv("OMP_NUM_THREADS");
    if (wanted != nullptr && std::atoi(wanted) > 0) return std::atoi(wanted);
    const cpu_set_t set = bound_processors();
    const int bound = CPU_COUNT(&set);
    const bool bound_apart = bound * local_size <= mpi.host_processors();
    return bound_apart ? bound : std::max(1, mpi.host_processors() / local_size);
}

}  // namespace loratrain
