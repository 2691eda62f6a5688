#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads the keys of a section into the fields of a struct.

/// Whether the value is a whole number, at most the largest int: 3.0 is, 3.5 is not.
bool is_whole(double value);

/// Visitor that reads the keys of a section into their fields, and logs unusable values.
class KeyReader {
  public:
    /// `shared`: reads `defaults`, without keys that adapters do not share. `null_is_none`: as in
    /// KeyInfo, for every key.
    explicit KeyReader(SectionReader& section, bool shared = false, bool null_is_none = false)
        : section_(section), shared_(shared), null_is_none_(null_is_none) {}

    template <class T>
    void key(const char* name, T& value, const char* /*help*/, const KeyInfo& info = {}) {
        if (begin(name, info)) section_.read(name, value, info.range);
    }
    void key(const char* name, std::optional<double>& value, const char* help,
             const KeyInfo& info = {});
    template <class E, std::size_t N>
    void key(const char* name, E& value, const std::array<Word<E>, N>& words, const char* /*help*/,
             const KeyInfo& info = {}) {
        if (begin(name, info)) section_.read_word(name, value, words);
    }
    template <class E, class Int, std::size_t N>
    void key(const char* name, const WordOrNumber<E, Int>& value,
             const std::array<Word<E>, N>& words, const char* /*help*/, const KeyInfo& info = {}) {
        const YamlNode* node = section_.find(name);
        if (node == nullptr || node->kind != YamlNode::Kind::map) {
            return section_.read_word(name, value.word, words);
        }
        SectionReader map = section_.section(name, info.inside);
        int number = 0;
        map.require(value.key, value.hint);
        map.read(value.key, number, at_least(0));
        map.finish();
        value.word = value.numbered;
        value.number = number;
    }
    void path(const char* name, std::string& value, const char* /*help*/,
              const KeyInfo& info = {}) {
        if (begin(name, info)) section_.read_path(name, value);
    }
    template <class T, class Item>
    void own(const char* name, T& object, const OwnKey<T, Item>& ways, const char* /*help*/,
             const KeyInfo& info = {}) {
        if (begin(name, info) && ways.read != nullptr) ways.read(section_, object);
    }
    /// A mapping with keys of its own.
    template <class T>
    void section(const char* name, T& object, const char* /*help*/, const KeyInfo& info = {}) {
        if (!section_.has(name)) return;
        object = T{};
        if (!begin(name, info)) return;
        SectionReader map = section_.section(name, info.inside);
        KeyReader reader(map, false, info.null_is_none);
        keys(reader, object);
        map.finish();
    }
    void mention(const char* name, const char* /*help*/, const KeyInfo& info = {}) {
        begin(name, info);
    }

  private:
    /// Whether the section may have the key.
    bool begin(const char* name, const KeyInfo& info);

    SectionReader& section_;
    bool shared_;
    bool null_is_none_;
};

}  // namespace loratrain
