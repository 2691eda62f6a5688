#include "train/rewards/reward_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "io/json_text.h"

extern char** environ;

namespace loratrain {

namespace {

constexpr std::size_t longest_answer = std::size_t{1} << 20U;
constexpr std::size_t most_shown = 200;  // of a line in a message
constexpr std::chrono::seconds time_to_end{2};
constexpr std::chrono::milliseconds between_checks{5};

/// This process's without what makes it a rank of MPI.
std::vector<char*> environment_of_others() {
    constexpr std::array<std::string_view, 4> of_ranks{"OMPI_", "PMIX_", "PMI_", "PRTE_"};
    std::vector<char*> kept;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text(*variable);
        const bool is_rank =
            std::any_of(of_ranks.begin(), of_ranks.end(),
                        [&](std::string_view name) { return text.starts_with(name); });
        if (!is_rank) kept.push_back(*variable);
    }
    kept.push_back(nullptr);
    return kept;
}

std::string shown(const std::string& line) {
    return line.size() <= most_shown ? line : line.substr(0, most_shown) + "...";
}

/// A write to a program that has ended is an error, not the end of the job.
class NoPipeSignal {
  public:
    NoPipeSignal() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~NoPipeSignal() {
        const timespec now{};
        while (sigtimedwait(&pipe_, nullptr, &now) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoPipeSignal(const NoPipeSignal&) = delete;
    NoPipeSignal& operator=(const NoPipeSignal&) = delete;

  private:
    sigset_t pipe_{};
    sigset_t before_{};
};

struct Pipe {
    int read = -1;
    int write = -1;
};

Pipe make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw Error(cat("cannot make a pipe: ", std::strerror(errno)));
    }
    return {ends[0], ends[1]};
}

void close_now(int& descriptor) {
    if (descriptor >= 0) ::close(descriptor);
    descriptor = -1;
}

void never_wait(int descriptor) {
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

bool is_waiting() {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/// "" = the line is an answer.
std::string fault_of(const std::string& line, RewardProgram::Answer& answer) {
    const OrderedJson value = parse_json_or_discard(line);
    const auto is_finite = [](const OrderedJson& number) {
        return number.is_number() && std::isfinite(number.get<double>());
    };
    if (is_finite(value)) {
        answer.reward = value.get<double>();
        return "";
    }
    if (!value.is_object()) return "no number, and no object with a reward";
    const auto reward = value.find("reward");
    if (reward == value.end() || !is_finite(*reward)) return "an object without a number `reward`";
    answer.reward = reward->get<double>();
    for (const auto& [key, part] : value.items()) {
        if (key != "reward" && is_finite(part)) answer.parts[key] = part.get<double>();
    }
    return "";
}

}  // namespace

RewardProgram::RewardProgram(std::string command, std::string folder)
    : command_(std::move(command)), folder_(std::move(folder)) {}

RewardProgram::~RewardProgram() {
    end();
}

RewardProgram::Ticket RewardProgram::ask(std::vector<std::string> lines, double timeout) {
    poll();
    const bool idle = first_open() == nullptr;
    Asked asked;
    asked.ticket = ++last_ticket_;
    asked.timeout = timeout;
    for (const std::string& line : lines) to_write_ += line + "\n";
    asked.lines = std::move(lines);
    asked_.push_back(std::move(asked));
    if (idle) since_ = Clock::now();
    if (broken_.empty() && process_ == 0) start();
    poll();
    return last_ticket_;
}

void RewardProgram::start() {
    Pipe questions = make_pipe();
    Pipe answers = make_pipe();
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, questions.read, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, answers.write, STDOUT_FILENO);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    sigset_t none;
    sigemptyset(&none);
    sigset_t usual;
    sigfillset(&usual);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &usual);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(
        &how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    std::string shell = "sh";
    std::string option = "-c";
    std::string script = "cd \"$0\" || exit 126\n" + command_;
    // Absolute, as a relative one may be another of $CDPATH.
    std::string folder = std::filesystem::absolute(folder_.empty() ? "." : folder_).string();
    const std::array<char*, 5> words{shell.data(), option.data(), script.data(), folder.data(),
                                     nullptr};
    std::vector<char*> environment = environment_of_others();
    int error = 0;
    {
        const AllProcessors processors;
        error = posix_spawn(&process_, "/bin/sh", &files, &how, words.data(), environment.data());
    }
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    close_now(questions.read);
    close_now(answers.write);
    input_ = questions.write;
    output_ = answers.read;
    never_wait(input_);
    never_wait(output_);
    if (error == 0) return;
    process_ = 0;
    fail(cat("cannot be started: ", std::strerror(error)));
}

RewardProgram::Asked* RewardProgram::first_open() {
    const auto open =
        std::find_if(asked_.begin(), asked_.end(), [](const Asked& a) { return !a.is_complete(); });
    return open == asked_.end() ? nullptr : &*open;
}

void RewardProgram::poll() {
    if (process_ != 0 && broken_.empty()) read_answers();
    if (process_ != 0 && broken_.empty()) write_questions();
    if (broken_.empty()) check_time();
    if (!broken_.empty()) fail(broken_);
}

void RewardProgram::write_questions() {
    const NoPipeSignal quiet;
    while (written_ < to_write_.size()) {
        const ssize_t count =
            ::write(input_, to_write_.data() + written_, to_write_.size() - written_);
        if (count < 0) break;  // an end is seen where answers are read
        written_ += static_cast<std::size_t>(count);
        since_ = Clock::now();  // it could not read this before
    }
    if (written_ < to_write_.size()) return;
    to_write_.clear();
    written_ = 0;
}

void RewardProgram::read_answers() {
    std::array<char, 1U << 16U> bytes{};
    while (broken_.empty()) {
        const ssize_t count = ::read(output_, bytes.data(), bytes.size());
        if (count < 0 && is_waiting()) return;
        if (count <= 0) return fail(how_it_ended());
        read_.append(bytes.data(), static_cast<std::size_t>(count));
        std::size_t begin = 0;
        for (std::size_t end = read_.find('\n'); end != std::string::npos && broken_.empty();
             end = read_.find('\n', begin)) {
            take_line(read_.substr(begin, end - begin));
            begin = end + 1;
        }
        read_.erase(0, begin);
        if (read_.size() > longest_answer) fail("has written a line without an end");
    }
}

void RewardProgram::take_line(const std::string& line) {
    Asked* const asked = first_open();
    if (asked == nullptr) return fail_all(line);
    since_ = Clock::now();
    Answer answer;
    const std::string fault = fault_of(line, answer);
    const std::size_t question = asked->answered++;
    if (!fault.empty() && asked->answers.problem.empty()) {
        asked->answers.problem = cat("reward program '", command_, "': answer ", question + 1,
                                     " of ", asked->lines.size(), " is ", fault, ": ", shown(line),
                                     "; it was asked: ", shown(asked->lines[question]));
    }
    asked->answers.of_questions.push_back(std::move(answer));
}

void RewardProgram::check_time() {
    const Asked* const asked = first_open();
    if (asked == nullptr) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - since_).count();
    if (seconds < asked->timeout) return;
    fail(cat("has given no answer for ", format_fixed(asked->timeout, 1),
             " s (rewards.timeout); a program has to flush its output behind every answer"));
}

