#include "train/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <functional>

#include "base/log.h"
#include "base/text.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/raw_file.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* latest_name = "LATEST";

/// By the checkpoint's manifest; none if there is none that can be read.
std::map<std::string, std::string> checksums_of(const fs::path& checkpoint) {
    try {
        const Json manifest =
            Json::parse(read_text((checkpoint / checkpoint_manifest_name).string()));
        return manifest.at("files").get<std::map<std::string, std::string>>();
    } catch (const std::exception&) {
        return {};
    }
}

std::string find_in(const std::map<std::string, std::string>& checksums, const std::string& name) {
    const auto found = checksums.find(name);
    return found == checksums.end() ? "" : found->second;
}

}  // namespace

fs::path checkpoint_folder(const Job& job) {
    return fs::path(job.run.dir) / "ckpt";
}

std::string latest_round(const fs::path& folder) {
    const fs::path latest = folder / latest_name;
    if (!fs::exists(latest)) return "";
    std::string name = read_text(latest.string());
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return name;
}

void set_latest_round(const fs::path& folder, std::int32_t round) {
    write_text_atomic((folder / latest_name).string(), cat(round, "\n"));
}

void remove_latest_round(const fs::path& folder) {
    std::error_code missing;
    fs::remove(folder / latest_name, missing);
}

std::int64_t round_of(const std::string& name) {
    const bool number =
        !name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    return number ? std::stoll(name) : -1;
}

fs::path newest_stored(const fs::path& folder) {
    const std::string latest = latest_round(folder);
    if (round_of(latest) >= 0 && fs::is_directory(folder / latest)) return folder / latest;
    const std::vector<std::int64_t> rounds = stored_rounds(folder);
    return rounds.empty() ? "" : folder / std::to_string(rounds.front());
}

StoredFiles::StoredFiles(const fs::path& folder)
    : newest_(newest_stored(folder)), checksums_(checksums_of(newest_)) {
    for (const std::int64_t round : stored_rounds(folder)) {
        const fs::path checkpoint = folder / std::to_string(round);
        checkpoints_.emplace_back(checkpoint, checksums_of(checkpoint));
    }
}

std::string StoredFiles::checksum(const std::string& name) const {
    return find_in(checksums_, name);
}

std::string StoredFiles::copy(const std::string& name, const fs::path& target) const {
    const std::string wanted = checksum(name);
    if (wanted.empty()) return "";
    for (const auto& [checkpoint, checksums] : checkpoints_) {
        const fs::path source = checkpoint / name;
        if (find_in(checksums, name) != wanted || !fs::exists(source)) continue;
        if (copy_bytes(source.string(), (target / name).string()) == wanted) return wanted;
        log::warn(source.string() + " is damaged; trying the copy in an earlier checkpoint");
    }
    fs::remove(target / name);
    return "";
}

std::vector<std::int64_t> stored_rounds(const fs::path& folder) {
    std::vector<std::int64_t> rounds;
    if (!fs::is_directory(folder)) return rounds;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::int64_t round = round_of(entry.path().filename().string());
        if (round >= 0) rounds.push_back(round);
    }
    std::sort(rounds.begin(), rounds.end(), std::greater<>());
    return rounds;
}

}  // namespace loratrain
