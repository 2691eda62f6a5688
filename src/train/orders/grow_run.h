#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "data/loader.h"
#include "train/checkpoint/checkpoint.h"

namespace loratrain {

/// What grows when adapters are added to a run.
struct GrowingRun {
    Job& job;
    Plan& plan;
    DatasetFiles& files;
    std::vector<DatasetInfo>& datasets;  ///< root only, else empty
    RunIdentity& identity;               ///< root only
    bool with_tokens;  ///< this rank reads tokens: it has the embedding or the head
    /// Called on the root when the additions are good on every rank and before anything is written;
    /// may refuse them by InputError.
    std::function<void()> accept;
    bool keeps_records = true;  ///< the root writes what changes of the run directory
};

/// Takes what an inbox file says (`text`, the same on every rank; `source` names it in messages)
/// into the run, on every rank alike: adapters and datasets at the end of the job, their
/// AdapterPlan and what else changes in the plan, open data files; on the root also resolved.yaml
/// and plan.yaml of the run directory. InputError with every problem on all ranks
/// (config/inbox_yaml.h, data files, init_from, plan/deploy/extend_plan.h, accept); then nothing
/// has changed. No file of `files` may be read at the same time. Collective.
void grow_run(const MpiSession& mpi, const GrowingRun& run, const std::string& text,
              const std::string& source);

}  // namespace loratrain
