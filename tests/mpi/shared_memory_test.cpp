#include "comm/shared_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

constexpr std::size_t bytes = 10000;

using Pages = std::vector<std::unique_ptr<SharedMemory>>;

/// One for each neighbour that this rank has, from the lower one on.
Pages connect_neighbours() {
    Pages pages;
    for (int low = 0; low + 1 < session().size(); ++low) {
        if (session().rank() == low)
            pages.push_back(SharedMemory::connect(session(), low + 1, bytes));
        if (session().rank() == low + 1)
            pages.push_back(SharedMemory::connect(session(), low, bytes));
    }
    return pages;
}

std::atomic_ref<std::uint32_t> word(const SharedMemory& page, std::size_t index) {
    return std::atomic_ref<std::uint32_t>(static_cast<std::uint32_t*>(page.data())[index]);
}

/// Lines of /proc/self/maps about shared pages.
std::vector<std::string> mappings() {
    std::vector<std::string> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("/loratrain-") != std::string::npos) found.push_back(line);
    }
    return found;
}

TEST(SharedMemory, NeighboursSeeWhatTheOtherWrites) {
    const int rank = session().rank();
    const Pages pages = connect_neighbours();
    const bool lacks_one = std::find(pages.begin(), pages.end(), nullptr) != pages.end();
    ASSERT_FALSE(any_rank(session(), lacks_one));
    const auto value_of = [](int of) { return static_cast<std::uint32_t>(of) + 1; };
    for (const auto& page : pages) {
        const auto* words = static_cast<const std::uint32_t*>(page->data());
        EXPECT_TRUE(std::all_of(words, words + bytes / sizeof(std::uint32_t),
                                [](std::uint32_t at) { return at == 0; }));
    }
    barrier(session());
    for (const auto& page : pages) word(*page, static_cast<std::size_t>(rank)) = value_of(rank);
    barrier(session());
    for (std::size_t i = 0; i < pages.size(); ++i) {
        const int neighbour = i == 0 && rank > 0 ? rank - 1 : rank + 1;
        for (int of = 0; of < session().size(); ++of) {
            const bool writes = of == rank || of == neighbour;
            EXPECT_EQ(word(*pages[i], static_cast<std::size_t>(of)), writes ? value_of(of) : 0U);
        }
    }
}

TEST(SharedMemory, LeavesNothingBehind) {
    {
        const Pages pages = connect_neighbours();
        barrier(session());
        const auto mapped = mappings();
        EXPECT_EQ(mapped.size(), pages.size());
        for (const std::string& line : mapped) EXPECT_TRUE(line.ends_with("(deleted)")) << line;
    }
    EXPECT_EQ(mappings().size(), 0U);
}

/// While it lives, this process opens no file.
class NoFiles {
  public:
    NoFiles() {
        getrlimit(RLIMIT_NOFILE, &before_);
        rlimit none = before_;
        none.rlim_cur = 0;
        setrlimit(RLIMIT_NOFILE, &none);
    }
    ~NoFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
    NoFiles(const NoFiles&) = delete;
    NoFiles& operator=(const NoFiles&) = delete;

  private:
    rlimit before_{};
};

TEST(SharedMemory, BothOrNeither) {
    const Pages warm_up = connect_neighbours();
    for (const int without : {0, 1}) {
        Pages pages;
        {
            std::unique_ptr<NoFiles> none;
            if (session().rank() == without) none = std::make_unique<NoFiles>();
            pages = connect_neighbours();
            barrier(session());
        }
        for (std::size_t i = 0; i < pages.size(); ++i) {
            const int low = session().rank() - (i == 0 && session().rank() > 0 ? 1 : 0);
            const bool shares = low != without && low + 1 != without;
            EXPECT_EQ(pages[i] != nullptr, shares) << "ranks " << low << " and " << low + 1;
        }
    }
}

}  // namespace
}  // namespace loratrain::mpi_test
