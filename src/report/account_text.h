#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/text.h"
#include "io/run_files/run_account.h"

namespace loratrain {

/// The table of where a run's time went, and the lines below it.

/// Table of the run's time: a head, a row per phase in which any rank spent time, and their sum.
/// For one start it has the mean, minimum and maximum of seconds over the ranks, and the share of
/// wall time. With several starts it has in addition the seconds of all starts and their share.
std::vector<TextRow> account_rows(const RunAccount& start, const RunAccount& all,
                                  std::size_t starts);

/// Table of forward and backward: a head, and their shares by kind of work, which are estimated
/// with the plan's costs. Empty if nothing was trained.
std::vector<TextRow> kind_rows(const RunAccount& account);

/// Lines about speed, work compared with the device's peak, and energy; with several starts their
/// sum.
std::vector<std::string> account_notes(const RunAccount& start, const RunAccount& all,
                                       std::size_t starts);

/// The whole account that is printed at the end of a run. `all` is sum_of() the run's `starts`.
std::string account_text(const RunAccount& start, const RunAccount& all, std::size_t starts);

}  // namespace loratrain
