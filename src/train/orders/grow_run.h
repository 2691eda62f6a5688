#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/inbox_yaml.h"
#include "data/loader.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/orders/inbox.h"

namespace loratrain {

/// Adds adapters of inbox files to a run.

/// Everything that changes when adapters are added to a run.
struct GrowingRun {
    Job& job;
    Plan& plan;
    DatasetFiles& files;
    std::vector<DatasetInfo>& datasets;  ///< root only, else empty
    RunIdentity& identity;               ///< root only
    bool with_tokens;           ///< this rank reads tokens: it has the embedding or the head
    bool keeps_records = true;  ///< the root updates the run directory
};

/// Adds adapters of inbox files to a run, on one rank, in two steps: check() reads and checks a
/// file together with the files before it and leaves the run as it is; take() adds the first
/// checked file to the run. When each step happens: train/services/growth.h. Nothing is collective.
class RunGrowth {
  public:
    /// What `run` refers to outlives this object, and only take() changes it meanwhile.
    RunGrowth(const GrowingRun& run, bool is_root);

    /// Checks one more file, the same on every rank. InputError with every problem: of the file
    /// (config/inbox_yaml.h), data files, init_from; on the root also of the plan
    /// (plan/deploy/extend_plan.h). A file with problems is forgotten.
    void check(const InboxFile& file);
    /// Number of files that are checked and not taken.
    std::size_t size() const { return parts_.size(); }
    /// Root: the plan with the first checked file, as bytes (base/wire.h).
    const std::string& plan() const { return parts_.front().plan; }
    /// Adds the first checked file to the run: adapters and datasets at the end of the job, open
    /// data files, and `plan`, the root's plan() as bytes. The root also writes resolved.yaml and
    /// plan.yaml. Nothing may read GrowingRun::files meanwhile.
    void take(const std::string& plan);

  private:
    struct Part {
        JobAdditions additions;
        DatasetFiles files;
        std::vector<DatasetInfo> infos;  ///< root only, as the next
        std::string plan;
    };

    void check_starts(const JobAdditions& additions, Problems& problems) const;
    void record(Part& part);

    GrowingRun run_;
    bool is_root_;
    Job job_;    ///< with all checked files, as the next two
    Plan plan_;  ///< root only, as the next
    std::vector<DatasetInfo> datasets_;
    std::deque<Part> parts_;
};

}  // namespace loratrain
