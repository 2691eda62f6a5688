#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace loratrain {

/// The terminal behind standard output, and lines at its foot that are redrawn in place.

struct TerminalSize {
    int rows = 24;
    int columns = 80;
};

/// A terminal that a person looks at.
class Terminal {
  public:
    /// Null for files, pipes and terminals that cannot move their cursor (TERM is unset or dumb).
    ///
    /// Open MPI's mpirun gives every rank a pseudo-terminal as standard output, wherever its own
    /// output goes. So only the controlling terminal of the session counts, in one of two places:
    ///   - standard output of this process,
    ///   - standard output of the parent process, if this process writes to another terminal, which
    ///     the parent then copies; null if the parent adds to the lines (--tag-output and the
    ///     like).
    static std::unique_ptr<Terminal> of_output();
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    /// The present size; 24 x 80 if the terminal does not tell.
    TerminalSize size() const;
    /// False while the job is in the background of its shell.
    bool in_foreground() const;
    /// True if standard error leads to this terminal too.
    bool shows_errors() const;

  private:
    Terminal(int fd, bool through_parent) : fd_(fd), through_parent_(through_parent) {}
    int fd_;
    bool through_parent_;
};

/// `text` on one line of at most `columns` characters (of UTF-8, one column each); control
/// characters become blanks.
std::string fit_line(std::string_view text, std::size_t columns);

/// Lines at the foot of a terminal that are redrawn in place. The class makes texts and writes
/// nothing. It uses two escape codes, "up n lines" and "erase to the end of the screen". The cursor
/// stays visible, below the lines, so a process that dies leaves nothing to tidy up.
class LiveRegion {
  public:
    /// Text that puts `above` (whole lines or "") where the region begins, and `lines` below it: as
    /// many as leave a row for the cursor, cut before the last column so that none wraps.
    std::string draw(std::string_view above, const std::vector<std::string>& lines,
                     TerminalSize size);
    /// Leaves the drawn lines on the screen; the next region begins below them.
    void leave() { drawn_.clear(); }

  private:
    std::vector<std::size_t> drawn_;  ///< columns of each line on the screen
};

}  // namespace loratrain
