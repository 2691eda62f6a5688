#include "train/adapter_run.h"

#include "base/error.h"

namespace loratrain {

namespace {

bool may_follow(Phase from, Phase to) {
    switch (to) {
        case Phase::outside:
            return false;
        case Phase::training:
            return from == Phase::outside || from == Phase::training || from == Phase::stepped;
        case Phase::stepped:
            return from == Phase::training || from == Phase::stepped;
        case Phase::exporting:  // from outside: one that ended while it waited
            return from == Phase::outside || from == Phase::stepped;
        case Phase::written:
            return from == Phase::exporting;
    }
    return false;
}

}  // namespace

const char* phase_name(Phase phase) {
    constexpr const char* names[] = {"outside", "training", "stepped", "exporting", "written"};
    return names[static_cast<std::size_t>(phase)];
}

void StreamPart::join(std::int32_t round, std::int32_t steps) {
    LORATRAIN_CHECK(may_follow(phase_, Phase::training), "an adapter that is ", phase_name(phase_),
                    " cannot train again");
    phase_ = Phase::training;
    joined_ = true;
    first_round_ = round;
    first_steps_ = steps;
    last_step_.reset();
}

void StreamPart::enter(Phase next) {
    LORATRAIN_CHECK(next != Phase::training && may_follow(phase_, next), "an adapter that is ",
                    phase_name(phase_), " cannot be ", phase_name(next), " next");
    phase_ = next;
}

}  // namespace loratrain
