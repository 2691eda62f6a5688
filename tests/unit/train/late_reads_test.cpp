#include "train/late_reads.h"

#include <gtest/gtest.h>

#include "backend/make_backend.h"

namespace loratrain {
namespace {

/// Sends nothing.
class NoLinks final : public Communicator {
  public:
    std::unique_ptr<Transfer> send(const void*, std::size_t, int, Channel) override { return {}; }
    std::unique_ptr<Transfer> receive(void*, std::size_t, int, Channel) override { return {}; }
};

TEST(LateReads, ValuesAreThoseAtTheTimeOfTheCallInItsOrder) {
    const std::unique_ptr<Backend> backend = make_backend("cpu", {});
    NoLinks links;
    const Buffer memory = backend->allocate(4 * sizeof(double), "numbers");
    auto* numbers = memory.as<double>();
    LateReads reads(*backend, links);
    std::vector<double> seen;
    const double first[] = {1.0, 2.0, 3.0, 4.0};
    backend->upload(numbers, first, sizeof(first));
    reads.read({{numbers + 2, sizeof(double)}, {numbers, 2 * sizeof(double)}},
               [&](const double* values) { seen.insert(seen.end(), values, values + 3); });
    reads.mark();
    backend->zero(numbers, sizeof(first));
    reads.read({{numbers, sizeof(double)}},
               [&](const double* values) { seen.push_back(values[0]); });
    reads.finish();
    EXPECT_EQ(seen, (std::vector<double>{3.0, 1.0, 2.0, 0.0}));
}

}  // namespace
}  // namespace loratrain
