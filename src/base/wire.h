#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/archive.h"
#include "base/error.h"

/// Values as bytes between ranks of one program, by the fields() of archive.h:
///   whole numbers           as few bytes as they need (LEB128; signed: zigzag)
///   floating-point numbers  as in memory
///   texts, lists            their count, then the entries
///   optionals               a bool, then the value if there is one
///   variants                the index of the alternative, then its value
namespace loratrain {

class WireWriter {
  public:
    static constexpr bool reads = false;

    template <class T>
    void operator()(const char* /*key*/, const T& value) {
        write(value);
    }
    template <class T>
    void unless(const char* /*key*/, const T& value, const auto& /*usual*/) {
        write(value);
    }
    template <class... T>
    void list(const T&... values) {
        (write(values), ...);
    }
    template <class T>
    void kind(const char* /*key*/, const T& value, const auto& /*names*/) {
        write(value);
    }
    template <class T>
    void note(const char* /*key*/, const T& /*value*/) {}
    void format(const char* /*name*/) {}

    template <class T>
    void write(const T& value);
    std::string take() { return std::move(bytes_); }

  private:
    void count(std::uint64_t value) {
        constexpr std::uint64_t seven_bits = 0x7f;
        for (; value > seven_bits; value >>= 7U)
            bytes_ += static_cast<char>((value & seven_bits) | (seven_bits + 1));
        bytes_ += static_cast<char>(value);
    }
    template <class Number>
    void number(Number value) {
        if constexpr (std::is_floating_point_v<Number>) {
            raw(&value, 1);
        } else if constexpr (std::is_signed_v<Number>) {
            const auto wide = static_cast<std::uint64_t>(std::int64_t{value});
            count((wide << 1U) ^ (value < 0 ? ~std::uint64_t{0} : 0));
        } else {
            count(value);
        }
    }
    template <class Number>
    void raw(const Number* values, std::size_t size) {
        bytes_.append(reinterpret_cast<const char*>(values), size * sizeof(Number));  // NOLINT
    }

    std::string bytes_;
};

/// Throws Error if the bytes are not a value of the type that is read.
class WireReader {
  public:
    static constexpr bool reads = true;

    explicit WireReader(std::string_view bytes) : left_(bytes) {}

    template <class T>
    void operator()(const char* key, T&& value) {
        key_ = key;
        read(value);
    }
    template <class T>
    void unless(const char* key, T&& value, const auto& /*usual*/) {
        (*this)(key, value);
    }
    template <class... T>
    void list(T&&... values) {
        ((key_ = "a value", read(values)), ...);
    }
    template <class T>
    void kind(const char* key, T& value, const auto& /*names*/) {
        (*this)(key, value);
    }
    template <class T>
    void note(const char* /*key*/, const T& /*value*/) {}
    void format(const char* /*name*/) {}

    template <class T>
    void read(T& value);
    void expect_end() const {
        if (!left_.empty()) throw Error(cat(left_.size(), " bytes are left behind its end"));
    }

  private:
    [[noreturn]] void fail(std::string_view what) const { throw Error(cat(key_, " ", what)); }

    std::string_view take(std::size_t size) {
        if (size > left_.size()) fail("is cut off");
        const std::string_view taken = left_.substr(0, size);
        left_.remove_prefix(size);
        return taken;
    }
    std::uint64_t count() {
        constexpr unsigned most = 63;
        std::uint64_t value = 0;
        for (unsigned shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(1).front());
            if (shift == most && byte > 1) fail("is not a number");
            value |= std::uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80) return value;
        }
    }
    /// The count of entries that take a byte or more each.
    std::size_t size() {
        const std::uint64_t entries = count();
        if (entries > left_.size()) fail("is cut off");
        return static_cast<std::size_t>(entries);
    }
    template <class Number>
    void number(Number& value) {
        if constexpr (std::is_floating_point_v<Number>) {
            raw(&value, 1);
        } else {
            const std::uint64_t read = count();
            using Wide = std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t>;
            auto wide = static_cast<Wide>(read);
            if constexpr (std::is_signed_v<Number>)
                wide = static_cast<Wide>((read >> 1U) ^ (0 - (read & 1U)));
            value = static_cast<Number>(wide);
            if (static_cast<Wide>(value) != wide) fail("is out of range");
        }
    }
    template <class Number>
    void raw(Number* values, std::size_t size) {
        const std::string_view bytes = take(size * sizeof(Number));
        if (!bytes.empty()) std::memcpy(values, bytes.data(), bytes.size());
    }
    template <std::size_t at, class Variant>
    void alternative(std::size_t which, Variant& value) {
        if constexpr (at < std::variant_size_v<Variant>) {
            if (which == at) return read(value.template emplace<at>());
            alternative<at + 1>(which, value);
        } else {
            fail("is of no known kind");
        }
    }

    std::string_view left_;
    const char* key_ = "it";  ///< the key that was read last
};

