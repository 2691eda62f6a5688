#include "plan/milp.h"

#ifdef LORATRAIN_HAVE_CBC

#include <coin/CbcHeuristic.hpp>
#include <coin/CbcModel.hpp>
#include <coin/CglKnapsackCover.hpp>
#include <coin/CglProbing.hpp>
#include <coin/CoinPackedMatrix.hpp>
#include <coin/OsiClpSolverInterface.hpp>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace loratrain {

namespace {

double bound(double value) {
    return std::isinf(value) ? std::copysign(COIN_DBL_MAX, value) : value;
}

CoinPackedMatrix matrix_of(const Milp& problem) {
    CoinPackedMatrix matrix(false, 0.0, 0.0);
    matrix.setDimensions(0, static_cast<int>(problem.columns.size()));
    for (const Milp::Row& row : problem.rows) {
        CoinPackedVector vector;
        vector.reserve(static_cast<int>(row.terms.size()));
        for (const Milp::Term& term : row.terms) vector.insert(term.column, term.factor);
        matrix.appendRow(vector);
    }
    return matrix;
}

void load(const Milp& problem, OsiClpSolverInterface& solver) {
    std::vector<double> lower;
    std::vector<double> upper;
    std::vector<double> objective;
    std::vector<double> row_lower;
    std::vector<double> row_upper;
    for (const Milp::Column& column : problem.columns) {
        lower.push_back(bound(column.lower));
        upper.push_back(bound(column.upper));
        objective.push_back(column.objective);
    }
    for (const Milp::Row& row : problem.rows) {
        row_lower.push_back(bound(row.lower));
        row_upper.push_back(bound(row.upper));
    }
    solver.loadProblem(matrix_of(problem), lower.data(), upper.data(), objective.data(),
                       row_lower.data(), row_upper.data());
    for (std::size_t c = 0; c < problem.columns.size(); ++c) {
        if (problem.columns[c].integer) solver.setInteger(static_cast<int>(c));
    }
}

void add_methods(CbcModel& model) {
    CglKnapsackCover covers;
    CglProbing probing;
    probing.setUsingObjective(1);
    probing.setMaxPass(1);
    probing.setMaxProbe(10);
    model.addCutGenerator(&probing, -1, "probing");
    model.addCutGenerator(&covers, -1, "knapsack cover");
    CbcRounding rounding(model);
    model.addHeuristic(&rounding);
}

int at_most(std::int64_t limit) {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    return static_cast<int>(std::clamp<std::int64_t>(limit, 1, most));
}

void set_limits(CbcModel& model, const MilpLimits& limits) {
    model.setMaximumNodes(at_most(limits.nodes));
    model.setMaximumNumberIterations(at_most(limits.iterations));
    if (!limits.tries_branches) {
        model.setNumberStrong(0);
        model.setNumberBeforeTrust(0);
    }
    if (std::isfinite(limits.seconds)) {
        model.setUseElapsedTime(true);
        model.setMaximumSeconds(limits.seconds);
    }
    if (std::isfinite(limits.cutoff)) model.setCutoff(limits.cutoff);
}

}  // namespace

bool milp_available() {
    return true;
}

std::optional<MilpSolution> solve_milp(const Milp& problem, const MilpLimits& limits) {
    OsiClpSolverInterface solver;
    solver.messageHandler()->setLogLevel(0);
    solver.getModelPtr()->setLogLevel(0);
    load(problem, solver);
    solver.initialSolve();
    if (!solver.isProvenOptimal()) return std::nullopt;
    CbcModel model(solver);
    model.setLogLevel(0);
    model.messageHandler()->setLogLevel(0);
    model.solver()->messageHandler()->setLogLevel(0);
    add_methods(model);
    set_limits(model, limits);
    model.branchAndBound();
    if (model.bestSolution() == nullptr) return std::nullopt;
    MilpSolution solution;
    solution.values.assign(model.bestSolution(), model.bestSolution() + problem.columns.size());
    for (std::size_t c = 0; c < problem.columns.size(); ++c) {
        if (problem.columns[c].integer) solution.values[c] = std::round(solution.values[c]);
        solution.objective += problem.columns[c].objective * solution.values[c];
    }
    if (solution.objective >= limits.cutoff) return std::nullopt;
    solution.optimal = model.isProvenOptimal();
    return solution;
}

}  // namespace loratrain

#else

namespace loratrain {

bool milp_available() {
    return false;
}

std::optional<MilpSolution> solve_milp(const Milp&, const MilpLimits&) {
    return std::nullopt;
}

}  // namespace loratrain

#endif
