#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace loratrain {

/// A mixed-integer linear program: minimise sum objective_c * x_c subject to rows and bounds.
struct Milp {
    struct Column {
        double lower = 0.0;
        double upper = 1.0;
        double objective = 0.0;
        bool integer = true;
    };
    struct Term {
        int column = 0;
        double factor = 0.0;
    };
    struct Row {
        double lower = -std::numeric_limits<double>::infinity();
        double upper = std::numeric_limits<double>::infinity();
        std::vector<Term> terms;  ///< each column at most once
    };
    std::vector<Column> columns;
    std::vector<Row> rows;
};

/// Where the search ends before it has proved an optimum; the best solution found counts then.
struct MilpLimits {
    std::int64_t nodes = 1000;  ///< of branch and bound: what normally ends it, deterministic
    /// Wall clock, a safety net only: generous, as planning shares the processors with training and
    /// what a solve finds must not depend on that.
    double seconds = 10.0;
    /// Only solutions with an objective below this one are of interest.
    double cutoff = std::numeric_limits<double>::infinity();
};

struct MilpSolution {
    std::vector<double> values;  ///< per column; integer columns are whole numbers
    double objective = 0.0;
    bool optimal = false;  ///< proved
};

/// Whether this program was built with a solver (COIN-OR CBC).
bool milp_available();

/// None: infeasible, nothing below the cutoff found within the limits, or no solver. Prints
/// nothing; one thread per call. Calls from several threads do not disturb each other: each has
/// its own model and LP solver, and CBC's library-wide state (its main program) is not used.
std::optional<MilpSolution> solve_milp(const Milp& problem, const MilpLimits& limits);

}  // namespace loratrain
