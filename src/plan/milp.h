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

/// Limits of the search. If one is reached, the best solution so far counts. Nodes and iterations
/// do not depend on how busy the processors are: equal problems have equal solutions.
struct MilpLimits {
    std::int64_t nodes = 1000;  ///< of branch and bound
    /// Of the simplex method, over all nodes: several seconds of the largest problems.
    std::int64_t iterations = 100'000;
    bool tries_branches = true;  ///< strong branching: seldom worth it where all costs are 0
    /// Wall clock: none, but where a job says so (schedule.solver_seconds).
    double seconds = std::numeric_limits<double>::infinity();
    /// Only solutions with a lower objective are of interest.
    double cutoff = std::numeric_limits<double>::infinity();
};

struct MilpSolution {
    std::vector<double> values;  ///< per column; integer columns are whole numbers
    double objective = 0.0;
    bool optimal = false;  ///< proved
};

/// True if this program was built with a solver (COIN-OR CBC).
bool milp_available();

/// Solves the problem on the calling thread and prints nothing. None if it is infeasible, if
/// nothing below the cutoff was found within the limits, or without a solver. Thread-safe: each
/// call has its own model and LP solver, and CBC's global state (its main program) is not used.
std::optional<MilpSolution> solve_milp(const Milp& problem, const MilpLimits& limits);

}  // namespace loratrain
