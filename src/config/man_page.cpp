#include "config/pages.h"

#include <cctype>
#include <sstream>
#include <vector>

#include "base/text.h"
#include "base/version.h"
#include "config/command_line.h"
#include "config/foreign_keys.h"
#include "config/job_keys.h"

namespace loratrain {

namespace {

std::string roff(const std::string& text) {
    std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
    for (const char c : text) {
        switch (c) {
            case '\\':
                out += "\\e";
                break;
            case '-':
                out += "\\-";
                break;
            case '~':
                out += "\\(ti";
                break;
            case '^':
                out += "\\(ha";
                break;
            default:
                out += c;
        }
    }
    return out;
}

/// Markdown's `words` in bold.
std::string bold_code(const std::string& markdown) {
    std::string out;
    bool bold = false;
    for (const char c : roff(markdown)) {
        if (c != '`') {
            out += c;
        } else {
            bold = !bold;
            out += bold ? "\\fB" : "\\fR";
        }
    }
    return out;
}

std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
}

/// "  --set KEY=VALUE     override any key" in two; `right` is "" for a line of another shape.
struct Columns {
    std::string left;
    std::string right;
};

Columns columns_of(const std::string& line) {
    const std::size_t begin = line.find_first_not_of(' ');
    const std::size_t gap = line.find("  ", begin);
    if (gap == std::string::npos) return {line.substr(begin), ""};
    const std::string right = line.substr(line.find_first_not_of(' ', gap));
    if (right.starts_with("--") || right.find("  ") != std::string::npos) {
        return {line.substr(begin), ""};
    }
    return {line.substr(begin, gap - begin), right};
}

void write_definition(std::ostringstream& out, const std::string& term, const std::string& text) {
    out << ".TP\n\\fB" << roff(term) << "\\fR\n" << bold_code(text) << '\n';
}

void write_lines(std::ostringstream& out, const std::vector<std::string>& lines) {
    bool as_typed = false;
    bool first = true;
    const auto type = [&](bool wanted) {
        if (wanted != as_typed) out << (!wanted ? ".fi\n" : first ? ".nf\n" : ".PP\n.nf\n");
        as_typed = wanted;
        first = false;
    };
    for (const std::string& line : lines) {
        const Columns columns = columns_of(line);
        type(columns.right.empty());
        if (columns.right.empty()) {
            out << roff(line.substr(line.starts_with("  ") ? 2 : 0)) << '\n';
        } else {
            write_definition(out, columns.left, columns.right);
        }
    }
    type(false);
}

struct Section {
    std::string title;
    std::vector<std::string> lines;
};

/// A section begins at a line that is not indented: its title, a colon, and perhaps more.
std::vector<Section> help_sections(std::istringstream& help) {
    std::vector<Section> sections;
    for (std::string line; std::getline(help, line);) {
        if (line.empty()) continue;
        if (line.starts_with(' ')) {
            sections.back().lines.push_back(line);
            continue;
        }
        const std::size_t colon = line.find(':');
        sections.push_back({line.substr(0, colon), {}});
        if (colon + 1 < line.size()) sections.back().lines.push_back(line.substr(colon + 2));
    }
    return sections;
}

void write_keys(std::ostringstream& out) {
    out << ".SH JOB FILE\nA job file is YAML. Its keys, with their defaults:\n";
    std::string section = "-";
    for (const JobKey& row : job_keys()) {
        if (row.section != section) {
            section = row.section;
            out << ".SS " << (section.empty() ? "sections" : roff(section)) << '\n';
        }
        const std::string value =
            row.default_value.empty() ? "" : " (" + bold_code(row.default_value) + ")";
        out << ".TP\n\\fB" << roff(row.key) << "\\fR" << value << '\n' << bold_code(row.meaning);
        const std::vector<std::string> elsewhere = names_elsewhere(row.section, row.key);
        if (!elsewhere.empty()) out << "; elsewhere: " << roff(join(elsewhere, ", "));
        out << '\n';
    }
}

}  // namespace

std::string man_page() {
    std::istringstream help(help_text());
    std::string title;
    std::getline(help, title);
    std::ostringstream out;
    out << ".TH LORATRAIN 1 \"\" \"loratrain " << version_text() << "\" \"User Commands\"\n"
        << ".nh\n.SH NAME\nloratrain \\- " << roff(title.substr(title.find(" - ") + 3)) << '\n';
    for (const Section& section : help_sections(help)) {
        out << ".SH " << (section.title == "Usage" ? "SYNOPSIS" : upper(section.title)) << '\n';
        write_lines(out, section.lines);
    }
    write_keys(out);
    return out.str();
}

}  // namespace loratrain
