#include "measure/measured_trace.h"

#include "base/log.h"
#include "base/text.h"
#include "comm/collective.h"
#include "io/files.h"
#include "plan/replica_view.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, CostSums& sums) {
    archive.list(sums.products, sums.results, sums.count);
}

void write_trace(const MpiSession& mpi, const Job& job, const Plan& plan, TraceRecorder& recorder) {
    recorder.settle();
    const std::vector<std::string> texts = gather_texts(mpi, trace_to_json(recorder.spans(), {}));
    if (!mpi.is_root()) return;
    std::vector<TraceSpan> spans;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        const auto of_rank = trace_from_json(texts[rank], cat("trace of rank ", rank));
        spans.insert(spans.end(), of_rank.begin(), of_rank.end());
    }
    const std::string path = job.run.dir + "/" + trace_file_name;
    warn_at_failure([&] {
        write_text_atomic(
            path, trace_to_json(std::move(spans),
                                {{"times", "measured"}, {"costs", prediction_source(plan)}}));
    });
}

std::optional<CostModel> gather_refined_costs(const MpiSession& mpi, const Plan& plan,
                                              TraceRecorder& recorder) {
    recorder.settle();
    if (plan.replicas.size() > 1) return std::nullopt;
    const std::vector<CostObserver::Sums> of_ranks = gather(mpi, recorder.observer().sums());
    const ReplicaPlan& replica = plan.replicas.front();
    CostObserver all(plan.costs, replica.stages.front(), replica.stages.size(), replica.recompute);
    for (const CostObserver::Sums& sums : of_ranks) all.add(sums);
    if (all.observations() == 0) return std::nullopt;
    return all.refined();
}

}  // namespace loratrain
