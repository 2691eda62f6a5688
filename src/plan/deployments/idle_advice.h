#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/deployments/find_deployments.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// Mean idle share of the stages from which on a dry run says what would help.
inline constexpr double idle_worth_advice = 0.15;

/// The job with one thing changed that keeps the stages of a pipeline busier.
struct IdleRemedy {
    std::string change;                    ///< "8 adapters at once instead of 4"
    std::int32_t ranks = 1;                ///< that it takes
    std::optional<Prediction> prediction;  ///< none = the job does not fit then
};

/// What would leave the stages less idle than the `own` prediction of `plan` says, each predicted
/// as own was and planned in the plan's sizes of microbatches, where these fit, more adapters else
/// in the smallest; none where own's idle share is below idle_worth_advice.
/// - more adapters at once, with policies that train several: all of them where max_adapters keeps
///   some waiting, twice as many (each there twice) where none waits;
/// - larger global batches: twice and four times the samples of every adapter;
/// - half and a quarter of the stages, on as many ranks, where the job gives no deployment;
/// - the two fastest deployments of several replicas that were `found`, but the plan's own.
std::vector<IdleRemedy> idle_remedies(const Job& job, const Plan& plan,
                                      std::span<const DatasetInfo> datasets, const Cluster& cluster,
                                      std::int32_t rounds, const Prediction& own,
                                      const FoundDeployments& found);

}  // namespace loratrain
