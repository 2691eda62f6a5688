#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/json_text.h"

namespace loratrain {

/// How much of what an adapter learned is left in a merged model of few bits.
///
/// Of one linear, W is the base's weight, D = scaling B A the trained change, Q what the written
/// codes of a weight stand for, and R = Q(W + D) - Q(W) the change that is left:
///   share     <R, D> / <D, D>: 1 = all, 0 = nothing. It is small where W lies on numbers of Q, as
///             that of a base in the same format does: changes below half a step are rounded away.
///   cosine    <R, D> / (|R| |D|), 0 if R = 0. Where W lies anywhere, some weights go a whole step
///             and others none: the share is near 1, and the cosine tells how noisy R is.
///   rounding  |Q(W + D) - (W + D)| / |D|: the error of the written weights over the change
/// Sums are in fp64, row by row in order, so that they do not depend on the number of threads.
struct ChangeSums {
    double change = 0.0;   ///< <D, D>
    double along = 0.0;    ///< <R, D>
    double left = 0.0;     ///< <R, R>
    double rounded = 0.0;  ///< |Q(W + D) - (W + D)|^2

    /// A row [cols]: D, Q(W), W + D, Q(W + D).
    void add_row(std::int64_t cols, const float* d, const float* base, const float* merged,
                 const float* written);
    void add(const ChangeSums& row);
};

struct SurvivingChange {
    double share = 0.0;
    double cosine = 0.0;
    double rounding = 0.0;
};
/// D is not 0.
SurvivingChange surviving_change(const ChangeSums& sums);

/// Sums of a merged folder's modules by module_path(). One whose B is 0 changes nothing; it is null
/// in the file and left out of the table.
using ChangesOfModules = std::map<std::string, ChangeSums>;

/// Name of the file in the merged folder: {"quantize", "linears": {PATH: {"share", "cosine",
/// "rounding"}}}.
inline constexpr const char* surviving_changes_name = "surviving_changes.json";
Json surviving_changes_json(const ChangesOfModules& changes, const std::string& form);

/// Of all linears of one name (module_name()).
struct SurvivingOfKind {
    std::string kind;
    std::int64_t modules = 0;
    double least = 0.0;  ///< of shares
    double mean = 0.0;
    double most = 0.0;
    double cosine = 0.0;    ///< mean
    double rounding = 0.0;  ///< mean
};
/// In the order of Linear.
std::vector<SurvivingOfKind> surviving_of_kinds(const ChangesOfModules& changes);
/// Of all modules taken as one; none where no module changes.
std::optional<SurvivingChange> surviving_of_all(const ChangesOfModules& changes);
/// The share of all modules below which a merged model has lost most of what was learned.
inline constexpr double share_that_is_little = 0.5;
/// Lines of a table, a heading first.
std::string surviving_text(const std::vector<SurvivingOfKind>& kinds);

}  // namespace loratrain
