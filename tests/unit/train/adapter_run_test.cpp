#include "train/adapter_run.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace loratrain::test {
namespace {

constexpr Phase phases[] = {Phase::outside, Phase::training, Phase::stepped, Phase::exporting,
                            Phase::written};

StreamPart part_in(Phase phase) {
    StreamPart part;
    if (phase == Phase::outside) return part;
    part.join(0, 0);
    for (const Phase next : {Phase::stepped, Phase::exporting, Phase::written}) {
        if (next <= phase) part.enter(next);
    }
    return part;
}

TEST(Phases, EachLeadsToTheNextAndNoFurther) {
    const auto leads = [](Phase from, Phase to) {
        StreamPart part = part_in(from);
        try {
            part.enter(to);
        } catch (const Error&) {
            EXPECT_EQ(part.phase(), from) << "what is refused changes nothing";
            return false;
        }
        EXPECT_EQ(part.phase(), to);
        return true;
    };
    const auto allowed = [](Phase from, Phase to) {
        if (to == Phase::stepped) return from == Phase::training || from == Phase::stepped;
        if (to == Phase::exporting) return from == Phase::stepped || from == Phase::outside;
        return to == Phase::written && from == Phase::exporting;
    };
    for (const Phase from : phases) {
        for (const Phase to : phases) {
            EXPECT_EQ(leads(from, to), allowed(from, to))
                << phase_name(from) << " to " << phase_name(to);
        }
    }
}

TEST(Phases, WhoeverIsExportedDoesNotTrainAgain) {
    for (const Phase from : phases) {
        StreamPart part = part_in(from);
        const bool may = from <= Phase::stepped;
        if (may) {
            EXPECT_NO_THROW(part.join(3, 5)) << phase_name(from);
            EXPECT_EQ(part.phase(), Phase::training);
        } else {
            EXPECT_THROW(part.join(3, 5), Error) << phase_name(from);
        }
    }
}

TEST(Phases, WhoeverJoinsAgainHasItsNewPlaceAndNoLastStep) {
    StreamPart part;
    EXPECT_FALSE(part.joined());
    part.join(2, 7);
    part.note_evaluation(8);
    part.leave_at(9);
    EXPECT_EQ(part.last_step(), 9);
    part.join(6, 9);
    EXPECT_TRUE(part.joined());
    EXPECT_EQ(part.first_round(), 6);
    EXPECT_EQ(part.first_steps(), 9);
    EXPECT_EQ(part.last_step(), std::nullopt);
    EXPECT_EQ(part.evaluated(), 8) << "what is known of it stays";
    part.forget_evaluation();
    EXPECT_EQ(part.evaluated(), std::nullopt);
}

TEST(Phases, SteppedAndExportedAreAlsoWhatComesBehind) {
    for (const Phase phase : phases) {
        const StreamPart part = part_in(phase);
        EXPECT_EQ(part.stepped(), phase >= Phase::stepped) << phase_name(phase);
        EXPECT_EQ(part.exported(), phase >= Phase::exporting) << phase_name(phase);
        EXPECT_EQ(part.written(), phase == Phase::written) << phase_name(phase);
    }
}

}  // namespace
}  // namespace loratrain::test
