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

/// What grows when adapters are added to a run.
struct GrowingRun {
    Job& job;
    Plan& plan;
    DatasetFiles& files;
    std::vector<DatasetInfo>& datasets;  ///< root only, else empty
    RunIdentity& identity;               ///< root only
    bool with_tokens;           ///< this rank reads tokens: it has the embedding or the head
    bool keeps_records = true;  ///< the root writes what changes of the run directory
};

/// What inbox files would add to a run, one behind the other, as far as one rank knows: each is
/// read and checked, with those before it, while the run is as it was; then the run takes them in
/// this order, as many as are wanted. Nothing is collective.
class RunGrowth {
  public:
    /// What `run` refers to outlives it, and is changed by take() alone meanwhile.
    RunGrowth(const GrowingRun& run, bool is_root);

    /// One more file, which is on every rank the same; source: InboxFile::path. InputError with
    /// every problem (config/inbox_yaml.h, data files, init_from, on the root also
    /// plan/deploy/extend_plan.h); then it is as if there had been none.
    void check(const InboxFile& file);
    /// Files that are checked and not taken.
    std::size_t size() const { return parts_.size(); }
    /// Root: the plan with the first of these, as bytes (base/wire.h).
    const std::string& plan() const { return parts_.front().plan; }
    /// The run has the first of these from now on: adapters and datasets at the end of the job, its
    /// part of the root's plan, open data files; on the root also resolved.yaml and plan.yaml of
    /// the run directory. No file of `files` may be read at the same time.
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
    Job job_;    ///< with all that is checked, as the next two
    Plan plan_;  ///< root only, as the next
    std::vector<DatasetInfo> datasets_;
    std::deque<Part> parts_;
};

}  // namespace loratrain
