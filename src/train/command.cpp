#include "train/command.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <sstream>
#include <string_view>

#include "plan/text/window_text.h"

namespace loratrain {

namespace {

using Numbers = std::span<const std::int32_t>;

constexpr std::size_t shown_of_damaged = 80;

// ---- writing

std::string write(const TrainWindow& train) {
    return "train\n" + to_text(train.window);
}

std::string write(const ReferWindow& refer) {
    return "refer\n" + to_text(refer.window);
}

std::string write(const KnownReferences& known) {
    std::string text = cat("known ", number(known.adapter), "\n");
    for (const double loss : known.losses) text += format_exact(loss) + "\n";
    return text;
}

std::string write(const SendAdapter& send) {
    return cat("send ", number(send.adapter), "\n");
}

std::string write(std::string kind, const std::vector<AdapterId>& adapters) {
    for (const AdapterId adapter : adapters) kind += cat(" ", number(adapter));
    return kind + "\n";
}

std::string write(const CopyStates& copy) {
    return write("copy", copy.adapters);
}

std::string write(const KeepParameters& keep) {
    std::string text = "keep";
    for (const auto& [adapter, step] : keep.adapters) text += cat(" ", number(adapter), " ", step);
    return text + "\n";
}

std::string write(const AdmitAdapters& admit) {
    return write("admit", admit.adapters);
}

std::string write(const ReleaseAdapter& release) {
    return cat("release ", number(release.adapter), "\n");
}

std::string write(const LoadAdapter& load) {
    return cat("load ", number(load.adapter), "\n") + load.directory;
}

std::string write(const CheckAdditions& check) {
    std::string text = "check";
    for (const InboxFile& file : check.files) {
        text += cat(" ", file.path.size(), " ", file.text.size());
    }
    text += "\n";
    for (const InboxFile& file : check.files) text += file.path + file.text;
    return text;
}

std::string write(const TakeAddition& take) {
    return "take\n" + take.plan;
}

std::string write(const DropAdditions&) {
    return "drop\n";
}

std::string write(const GenerateTexts& generate) {
    return cat("generate ", number(generate.adapter), "\n");
}

std::string write(const Finish& finish) {
    return cat("finish ", static_cast<int>(finish.code), finish.goes_on ? " 1\n" : " 0\n");
}

// ---- reading

std::int32_t read_number(std::string_view word) {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < 0) {
        throw Error(cat("'", word, "' is no number"));
    }
    return value;
}

/// Those behind the kind, each after one blank.
std::vector<std::int32_t> read_numbers(std::string_view words) {
    std::vector<std::int32_t> numbers;
    while (!words.empty()) {
        words.remove_prefix(1);
        const std::string_view word = words.substr(0, words.find(' '));
        numbers.push_back(read_number(word));
        words.remove_prefix(word.size());
    }
    return numbers;
}

std::int32_t only(Numbers numbers) {
    if (numbers.size() != 1) throw Error("one number is expected");
    return numbers.front();
}

void expect_none(Numbers numbers) {
    if (!numbers.empty()) throw Error("no number is expected");
}

void expect_end(std::string_view rest) {
    if (!rest.empty()) throw Error("text behind its end");
}

JointWindow read_window(Numbers numbers, const std::string& rest) {
    expect_none(numbers);
    return joint_window_from_text(rest);
}

std::vector<AdapterId> read_adapters(Numbers numbers) {
    std::vector<AdapterId> adapters;
    for (const std::int32_t number : numbers) adapters.push_back(AdapterId{number});
    return adapters;
}

KeepParameters read_keep(Numbers numbers) {
    if (numbers.size() % 2 != 0) throw Error("an adapter without its step");
    KeepParameters keep;
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
        keep.adapters.push_back({AdapterId{numbers[i]}, numbers[i + 1]});
    }
    return keep;
}

Finish read_finish(Numbers numbers) {
    if (numbers.size() != 2) throw Error("two numbers are expected");
    return {static_cast<ExitCode>(numbers[0]), numbers[1] != 0};
}

CheckAdditions read_check(Numbers numbers, std::string_view rest) {
    if (numbers.size() % 2 != 0) throw Error("a path without its text");
    const auto cut = [&rest](std::int32_t bytes) {
        const auto size = static_cast<std::size_t>(bytes);
        if (size > rest.size()) throw Error("a file is cut off");
        std::string text(rest.substr(0, size));
        rest.remove_prefix(size);
        return text;
    };
    CheckAdditions check;
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
        std::string path = cut(numbers[i]);
        check.files.push_back({std::move(path), cut(numbers[i + 1])});
    }
    expect_end(rest);
    return check;
}

KnownReferences read_known(std::int32_t adapter, const std::string& rest) {
    KnownReferences known{AdapterId{adapter}, {}};
    std::istringstream lines(rest);
    // Streams do not read "nan" as a number.
    for (std::string line; lines >> line;) known.losses.push_back(std::stod(line));
    return known;
}

WorkerCommand read(std::string_view kind, Numbers numbers, const std::string& rest) {
    if (kind == "train") return TrainWindow{read_window(numbers, rest)};
    if (kind == "refer") return ReferWindow{read_window(numbers, rest)};
    if (kind == "known") return read_known(only(numbers), rest);
    if (kind == "load") return LoadAdapter{AdapterId{only(numbers)}, rest};
    if (kind == "check") return read_check(numbers, rest);
    if (kind == "take") return expect_none(numbers), TakeAddition{rest};
    expect_end(rest);
    if (kind == "send") return SendAdapter{AdapterId{only(numbers)}};
    if (kind == "copy") return CopyStates{read_adapters(numbers)};
    if (kind == "keep") return read_keep(numbers);
    if (kind == "admit") return AdmitAdapters{read_adapters(numbers)};
    if (kind == "release") return ReleaseAdapter{AdapterId{only(numbers)}};
    if (kind == "generate") return GenerateTexts{AdapterId{only(numbers)}};
    if (kind == "finish") return read_finish(numbers);
    if (kind != "drop") throw Error("no such kind");
    expect_none(numbers);
    return DropAdditions{};
}

}  // namespace

std::string to_text(const WorkerCommand& command) {
    return std::visit([](const auto& kind) { return write(kind); }, command);
}

WorkerCommand command_from_text(const std::string& text) {
    const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
    try {
        if (line.size() == text.size()) throw Error("its first line does not end");
        const std::size_t end_of_kind = std::min(line.find(' '), line.size());
        return read(line.substr(0, end_of_kind), read_numbers(line.substr(end_of_kind)),
                    text.substr(line.size() + 1));
    } catch (const std::exception& error) {
        throw Error(cat("the command \"", line.substr(0, shown_of_damaged),
                        "\" cannot be read: ", error.what()));
    }
}

}  // namespace loratrain
