#pragma once

#include <memory>

namespace loratrain {

struct TerminalSize {
    int rows = 24;
    int columns = 80;
};

/// A terminal with a person in front of it, behind standard output.
class Terminal {
  public:
    /// Null for files, pipes and terminals that cannot move their cursor (TERM is unset or dumb).
    ///
    /// Open MPI's mpirun gives every rank a pseudo-terminal as standard output, wherever its own
    /// goes. So only the controlling terminal of the session counts: as standard output, or as that
    /// of the parent process when ours is another terminal, which the parent then copies; not when
    /// it adds to the lines (--tag-output and the like).
    static std::unique_ptr<Terminal> of_output();
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    /// Now; 24 x 80 when it does not say.
    TerminalSize size() const;
    /// False while the job is in the background of its shell.
    bool in_foreground() const;
    /// Standard error leads to it too.
    bool shows_errors() const;

  private:
    Terminal(int fd, bool through_parent) : fd_(fd), through_parent_(through_parent) {}
    int fd_;
    bool through_parent_;
};

}  // namespace loratrain
