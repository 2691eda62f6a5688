#pragma once

#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace loratrain {

/// Errors of the program: what the user gave (InputError), what the environment did (Error), and
/// broken invariants (LORATRAIN_CHECK).

/// Exit codes of the program.
enum class ExitCode : int {
    done = 0,
    error = 1,
    bad_input = 2,
    some_adapters_failed = 3,
    stopped_resume_me = 75,
};

/// One thing that is wrong with what the user gave: `where` is file:line, a dataset path or an
/// option; `what` names the value; `hint` says what to do (may be empty).
struct Problem {
    std::string where;
    std::string what;
    std::string hint;
};

/// "where: what", and the hint on an indented line of its own. Every problem reaches the user so.
std::string to_string(const Problem& problem);

/// What the user gave cannot be used; carries every problem found. Leads to exit code 2.
class InputError : public std::runtime_error {
  public:
    explicit InputError(std::vector<Problem> problems);
    InputError(std::string where, std::string what, std::string hint = "");
    const std::vector<Problem>& problems() const { return problems_; }

  private:
    std::vector<Problem> problems_;
};

/// The environment failed (disk full, library error, a broken invariant). Leads to exit code 1.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Collects problems, so that all faults of a file are reported at once.
class Problems {
  public:
    void add(std::string where, std::string what, std::string hint = "");
    void add(const InputError& error);
    bool empty() const { return problems_.empty(); }
    const std::vector<Problem>& list() const { return problems_; }
    /// Throws InputError if there is at least one problem.
    void throw_if_any() const;

  private:
    std::vector<Problem> problems_;
};

/// Runs `work`, and adds the InputError that it throws to `problems`: Problems, or CappedProblems
/// (io/capped_problems.h). False where it threw one.
template <typename Found, typename Work>
bool collect(Found& problems, Work&& work) {
    try {
        work();
        return true;
    } catch (const InputError& error) {
        problems.add(error);
        return false;
    }
}

/// InputError at `where` unless `found`, the format that a file names, is one of the `known`.
void check_format(const std::string& where, std::string_view found,
                  std::initializer_list<std::string_view> known, const std::string& hint = "");

/// Runs `work` and turns std::filesystem errors that no caller expects into errors with a reason:
/// an InputError where the user can do something about it (a path that is too long, a working
/// directory that has been removed, missing permissions), else an Error.
void clearly(const std::function<void()>& work);

[[noreturn]] void fail_check(const char* expression, const char* file, int line,
                             const std::string& message);

}  // namespace loratrain

/// Throws Error if an invariant of the program does not hold. Further arguments are printed
/// (cat()).
#define LORATRAIN_CHECK(condition, ...)                             \
    do {                                                            \
        if (!(condition)) {                                         \
            ::loratrain::fail_check(#condition, __FILE__, __LINE__, \
                                    ::loratrain::cat(__VA_ARGS__)); \
        }                                                           \
    } while (false)
