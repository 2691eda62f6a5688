#include "config/job_keys.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/foreign_keys.h"
#include "config/job_sections.h"
#include "config/key_texts.h"

namespace loratrain {

namespace {

/// Visits keys and lists them.
class KeyList : public KeyTexts {
  public:
    KeyList(const char* section, Resume resume) : section_(section), resume_(resume) {}

    using KeyTexts::key;
    template <class E, class Int, std::size_t N>
    void key(const char* name, const WordOrNumber<E, Int>& value,
             const std::array<Word<E>, N>& words, const char* help, const KeyInfo& info = {}) {
        key(name, value.word, words, help, info);
        if (info.inside == nullptr) return;
        KeyList list(info.inside, resume_);
        list.mention(value.key, value.help, {.required = value.hint});
        add_inside(std::move(list));
    }
    template <class T, class Item>
    void own(const char* name, const T& /*object*/, const OwnKey<T, Item>& /*ways*/,
             const char* help, const KeyInfo& info = {}) {
        if constexpr (std::is_void_v<Item>) {
            mention(name, help, info);
        } else {
            Item item;
            section(name, item, help, info);
        }
    }
    template <class T>
    void section(const char* name, T& object, const char* help, const KeyInfo& info = {}) {
        mention(name, help, info);
        KeyList list(info.inside != nullptr ? info.inside : name, std::max(resume_, info.resume));
        if constexpr (std::is_same_v<T, SweepJob>) {
            SweepSpace space;
            keys(list, space);
        }
        keys(list, object);
        add_inside(std::move(list));
    }
    template <class Item>
    void section(const char* name, std::vector<Item>& /*objects*/, const char* help,
                 const KeyInfo& info) {
        Item usual;
        section(name, usual, help, info);
    }

    std::vector<JobKey> rows() && {
        std::move(inside_.begin(), inside_.end(), std::back_inserter(rows_));
        return std::move(rows_);
    }

  private:
    void see(const SeenKey& key) override {
        const KeyInfo& info = key.info;
        std::string usual = key.text.value_or("");
        if (info.required != nullptr) usual = "required";
        if (info.usual != nullptr) usual = info.usual;
        rows_.push_back({section_, key.name, usual, key.help, std::max(resume_, info.resume),
                         key.whole, info.shared,
                         info.in_names != nullptr ? info.in_names : cat(key.name, "-")});
    }
    void add_inside(KeyList&& list) {
        std::ranges::move(std::move(list).rows(), std::back_inserter(inside_));
    }

    const char* section_;
    Resume resume_;
    std::vector<JobKey> rows_;
    std::vector<JobKey> inside_;  ///< of sections in this one
};

std::vector<JobKey> list_keys() {
    Job job;
    KeyList list("", Resume::refused);
    keys(list, job);
    return std::move(list).rows();
}

void write_markdown(std::ostringstream& out, const JobKey& row) {
    const auto padded = [&](std::string text, std::size_t width) {
        text.resize(std::max(text.size(), width), ' ');
        out << "| " << text << ' ';
    };
    std::vector<std::string> names = names_elsewhere(row.section, row.key);
    for (std::string& name : names) name = cat("`", name, "`");
    padded(cat("`", row.key, "`"), 26);
    padded(row.default_value, 12);
    out << "| " << row.meaning << " | " << join(names, ", ") << " |\n";
}

void write_text(std::ostringstream& out, const JobKey& row) {
    constexpr std::size_t indent = 6;
    const auto line = [&](const std::string& text) {
        out << wrapped(std::string(indent, ' ') + text, indent) << '\n';
    };
    const std::string& usual = row.default_value;
    out << "  " << row.key
        << (usual.empty()         ? ""
            : usual == "required" ? ", required"
                                  : ", default " + usual)
        << '\n';
    line(row.meaning);
    const std::vector<std::string> names = names_elsewhere(row.section, row.key);
    if (!names.empty()) line("elsewhere: " + join(names, ", "));
}

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

/// A glob matches all of the name, other texts a part of it.
bool is_meant(const std::string& name, const std::string& part) {
    const bool glob = part.find_first_of("*?[") != std::string::npos;
    if (!glob) return lower(name).find(part) != std::string::npos;
    return fnmatch(part.c_str(), lower(name).c_str(), 0) == 0;
}

std::string full_name(const JobKey& row) {
    return row.section.empty() ? row.key : cat(row.section, ".", row.key);
}

}  // namespace

const std::vector<JobKey>& job_keys() {
    static const std::vector<JobKey> rows = list_keys();
    return rows;
}

const JobKey* find_job_key(const std::string& section, const std::string& key) {
    const auto& rows = job_keys();
    const auto found = std::ranges::find_if(
        rows, [&](const JobKey& row) { return key == row.key && section == row.section; });
    return found == rows.end() ? nullptr : &*found;
}

std::string key_place(const std::string& section, const std::string& key) {
    if (section == adapter_section) return cat(key, " of an adapter or of defaults");
    return section.empty() ? key : cat(section, ".", key);
}

std::vector<std::string> sections_with(const std::string& key) {
    std::vector<std::string> sections;
    for (const JobKey& row : job_keys()) {
        if (key == row.key) sections.push_back(row.section);
    }
    return sections;
}

std::vector<JobKey> find_job_keys(const std::string& part) {
    std::vector<JobKey> found;
    std::vector<std::string> known;
    for (const JobKey& row : job_keys()) {
        std::vector<std::string> names = names_elsewhere(row.section, row.key);
        names.insert(names.begin(), row.key);
        if (part.find('.') != std::string::npos) names.push_back(full_name(row));
        const bool meant =
            part == row.section || std::ranges::any_of(names, [&](const std::string& name) {
                return is_meant(name, lower(part));
            });
        if (meant) found.push_back(row);
        known.insert(known.end(), names.begin(), names.end());
    }
    if (!found.empty()) return found;
    const std::string near = nearest(part, known);
    throw InputError(
        "--keys", cat("no key has '", part, "' in its name"),
        near.empty() ? "loratrain --keys prints all keys" : cat("did you mean ", near, "?"));
}

std::string keys_text(const std::vector<JobKey>& rows) {
    std::ostringstream out;
    const std::string* section = nullptr;
    for (const JobKey& row : rows) {
        if (section == nullptr || *section != row.section) {
            if (section != nullptr) out << '\n';
            section = &row.section;
            out << (section->empty() ? "sections" : *section) << ":\n";
        }
        write_text(out, row);
    }
    return out.str();
}

std::string keys_markdown(const std::vector<JobKey>& rows) {
    std::ostringstream out;
    out << "| key | default | meaning | keys elsewhere that point here |\n"
           "|---|---|---|---|\n";
    std::string section;
    for (const JobKey& row : rows) {
        if (row.section.empty()) continue;
        if (section != row.section) {
            section = row.section;
            out << "| **" << section << "** | | | |\n";
        }
        write_markdown(out, row);
    }
    return out.str();
}

}  // namespace loratrain
