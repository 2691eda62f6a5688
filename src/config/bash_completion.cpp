#include "config/pages.h"

#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "base/text.h"
#include "config/command_line.h"
#include "config/job_keys.h"

namespace loratrain {

namespace {

using Words = std::vector<std::string>;

Words split(const std::string& text, char separator) {
    Words words;
    std::istringstream in(text);
    for (std::string word; std::getline(in, word, separator);) words.push_back(word);
    return words;
}

/// "h200|h100", "auto": what is given as it stands, where 5, N and PATH stand for something.
bool is_choice(const std::string& text) {
    return !text.empty() && text[0] >= 'a' && text[0] <= 'z' &&
           text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789|-") == std::string::npos;
}

/// For every option with a value the words that the help has behind it.
std::map<std::string, std::set<std::string>> choices_of_options() {
    std::map<std::string, std::set<std::string>> choices;
    for (const CommandWords& command : command_words()) {
        for (const OptionWord& option : command.options) {
            if (option.takes_value) choices[option.name];
        }
    }
    for (const std::string& line : split(help_text(), '\n')) {
        if (line.ends_with(':')) continue;  // a heading
        const Words words = split(line, ' ');
        for (std::size_t i = 0; i + 1 < words.size(); ++i) {
            const auto found = choices.find(words[i]);
            if (found == choices.end() || !is_choice(words[i + 1])) continue;
            for (const std::string& choice : split(words[i + 1], '|')) found->second.insert(choice);
        }
    }
    return choices;
}

Words keys_to_set() {
    Words keys;
    for (const JobKey& key : job_keys()) {
        const bool of_section = !key.section.empty() && find_job_key("", key.section) != nullptr;
        if (key.section == adapter_section) keys.push_back(cat("defaults.", key.key, "="));
        if (of_section) keys.push_back(cat(key.section, ".", key.key, "="));
    }
    return keys;
}

std::string value_cases() {
    std::ostringstream out;
    for (const auto& [option, choices] : choices_of_options()) {
        const std::string words = join({choices.begin(), choices.end()}, " ");
        if (option == "--set") {
            out << "        --set) compopt -o nospace 2>/dev/null; words='"
                << join(keys_to_set(), " ") << "' ;;\n";
        } else if (!words.empty()) {
            out << "        " << option << ") words='" << words << "' ;;\n";
        } else {
            out << "        " << option << ") compopt -o default 2>/dev/null; return ;;\n";
        }
    }
    return out.str();
}

std::string option_cases() {
    std::string cases;
    std::string otherwise;
    for (const CommandWords& command : command_words()) {
        Words names;
        for (const OptionWord& option : command.options) names.push_back(option.name);
        const bool named = !command.word.empty();
        (named ? cases : otherwise) += cat("                ", named ? command.word : "*",
                                           ") words='", join(names, " "), "' ;;\n");
    }
    return cases + otherwise;
}

Words commands() {
    Words words;
    for (const CommandWords& command : command_words()) {
        if (!command.word.empty()) words.push_back(command.word);
    }
    return words;
}

}  // namespace

std::string bash_completion() {
    return cat(
        R"(# bash completion of loratrain; made by the build from its command line, help and keys.
_loratrain() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=''
    COMPREPLY=()
    case "$before" in
)",
        value_cases(), R"(    esac
    if [ -z "$words" ]; then
        if [ "$COMP_CWORD" -eq 1 ] && [ "${current:0:1}" != - ]; then
            words=')",
        join(commands(), " "), R"('
            compopt -o default 2>/dev/null
        elif [ "${current:0:1}" != - ]; then
            compopt -o default 2>/dev/null
            return
        else
            case "${COMP_WORDS[1]}" in
)",
        option_cases(), R"(            esac
        fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _loratrain loratrain
)");
}

}  // namespace loratrain
