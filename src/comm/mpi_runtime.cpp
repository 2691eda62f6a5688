#include "comm/mpi_runtime.h"

#include <array>

#include "comm/mpi_check.h"

namespace loratrain {

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