/// Nobody has asked for the line: answers that are not taken yet may belong to other questions.
void RewardProgram::fail_all(const std::string& line) {
    const std::string why = cat("has written a line that nobody has asked for: ", shown(line));
    for (Asked& asked : asked_) {
        std::string& problem = asked.answers.problem;
        if (problem.empty()) problem = cat("reward program '", command_, "' ", why);
    }
    fail(why);
}

/// All open questions fail, with the one that has waited longest.
void RewardProgram::fail(const std::string& why) {
    broken_ = why;
    for (Asked& asked : asked_) {
        if (asked.is_complete()) continue;
        if (asked.answers.problem.empty()) {
            asked.answers.problem = cat(
                "reward program '", command_, "' ", why, "; open is answer ", asked.answered + 1,
                " of ", asked.lines.size(), " to ", shown(asked.lines[asked.answered]));
        }
        asked.answered = asked.lines.size();
    }
    end();
}

std::string RewardProgram::how_it_ended() const {
    const auto end = Clock::now() + time_to_end;
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0 && Clock::now() < end) {
        std::this_thread::sleep_for(between_checks);
    }
    if (info.si_pid == 0) return "has closed its output";
    if (info.si_code == CLD_EXITED) return cat("has ended with exit code ", info.si_status);
    return cat("was ended by signal ", info.si_status);
}

/// A program ends by itself when its input does; all that is left of its group is killed.
void RewardProgram::end() {
    close_now(input_);
    close_now(output_);
    if (process_ == 0) return;
    const auto end = Clock::now() + time_to_end;
    siginfo_t info{};
    while (broken_.empty() &&
           waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0 && Clock::now() < end) {
        std::this_thread::sleep_for(between_checks);
    }
    ::kill(-process_, SIGKILL);  // its number is not free before waitpid()
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    process_ = 0;
}

std::optional<RewardProgram::Answers> RewardProgram::take(Ticket ticket) {
    const auto asked = std::find_if(asked_.begin(), asked_.end(),
                                    [&](const Asked& a) { return a.ticket == ticket; });
    LORATRAIN_CHECK(asked != asked_.end(), "answers that nobody waits for");
    if (!asked->is_complete()) return std::nullopt;
    Answers answers = std::move(asked->answers);
    asked_.erase(asked);
    return answers;
}

}  // namespace loratrain
