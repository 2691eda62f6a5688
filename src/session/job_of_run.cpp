#include "session/job_of_run.h"

#include <string>
#include <vector>

#include "comm/collective.h"
#include "config/inbox_yaml.h"
#include "train/orders/inbox.h"

namespace loratrain {

namespace {

/// What the root has accepted, on every rank.
std::vector<InboxFile> accepted_files(const MpiSession& mpi, const Job& job) {
    std::vector<InboxFile> files;
    agree(mpi, [&] {
        if (mpi.is_root()) files = accepted_additions(job.run.dir);
    });
    return broadcast(mpi, files);
}

}  // namespace

Job read_job_of_run(const CommandLine& command_line, const MpiSession& mpi) {
    Job job;
    agree(mpi, [&] { job = read_job(command_line.job_path, command_line.overrides); });
    if (command_line.restart == Restart::never) return job;
    for (const InboxFile& file : accepted_files(mpi, job)) {
        agree(mpi, [&] { add_to_job(job, read_inbox(file.text, file.path, job)); });
    }
    return job;
}

}  // namespace loratrain
