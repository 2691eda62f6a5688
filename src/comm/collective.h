#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"

namespace loratrain {

/// Runs `work` on every rank; when any rank threw, every rank throws: InputError with all ranks'
/// problems (each once), else Error with the first failing rank's text. Collective;
/// for setting up only (design.md "Two error regimes").
void agree(const MpiSession& mpi, const std::function<void()>& work);

/// Does collective work that is not agreed on: a rank that fails in it alone says where (`what`)
/// and ends the program, as the others wait for it. InputError is passed on: all ranks throw it.
void together(const MpiSession& mpi, const char* what, const std::function<void()>& work);

/// Does `work` on every rank, which go on without what it does where one cannot: why the first of
/// them failed, "rank 3: ...", or "" where none did. Collective.
std::string shared_refusal(const MpiSession& mpi, const std::function<void()>& work);

/// Root's text on every rank, any length. Collective.
std::string broadcast_text(const MpiSession& mpi, const std::string& text, int root = 0);

/// True when any rank says so. Collective.
bool any_rank(const MpiSession& mpi, bool value);

/// Every rank's number, in rank order. Collective.
std::vector<std::uint64_t> gather_numbers(const MpiSession& mpi, std::uint64_t value);
std::vector<double> gather_numbers(const MpiSession& mpi, double value);

/// Every rank's text, in rank order. Collective.
std::vector<std::string> gather_texts(const MpiSession& mpi, const std::string& text);

void barrier(const MpiSession& mpi);

/// The same, but looks only every millisecond: who waits leaves the processor to others.
void quiet_barrier(const MpiSession& mpi);

/// Blocking transfer of floats between two ranks, any count.
void send_floats(const MpiSession& mpi, const std::vector<float>& values, int target);
std::vector<float> receive_floats(const MpiSession& mpi, int source);

}  // namespace loratrain
