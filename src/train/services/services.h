#pragma once

#include <vector>

#include "train/services/admission.h"
#include "train/services/arrivals.h"
#include "train/services/bests.h"
#include "train/services/checkpoints.h"
#include "train/services/dispatch.h"
#include "train/services/evaluations.h"
#include "train/services/exports.h"
#include "train/services/growth.h"
#include "train/services/loss_references.h"
#include "train/services/redeployment.h"
#include "train/services/rollouts.h"
#include "train/services/rungs.h"
#include "train/services/step_exports.h"
#include "train/services/steps.h"
#include "train/services/texts.h"

namespace loratrain {

/// All tasks of a worker beside training. Sets worker.services, and hands the services to the
/// stream in order().
struct Services {
    Services(Worker& worker, DispatcherLink& dispatcher);

    /// The order in which the stream calls services:
    /// - a checkpoint notes a step before evaluations are judged, and begins before exports;
    /// - what an export needs is asked behind admission, and taken before a best state keeps it;
    /// - rollouts are written before arrivals looks for their file;
    /// - evaluations, orders and rungs decide who goes before others are admitted;
    /// - redeployment is asked last, when nothing else ends the stream.
    std::vector<Service*> order();

    StepService steps;
    RolloutService rollouts;
    ArrivalService arrivals;
    CheckpointService checkpoints;
    EvaluationService evaluations;
    DispatchService dispatch;
    GrowthService growth;
    RungService rungs;
    AdmissionService admission;
    StepExportService step_exports;
    BestService bests;
    ExportService exports;
    TextService texts;
    RedeployService redeployment;
    References references;  ///< not asked in the stream
};

}  // namespace loratrain
