#include "train/services/services.h"

#include "train/services/dispatched_source.h"
#include "train/services/local_source.h"

namespace loratrain {

namespace {

std::unique_ptr<WorkSource> make_source(Worker& worker) {
    if (worker.is_alone()) return std::make_unique<LocalSource>(worker);
    return std::make_unique<DispatchedSource>(worker, *worker.parts.dispatcher);
}

}  // namespace

Services::Services(Worker& worker)
    : steps(worker),
      checkpoints(worker),
      evaluations(worker),
      source(make_source(worker)),
      growth(worker),
      rungs(worker),
      admission(worker),
      bests(worker),
      exports(worker),
      texts(worker),
      redeployment(worker) {
    worker.services = this;
    worker.stream.serve(order());
}

std::vector<Service*> Services::order() {
    return {&steps,     &checkpoints, &evaluations, source.get(), &growth,      &rungs,
            &admission, &bests,       &exports,     &texts,       &redeployment};
}

}  // namespace loratrain
