#include "train/command.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <variant>

#include "base/error.h"
#include "mpi/mpi_main.h"
#include "plan/schedule/window_fields.h"

namespace loratrain::mpi_test {
namespace {

/// Of which long ones are read in the background.
JointWindow window_of(std::int32_t round, int microbatches) {
    Window window;
    window.first_round = round;
    window.rounds = 1;
    for (int m = 0; m < microbatches; ++m) {
        window.microbatches.push_back({{{AdapterId{1}, round, {{m, 5, 2}}}}});
        window.microbatches.back().columns.first = {0};
    }
    window.actions.resize(2);
    return {{window}, {}};
}

constexpr int many = 2000;

/// Some ranks take up what arrives while they do something else, the others ask for it alone.
TEST(CommandReader, GivesCommandsInOrder) {
    CommandChannel channel(session());
    if (session().is_root()) {
        for (std::int32_t round = 0; round < 4; ++round) {
            channel.post(to_bytes(TrainWindow{window_of(round, round % 2 == 0 ? many : 1)}));
        }
        channel.post(to_bytes(Finish{ExitCode::stopped_resume_me, true}));
        return channel.finish();
    }
    CommandReader reader(channel);
    for (std::int32_t round = 0; round < 4; ++round) {
        if (session().rank() % 2 == 1) reader.look();
        const WorkerCommand read = reader.next([] {});
        const JointWindow& window = std::get<TrainWindow>(read).window;
        EXPECT_EQ(to_wire(window), to_wire(window_of(round, round % 2 == 0 ? many : 1)));
    }
    const WorkerCommand last = reader.next([] {});
    EXPECT_TRUE(std::get<Finish>(last).goes_on);
}

TEST(CommandReader, TakesUpWithoutBeingAsked) {
    CommandChannel channel(session());
    const std::string text = to_bytes(TrainWindow{window_of(1, many)});
    MPI_Request all_have = MPI_REQUEST_NULL;
    if (session().is_root()) {
        const std::int64_t number = channel.post(text);
        for (int rank = 1; rank < session().size(); ++rank) {
            while (!channel.has_reached(rank, number)) channel.progress();
        }
        MPI_Ibarrier(session().comm(), &all_have);
        MPI_Wait(&all_have, MPI_STATUS_IGNORE);
        return;
    }
    CommandReader reader(channel);
    MPI_Ibarrier(session().comm(), &all_have);
    for (int done = 0; done == 0; MPI_Test(&all_have, &done, MPI_STATUS_IGNORE)) {
        reader.look();
        std::this_thread::yield();
    }
    EXPECT_EQ(to_bytes(reader.next([] { FAIL() << "it is there already"; })), text);
}

TEST(CommandReader, DamagedTextIsAnError) {
    CommandChannel channel(session());
    for (const int microbatches : {1, many}) {
        if (session().is_root()) {
            channel.post(to_bytes(TrainWindow{window_of(0, microbatches)}) + "q");
            continue;
        }
        CommandReader reader(channel);
        EXPECT_THROW(reader.next([] {}), Error) << microbatches;
    }
    if (session().is_root()) channel.finish();
}

}  // namespace
}  // namespace loratrain::mpi_test
