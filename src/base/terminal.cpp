#include "base/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/text.h"

namespace loratrain {

namespace {

bool moves_its_cursor() {
    const char* kind = std::getenv("TERM");
    return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

/// mpirun hands its options on to the ranks like this.
bool launcher_adds_to_lines() {
    constexpr std::array<const char*, 3> names{
        "OMPI_MCA_orte_tag_output", "OMPI_MCA_orte_timestamp_output", "OMPI_MCA_orte_xml_output"};
    for (const char* name : names) {
        if (std::getenv(name) != nullptr) return true;
    }
    return false;
}

bool is_controlling_terminal(int fd) {
    return fd >= 0 && ::tcgetsid(fd) == ::getsid(0);
}

/// A new descriptor of what `fd` of this or the parent process is open on; -1 when there is none.
int open_again(int fd, bool of_parent) {
    if (!of_parent) return ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    const std::string path = cat("/proc/", ::getppid(), "/fd/", fd);
    return ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

bool begins_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U;
}

bool is_control_byte(char byte) {
    return static_cast<unsigned char>(byte) < 0x20U || byte == 0x7f;
}

std::size_t columns_of(const std::string& line) {
    return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), begins_character));
}

/// A terminal that has become narrower breaks the lines it shows.
std::size_t rows_of(std::size_t columns, std::size_t width) {
    return std::max<std::size_t>(1, (columns + width - 1) / width);
}

}  // namespace

std::unique_ptr<Terminal> Terminal::of_output() {
    if (::isatty(STDOUT_FILENO) == 0 || !moves_its_cursor()) return nullptr;
    const bool through_parent = !is_controlling_terminal(STDOUT_FILENO);
    if (through_parent && launcher_adds_to_lines()) return nullptr;
    const int fd = open_again(STDOUT_FILENO, through_parent);
    if (is_controlling_terminal(fd)) {
        return std::unique_ptr<Terminal>(new Terminal(fd, through_parent));
    }
    if (fd >= 0) ::close(fd);
    return nullptr;
}

Terminal::~Terminal() {
    ::close(fd_);
}

bool Terminal::shows_errors() const {
    const int fd = open_again(STDERR_FILENO, through_parent_);
    const bool same = is_controlling_terminal(fd);
    if (fd >= 0) ::close(fd);
    return same;
}

TerminalSize Terminal::size() const {
    winsize found{};
    if (::ioctl(fd_, TIOCGWINSZ, &found) != 0 || found.ws_row == 0 || found.ws_col == 0) return {};
    return {found.ws_row, found.ws_col};
}

bool Terminal::in_foreground() const {
    const pid_t group = ::tcgetpgrp(fd_);
    return group == ::getpgid(0) || group == ::getpgid(::getppid());
}

std::string fit_line(std::string_view text, std::size_t columns) {
    std::string line;
    std::size_t used = 0;
    for (const char byte : text) {
        if (begins_character(byte) && ++used > columns) break;
        line += is_control_byte(byte) ? ' ' : byte;
    }
    return line;
}

std::string LiveRegion::draw(std::string_view above, const std::vector<std::string>& lines,
                             TerminalSize size) {
    const auto width = static_cast<std::size_t>(std::max(1, size.columns));
    std::size_t rows = 0;
    for (const std::size_t columns : drawn_) rows += rows_of(columns, width);
    std::string text;
    if (rows > 0) text = cat("\r\x1b[", rows, "A\x1b[J");
    text += above;
    drawn_.clear();
    const auto most = static_cast<std::size_t>(std::max(1, size.rows - 1));
    for (std::size_t i = 0; i < std::min(lines.size(), most); ++i) {
        const std::string line = fit_line(lines[i], width - 1);
        drawn_.push_back(columns_of(line));
        text += line + '\n';
    }
    return text;
}

}  // namespace loratrain
