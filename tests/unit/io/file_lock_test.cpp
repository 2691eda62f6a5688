#include "io/locks/file_lock.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/system.h"
#include "io/files.h"
#include "support/files.h"
#include "support/problems.h"

namespace {
int flock_error = 0;
}

/// Instead of the C library's: a file system without locks where flock_error is set.
extern "C" int flock(int descriptor, int operation) noexcept {
    errno = flock_error;
    if (flock_error != 0) return -1;
    return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
}

namespace loratrain::test {
namespace {

constexpr const char* what = "run directory 'x'";

HeartbeatOptions quick(std::function<void(const std::string&)> lost = {}) {
    HeartbeatOptions options{0.05, 0.6, 0.05, std::move(lost)};
    return options;
}

const double default_patience = HeartbeatOptions().patience;

/// What a process of another machine, or of this one, has left.
std::string contents(const std::string& holder, const std::string& table, int process) {
    return cat(R"({"holder":")", holder, R"(","process_table":")", table, R"(","process":)",
               process, R"(,"started":1,"slurm_job":"5","slurm_restarts":""})", "\n");
}

/// Waits for it; false when it has not come within a minute.
bool comes(const std::function<bool()>& happened) {
    const auto begin = std::chrono::steady_clock::now();
    while (!happened()) {
        if (seconds_since(begin) > 60.0) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
}

class FileLockTest : public ::testing::Test {
  protected:
    ~FileLockTest() override { flock_error = 0; }
    void put(const std::string& text) const { write_text_atomic(held, text); }

    TempDir dir;
    std::string path = dir.file("lock");
    std::string held = path + ".held";
};

TEST_F(FileLockTest, IsExclusiveAndReleased) {
    {
        const FileLock lock(path, what);
        EXPECT_EQ(lock.substitute(), "");
        const std::string text = problem_text([&] { FileLock(path, what); });
        EXPECT_TRUE(has(text, "run directory 'x' is in use by another process (process "));
    }
    EXPECT_EQ(FileLock(path, what).left_behind(), "");
    write_text_atomic(path, "process 7 on node3");
    EXPECT_EQ(FileLock(path, what).left_behind(), "process 7 on node3");
    EXPECT_EQ(FileLock(path, what).left_behind(), "");
    EXPECT_TRUE(has(problem_text([&] { FileLock(dir.file("no/lock"), "x"); }), "cannot be opened"));
    EXPECT_FALSE(std::filesystem::exists(held));
}

TEST_F(FileLockTest, WithoutFlockIsExclusiveAndReleased) {
    for (const int error : {ENOSYS, ENOTSUP, ENOLCK}) {
        flock_error = error;
        {
            const FileLock lock(path, what);
            EXPECT_TRUE(has(lock.substitute(), "has no locks (flock: ")) << lock.substitute();
            EXPECT_EQ(lock.left_behind(), "");
            const std::string text = problem_text([&] { FileLock(path, what); });
            EXPECT_TRUE(has(text, "run directory 'x' is in use by another process (process "))
                << text;
        }
        EXPECT_FALSE(std::filesystem::exists(held));
    }
    flock_error = EIO;
    EXPECT_THROW(FileLock(path, what), Error);
}

TEST_F(FileLockTest, WithoutFlockADeadProcessOfThisMachineIsReplacedAtOnce) {
    flock_error = ENOSYS;
    std::string dead;
    {
        const HeartbeatLock lock(held, what, quick());
        dead = read_text(held);
    }
    // The same process id, but of a process that started at another moment.
    const std::size_t at = dead.find("\"started\":") + 10;
    dead.insert(at, "1");
    put(dead);
    const auto begin = std::chrono::steady_clock::now();
    const FileLock lock(path, what);
    EXPECT_LT(seconds_since(begin), default_patience);
    EXPECT_TRUE(has(lock.left_behind(), "process ")) << lock.left_behind();
}

TEST(HeartbeatLockTest, AnotherMachineIsWatched) {
    const TempDir dir;
    const std::string held = dir.file("held");
    write_text_atomic(held, contents("process 7 on node3", "elsewhere 1", 1));
    const auto begin = std::chrono::steady_clock::now();
    {
        const HeartbeatLock lock(held, what, quick());
        EXPECT_GE(seconds_since(begin), 0.6);
        EXPECT_EQ(lock.left_behind(), "process 7 on node3");
        EXPECT_TRUE(has(read_text(held), this_process_text()));
    }
    EXPECT_FALSE(std::filesystem::exists(held));

    write_text_atomic(held, contents("process 8 on node4", "elsewhere 1", 1));
    std::atomic<bool> done{false};
    std::thread other([&] {
        while (!done) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            std::filesystem::last_write_time(held, std::filesystem::file_time_type::clock::now());
        }
    });
    HeartbeatOptions patient = quick();
    patient.patience = default_patience;
    const std::string text = problem_text([&] { HeartbeatLock(held, what, patient); });
    done = true;
    other.join();
    EXPECT_TRUE(has(text, "in use by another process (process 8 on node4)")) << text;
    EXPECT_TRUE(has(read_text(held), "node4"));
}

TEST(HeartbeatLockTest, AnUnreadableHolderIsWatched) {
    const TempDir dir;
    const std::string held = dir.file("held");
    for (const char* text : {"", "[1]", R"({"holder":5})", R"({"holder":"a","slurm_job":5})"}) {
        write_text_atomic(held, text);
        EXPECT_EQ(HeartbeatLock(held, what, quick()).left_behind(), "another process") << text;
    }
}

TEST(HeartbeatLockTest, AnEarlierStartOfTheSameSlurmJobIsDead) {
    const TempDir dir;
    const std::string held = dir.file("held");
    write_text_atomic(held, contents("process 7 on node3, Slurm job 5", "elsewhere 1", 1));
    ::setenv("SLURM_JOB_ID", "5", 1);
    ::setenv("SLURM_RESTART_COUNT", "1", 1);
    HeartbeatOptions patient = quick();
    patient.patience = 1e6;
    EXPECT_EQ(HeartbeatLock(held, what, patient).left_behind(), "process 7 on node3, Slurm job 5");
    ::unsetenv("SLURM_JOB_ID");
    ::unsetenv("SLURM_RESTART_COUNT");
}

TEST(HeartbeatLockTest, ShowsSignsOfLife) {
    const TempDir dir;
    const std::string held = dir.file("held");
    const HeartbeatLock lock(held, what, quick());
    const auto first = std::filesystem::last_write_time(held);
    EXPECT_TRUE(comes([&] { return std::filesystem::last_write_time(held) != first; }));
}

TEST(HeartbeatLockTest, TheOneThatLostItHears) {
    const TempDir dir;
    const std::string held = dir.file("held");
    std::atomic<int> lost{0};
    {
        const HeartbeatLock lock(held, what, quick([&](const std::string&) { ++lost; }));
        std::filesystem::remove(held);  // by hand: taken again
        EXPECT_TRUE(comes([&] { return get(held).ends_with("}\n"); }));
        EXPECT_EQ(lost, 0);
        EXPECT_TRUE(has(get(held), this_process_text()));
        write_text_atomic(held, contents("process 9 on node5", "elsewhere 1", 1));
        EXPECT_TRUE(comes([&] { return lost > 0; }));
    }
    EXPECT_EQ(lost, 1);
    EXPECT_TRUE(has(read_text(held), "node5"));  // not the own one: left alone
}

TEST(HeartbeatLockTest, OfSeveralThatTakeOverOneGetsIt) {
    const TempDir dir;
    const std::string held = dir.file("held");
    write_text_atomic(held, contents("process 7 on node3", "elsewhere 1", 1));
    constexpr int contenders = 4;
    std::atomic<int> winners{0};
    std::atomic<int> refused{0};
    std::atomic<int> decided{0};
    HeartbeatOptions options = quick([](const std::string&) {});
    options.settle = 2.0;
    std::vector<std::thread> threads;
    for (int i = 0; i < contenders; ++i) {
        threads.emplace_back([&] {
            std::optional<HeartbeatLock> lock;
            try {
                lock.emplace(held, what, options);
                ++winners;
            } catch (const InputError&) {
                ++refused;
            }
            ++decided;
            while (decided < contenders) std::this_thread::yield();
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(refused, contenders - 1);
}

/// As a hard link may have put it there.
TEST_F(FileLockTest, AFileThatIsNoLockKeepsItsContents) {
    const std::string text(300, 'x');
    write_text_atomic(path, text);
    EXPECT_TRUE(
        has(problem_text([&] { FileLock(path, what); }), "is not a lock file of loratrain"));
    EXPECT_EQ(read_text(path), text);
    std::filesystem::rename(path, dir.file("precious"));
    std::filesystem::create_symlink(dir.file("precious"), path);
    EXPECT_TRUE(has(problem_text([&] { FileLock(path, what); }), "is a symbolic link"));
    EXPECT_EQ(read_text(dir.file("precious")), text);
}

}  // namespace
}  // namespace loratrain::test
