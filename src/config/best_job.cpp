#include "config/best_job.h"

namespace loratrain {

Job job_of_best(const Job& job, const std::vector<AdapterId>& best, const std::string& run_dir) {
    Job result = job;
    result.adapters.clear();
    result.sweep.reset();
    result.run.dir = run_dir;
    if (job.parallel.by_workers()) {
        result.parallel.assignment = Assignment::joint;
        result.parallel.pipeline_stages.reset();
        result.parallel.deployment.clear();
        result.parallel.deployment_open = result.parallel.assignment_open = true;
    }
    for (const AdapterId a : best) result.adapters.push_back(job.adapter(a));
    return result;
}

}  // namespace loratrain
