#include "train/services/services.h"

namespace loratrain {

Services::Services(Worker& worker, DispatcherLink& dispatcher)
    : steps(worker),
      rollouts(worker),
      arrivals(worker),
      checkpoints(worker),
      evaluations(worker),
      dispatch(worker, dispatcher),
      growth(worker, dispatcher),
      rungs(worker),
      admission(worker),
      step_exports(worker),
      bests(worker),
      exports(worker),
      texts(worker),
      redeployment(worker),
      references(worker) {
    worker.services = this;
    worker.stream.serve(order());
}

std::vector<Service*> Services::order() {
    return {&steps,    &rollouts, &arrivals, &checkpoints, &evaluations,
            &dispatch, &growth,   &rungs,    &admission,   &step_exports,
            &bests,    &exports,  &texts,    &redeployment};
}

}  // namespace loratrain
