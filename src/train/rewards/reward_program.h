#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// A program that says how good texts are. It is started with the first question, by the shell, in
/// a process group of its own; it reads a JSON object a line and answers each with a line: a
/// number, or an object with the number `reward` and maybe others. What it writes to its standard
/// error appears in the job's. Nothing here waits for it: poll() does what can be done at once.
///
/// A line that is no answer fails the questions it belongs to. A program that ends, is silent for
/// too long or writes lines that nobody asked for is killed, and all questions fail that are open
/// or are asked later; behind a line too many also those whose answers are not taken. Its process
/// group is killed with the object.
class RewardProgram {
  public:
    /// `command`: of the shell, in `folder`.
    RewardProgram(std::string command, std::string folder);
    ~RewardProgram();
    RewardProgram(const RewardProgram&) = delete;
    RewardProgram& operator=(const RewardProgram&) = delete;

    struct Answer {
        double reward = 0.0;
        std::map<std::string, double> parts{};  ///< other numbers of an object
    };
    /// Answers in the order of the questions; or why there are none.
    struct Answers {
        std::vector<Answer> of_questions;
        std::string problem;
    };
    using Ticket = std::int64_t;

    /// Asks the lines, without their ends. `timeout`: seconds for an answer, from the one before,
    /// or from when the program has last read.
    Ticket ask(std::vector<std::string> lines, double timeout);
    /// Writes and reads what goes without waiting.
    void poll();
    /// The answers, once they are all there or have failed; they are forgotten then.
    std::optional<Answers> take(Ticket ticket);

  private:
    using Clock = std::chrono::steady_clock;

    struct Asked {
        Ticket ticket = 0;
        std::vector<std::string> lines;
        double timeout = 0.0;
        std::size_t answered = 0;
        Answers answers;
        bool is_complete() const { return answered == lines.size(); }
    };

    void start();
    void write_questions();
    void read_answers();
    void take_line(const std::string& line);
    Asked* first_open();
    void check_time();
    void fail_all(const std::string& line);
    void fail(const std::string& why);
    std::string how_it_ended() const;
    void end();

    std::string command_;
    std::string folder_;
    pid_t process_ = 0;   ///< of the shell, and its group; 0 = not started, or gone
    int input_ = -1;      ///< written to
    int output_ = -1;     ///< read from
    std::string broken_;  ///< why it is not used any more; "" = it is
    std::deque<Asked> asked_;
    Ticket last_ticket_ = 0;
    std::string to_write_;
    std::size_t written_ = 0;
    std::string read_;           ///< the beginning of a line
    Clock::time_point since_{};  ///< the oldest open question was the next one, or read on
};

}  // namespace loratrain