template <class T>
void WireWriter::write(const T& value) {
    using namespace archived;
    if constexpr (std::is_same_v<T, bool>) {
        bytes_ += value ? '\1' : '\0';
    } else if constexpr (is_number<T>) {
        number(value);
    } else if constexpr (is_id<T>) {
        number(static_cast<std::int32_t>(value));
    } else if constexpr (is<T, Worded>) {
        number(static_cast<std::underlying_type_t<std::remove_cvref_t<decltype(value.value)>>>(
            value.value));
    } else if constexpr (is<T, Below>) {
        count(static_cast<std::uint64_t>(value.value));
    } else if constexpr (is<T, AtLeast>) {
        write(value.value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        count(value.size());
        bytes_ += value;
    } else if constexpr (is<T, std::optional>) {
        write(value.has_value());
        if (value) write(*value);
    } else if constexpr (is<T, std::pair>) {
        write(value.first);
        write(value.second);
    } else if constexpr (is<T, std::variant>) {
        count(value.index());
        std::visit([this](const auto& kind) { this->write(kind); }, value);
    } else if constexpr (std::is_same_v<T, std::vector<float>> ||
                         std::is_same_v<T, std::vector<double>>) {
        count(value.size());
        raw(value.data(), value.size());
    } else if constexpr (is<T, std::vector> || is<T, std::map>) {
        count(value.size());
        for (const auto& entry : value) write(entry);
    } else if constexpr (is_array<T>) {
        for (const auto& entry : value) write(entry);
    } else {
        fields(*this, fields_of(value));
    }
}

template <class T>
void WireReader::read(T& value) {
    using namespace archived;
    if constexpr (std::is_same_v<T, bool>) {
        const char byte = take(1).front();
        if (byte != '\0' && byte != '\1') fail("is neither true nor false");
        value = byte == '\1';
    } else if constexpr (is_number<T>) {
        number(value);
    } else if constexpr (is_id<T>) {
        std::int32_t found = 0;
        number(found);
        value = static_cast<T>(found);
    } else if constexpr (is<T, Worded>) {
        using E = std::remove_reference_t<decltype(value.value)>;
        std::underlying_type_t<E> found{};
        number(found);
        for (const auto& word : value.words) {
            if (static_cast<std::underlying_type_t<E>>(word.value) != found) continue;
            value.value = word.value;
            return;
        }
        fail("is not known");
    } else if constexpr (is<T, Below>) {
        const std::uint64_t found = count();
        if (found >= value.count) fail("is not known");
        value.value = static_cast<std::remove_reference_t<decltype(value.value)>>(found);
    } else if constexpr (is<T, AtLeast>) {
        read(value.value);
        if (!fits(value.value, value.least)) fail(cat("is less than ", value.least));
    } else if constexpr (std::is_same_v<T, std::string>) {
        value = take(size());
    } else if constexpr (is<T, std::optional>) {
        bool has = false;
        read(has);
        value.reset();
        if (has) read(value.emplace());
    } else if constexpr (is<T, std::pair>) {
        read(value.first);
        read(value.second);
    } else if constexpr (is<T, std::variant>) {
        alternative<0>(count(), value);
    } else if constexpr (std::is_same_v<T, std::vector<float>> ||
                         std::is_same_v<T, std::vector<double>>) {
        const std::size_t entries = size();
        if (entries > left_.size() / sizeof(typename T::value_type)) fail("is cut off");
        value.resize(entries);
        raw(value.data(), entries);
    } else if constexpr (is<T, std::map>) {
        value.clear();
        for (std::size_t left = size(); left > 0; --left) {
            std::string key;
            read(key);
            read(value[key]);
        }
    } else if constexpr (is<T, std::vector>) {
        value.clear();
        for (std::size_t left = size(); left > 0; --left) read(value.emplace_back());
    } else if constexpr (is_array<T>) {
        for (auto& entry : value) read(entry);
    } else {
        fields(*this, value);
    }
}

template <class T>
std::string to_wire(const T& value) {
    WireWriter writer;
    writer.write(value);
    return writer.take();
}

/// Throws Error("WHAT cannot be read: ..."), where `what` is a text such as "a command".
template <class T>
T from_wire(std::string_view bytes, std::string_view what) {
    try {
        WireReader reader(bytes);
        T value{};
        reader.read(value);
        reader.expect_end();
        return value;
    } catch (const Error& error) {
        throw Error(cat(what, " cannot be read: ", error.what()));
    }
}

}  // namespace loratrain
