#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/key_texts.h"

namespace loratrain {

/// Visitor that writes the keys with KeyInfo::written as YAML.
class KeyWriter : public KeyTexts {
  public:
    explicit KeyWriter(const Job& job) : job_(job) {}

    using KeyTexts::key;
    template <class E, class Int, std::size_t N>
    void key(const char* name, const WordOrNumber<E, Int>& value,
             const std::array<Word<E>, N>& words, const char* /*help*/,
             const KeyInfo& /*info*/ = {}) {
        if (!value.has_number()) return put(name, word_of(words, value.word));
        put_map(name, true, [&] { put(value.key, value_text(value.given())); });
    }
    template <class T, class Item>
    void own(const char* /*name*/, const T& object, const OwnKey<T, Item>& ways,
             const char* /*help*/, const KeyInfo& info = {}) {
        if (info.written && info.used && ways.write != nullptr) ways.write(*this, object);
    }
    /// lr_scheduler_kwargs, a part of an adapter, stands in one line.
    template <class T>
    void section(const char* name, T& object, const char* /*help*/, const KeyInfo& info = {}) {
        if (info.written) put_map(name, info.in_line, [&] { keys(*this, object); });
    }
    void section(const char* name, std::vector<DatasetJob>& datasets, const char* help,
                 const KeyInfo& info);
    void section(const char* name, std::vector<AdapterJob>& adapters, const char* help,
                 const KeyInfo& info);

    void put(const std::string& key, const std::string& text);
    void put_list(const char* key, const std::vector<std::string>& words);
    /// Writes a mapping; `fill` writes its keys.
    template <class Fill>
    void put_map(const std::string& key, bool in_line, const Fill& fill) {
        begin(key, in_line);
        out_ << YAML::BeginMap;
        fill();
        out_ << YAML::EndMap;
    }
    /// Writes a list of mappings; `fill` writes the keys of one item.
    template <class Item, class Fill>
    void put_maps(const std::string& key, bool in_line, std::vector<Item>& items,
                  const Fill& fill) {
        begin(key, in_line);
        out_ << YAML::BeginSeq;
        for (Item& item : items) {
            out_ << YAML::BeginMap;
            fill(item);
            out_ << YAML::EndMap;
        }
        out_ << YAML::EndSeq;
    }

    /// The job whose keys are written.
    const Job& job() const { return job_; }
    /// The text of a mapping; `fill` writes its keys.
    template <class Fill>
    std::string text(const Fill& fill) {
        out_ << YAML::BeginMap;
        fill();
        out_ << YAML::EndMap;
        LORATRAIN_CHECK(out_.good(), out_.GetLastError());
        return std::string(out_.c_str()) + "\n";
    }

  private:
    void see(const SeenKey& key) override;
    void begin(const std::string& key, bool in_line);
    void put_text(const std::string& text);

    const Job& job_;
    YAML::Emitter out_;
};

}  // namespace loratrain
