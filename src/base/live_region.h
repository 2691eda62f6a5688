#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"

namespace loratrain {

/// `text` on one line of at most `columns` characters (of UTF-8, each taken for one column);
/// control characters become blanks.
std::string fit_line(std::string_view text, std::size_t columns);

/// Lines at the foot of a terminal that are drawn anew in place. Only makes the text to write; of
/// escape codes it has "up n lines" and "erase to the end of the screen". The cursor stays visible
/// and rests below the lines, so that a process that dies leaves nothing to tidy up.
class LiveRegion {
  public:
    /// Puts `above` (whole lines or "") where the region begins, and `lines` below it: as many as
    /// leave a row for the cursor, cut before the last column so that none wraps.
    std::string draw(std::string_view above, const std::vector<std::string>& lines,
                     TerminalSize size);
    /// What stands on the screen stays; the next region begins below it.
    void leave() { drawn_.clear(); }

  private:
    std::vector<std::size_t> drawn_;  ///< columns of each line on the screen
};

}  // namespace loratrain
