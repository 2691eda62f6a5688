#include "session/libraries.h"

#include "backend/make_backend.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "io/hdf5_version.h"

namespace loratrain {

std::vector<Library> all_libraries() {
    std::vector<Library> libraries{{"MPI", MpiRuntime::library_version()},
                                   {"HDF5", hdf5_version()}};
    for (const Library& library : backend_libraries()) libraries.push_back(library);
    if (!nccl_version().empty()) libraries.push_back({"NCCL", nccl_version()});
    for (const Library& library : libraries_of_the_build()) libraries.push_back(library);
    return libraries;
}

}  // namespace loratrain
