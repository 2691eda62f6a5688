#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/text.h"
#include "io/run_files/run_account.h"

namespace loratrain {

/// A head and a row per phase in which any rank spent time, then their sum: seconds of one start as
/// mean, minimum and maximum over its ranks, and the share of its wall time. With several starts
/// the seconds of all of them and their share besides.
std::vector<TextRow> account_rows(const RunAccount& start, const RunAccount& all,
                                  std::size_t starts);

/// A head and rows for forward and backward: their shares by kind of work, which the plan's costs
/// estimate. Empty if nothing was trained.
std::vector<TextRow> kind_rows(const RunAccount& account);

/// Lines about speed, work beside the device's peak, energy, and with several starts their sum.
std::vector<std::string> account_notes(const RunAccount& start, const RunAccount& all,
                                       std::size_t starts);

/// All of it, as a run ends with it. `all`: sum_of() the run's `starts`.
std::string account_text(const RunAccount& start, const RunAccount& all, std::size_t starts);

}  // namespace loratrain
