#pragma once

#include <string>
#include <vector>

#include "base/wire.h"
#include "comm/collective.h"

/// Values of any type that has fields (base/archive.h), as collective.h has texts.
namespace loratrain {

/// The root's value on every rank. Collective.
template <class T>
T broadcast(const MpiSession& mpi, const T& value, int root = 0) {
    const std::string own = mpi.rank() == root ? to_wire(value) : "";
    return from_wire<T>(broadcast_text(mpi, own, root), "what another rank has sent");
}

/// Every rank's value, in rank order. Collective.
template <class T>
std::vector<T> gather(const MpiSession& mpi, const T& value) {
    std::vector<T> values;
    for (const std::string& text : gather_texts(mpi, to_wire(value))) {
        values.push_back(from_wire<T>(text, "what another rank has sent"));
    }
    return values;
}

}  // namespace loratrain
