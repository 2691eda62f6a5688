#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/wire.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// Collective calls on the ranks of a session, for setting up and for rare events: agreement about
/// errors, broadcasts, gathers, barriers. Every rank must make the same call.

/// Runs `work` on every rank. If any rank threw, every rank throws: InputError with the problems of
/// all ranks (each once), else Error with the text of the first rank that failed. For setting up
/// only (design.md "Two error regimes").
void agree(const MpiSession& mpi, const std::function<void()>& work);

/// Runs collective work in which ranks do not agree about errors. A rank that fails alone reports
/// where (`what`) and ends the program, since the others wait for it. InputError is rethrown: all
/// ranks throw it.
void together(const MpiSession& mpi, const char* what, const std::function<void()>& work);

/// Runs `work` on every rank and lets all ranks know if it failed on any: returns the reason of the
/// first rank that failed, "rank 3: ...", or "" if none failed.
std::string shared_refusal(const MpiSession& mpi, const std::function<void()>& work);

/// The root's text, of any length, on every rank.
std::string broadcast_text(const MpiSession& mpi, const std::string& text, int root = 0);

/// True on all ranks if `value` is true on any.
bool any_rank(const MpiSession& mpi, bool value);

/// Every rank's number or text, in rank order, on every rank.
std::vector<std::uint64_t> gather_numbers(const MpiSession& mpi, std::uint64_t value);
std::vector<double> gather_numbers(const MpiSession& mpi, double value);
std::vector<std::string> gather_texts(const MpiSession& mpi, const std::string& text);

/// The root's value, of any type with fields() (base/archive.h), on every rank.
template <class T>
T broadcast(const MpiSession& mpi, const T& value, int root = 0) {
    const std::string own = mpi.rank() == root ? to_wire(value) : "";
    return from_wire<T>(broadcast_text(mpi, own, root), "what another rank has sent");
}

/// Every rank's value, of any type with fields(), in rank order, on every rank.
template <class T>
std::vector<T> gather(const MpiSession& mpi, const T& value) {
    std::vector<T> values;
    for (const std::string& text : gather_texts(mpi, to_wire(value))) {
        values.push_back(from_wire<T>(text, "what another rank has sent"));
    }
    return values;
}

void barrier(const MpiSession& mpi);
/// A barrier that polls once a millisecond, so that waiting ranks leave their processors to others.
void quiet_barrier(const MpiSession& mpi);

}  // namespace loratrain
