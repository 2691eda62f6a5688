#include "base/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

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

}  // namespace loratrain
