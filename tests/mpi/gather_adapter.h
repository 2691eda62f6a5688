#pragma once

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
    const auto all = gather(mpi, bank.numbers(adapter, part));
    if (!mpi.is_root()) return {};
    const auto values_of = [&](std::int32_t rank) {
        return std::span<const float>(all.at(static_cast<std::size_t>(rank)));
    };
    if (plan.replicas.size() > 1) check_copies(job, plan, adapter, values_of);
    return join_values(job, plan, adapter, part, values_of);
}

}  // namespace loratrain::mpi_test
