#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/deployments/find_deployments.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// What a dry run advises where stages are idle.

/// Mean idle share of the stages from which a dry run says what would help.
inline constexpr double idle_worth_advice = 0.15;

/// A change of the job that keeps the stages of a pipeline busier.
struct IdleRemedy {
    std::string change;                    ///< "8 adapters at once instead of 4"
    std::int32_t ranks = 1;                ///< ranks that the changed job takes
    std::optional<Prediction> prediction;  ///< none = the changed job does not fit
};

/// Changes that may leave the stages less idle than `own`, the prediction of `plan`. Empty if the
/// idle share of `own` is below idle_worth_advice. Each change is predicted as `own` was, and
/// planned with the plan's sizes of microbatches if these fit; more adapters otherwise with the
/// smallest sizes.
/// - more adapters at once, with policies that train several: all adapters if max_adapters keeps
///   some waiting; twice as many, each one twice, if none waits;
/// - larger global batches: two and four times the samples of every adapter;
/// - half and a quarter of the stages, on as many ranks, if the job gives no deployment;
/// - the two fastest deployments of several replicas that were `found`, other than the plan's own.
std::vector<IdleRemedy> idle_remedies(const Job& job, const Plan& plan,
                                      std::span<const DatasetInfo> datasets, const Cluster& cluster,
                                      std::int32_t rounds, const Prediction& own,
                                      const FoundDeployments& found);

}  // namespace loratrain
