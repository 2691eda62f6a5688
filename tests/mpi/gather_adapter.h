#pragma once

#include <map>
#include <vector>

#include "comm/collective.h"
#include "train/checkpoint/adapter_transfer.h"

namespace loratrain::mpi_test {

/// An adapter's tensors of one part, whole, on the root; empty elsewhere. Every rank has sent its
/// values before the root puts them together. Error on the root when ranks differ in what they
/// should all have. Collective.
inline std::vector<NamedTensor> gather_adapter(const MpiSession& mpi, const Job& job,
                                               const Plan& plan, AdapterBank& bank,
                                               AdapterId adapter, AdapterBank::Part part) {
    const std::vector<float> mine = bank.numbers(adapter, part);
    if (!mpi.is_root()) {
        send_floats(mpi, mine, 0);
        return {};
    }
    std::map<std::int32_t, std::vector<float>> all{{0, mine}};
    for (int rank = 1; rank < mpi.size(); ++rank) all[rank] = receive_floats(mpi, rank);
    const auto values_of = [&](std::int32_t rank) { return std::span<const float>(all.at(rank)); };
    if (plan.replicas.size() > 1) check_copies(job, plan, adapter, values_of);
    return join_values(job, plan, adapter, part, values_of);
}

}  // namespace loratrain::mpi_test
