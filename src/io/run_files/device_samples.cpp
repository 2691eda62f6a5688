#include "io/run_files/device_samples.h"

#include <cmath>
#include <sstream>

#include "base/text.h"
#include "io/json_text.h"

namespace loratrain {

namespace {

constexpr double last_moment = 253402300799.0;  // of the year 9999

double to_tenth(double value) {
    return std::round(value * 10.0) / 10.0;
}

template <class T>
void read_key(const OrderedJson& object, const char* key, std::optional<T>& value) {
    const auto found = object.find(key);
    if (found != object.end()) value = found->get<T>();
}

std::uint64_t bytes_at(const OrderedJson& object, const char* key) {
    const OrderedJson& value = object.at(key);
    if (!value.is_number_unsigned()) throw JsonRefusal(cat("'", key, "' is not a number of bytes"));
    return value.get<std::uint64_t>();
}

DeviceSample sample_of(const OrderedJson& object) {
    DeviceSample sample;
    sample.time = object.at("time").get<double>();
    sample.seconds = object.at("seconds").get<double>();
    sample.rank = whole_number(object, "rank");
    sample.resident_bytes = bytes_at(object, "resident_bytes");
    sample.allocated_bytes = bytes_at(object, "allocated_bytes");
    read_key(object, "watts", sample.gpu.watts);
    read_key(object, "sm_mhz", sample.gpu.sm_mhz);
    read_key(object, "celsius", sample.gpu.celsius);
    if (object.contains("used_bytes")) sample.gpu.used_bytes = bytes_at(object, "used_bytes");
    read_key(object, "slowed_by_power", sample.gpu.slowed_by_power);
    read_key(object, "slowed_by_heat", sample.gpu.slowed_by_heat);
    return sample;
}

std::optional<DeviceSample> sample_in(const std::string& line) {
    const OrderedJson json = parse_json_or_discard(line);
    if (!json.is_object()) return std::nullopt;
    try {
        const DeviceSample sample = sample_of(json);
        const bool is_moment = sample.time >= 0.0 && sample.time <= last_moment &&
                               sample.seconds >= 0.0 && sample.seconds <= sample.time;
        return is_moment ? std::optional(sample) : std::nullopt;
    } catch (const OrderedJson::exception&) {
        return std::nullopt;
    }
}

}  // namespace

std::string device_file_name(std::int32_t rank) {
    return cat("rank-", rank, ".jsonl");
}

std::string to_line(const DeviceSample& sample) {
    OrderedJson json{{"time", to_tenth(sample.time)},
                     {"seconds", to_tenth(sample.seconds)},
                     {"rank", sample.rank},
                     {"resident_bytes", sample.resident_bytes},
                     {"allocated_bytes", sample.allocated_bytes}};
    if (sample.gpu.watts) json["watts"] = to_tenth(*sample.gpu.watts);
    if (sample.gpu.sm_mhz) json["sm_mhz"] = *sample.gpu.sm_mhz;
    if (sample.gpu.celsius) json["celsius"] = *sample.gpu.celsius;
    if (sample.gpu.used_bytes) json["used_bytes"] = *sample.gpu.used_bytes;
    if (sample.gpu.slowed_by_power) json["slowed_by_power"] = *sample.gpu.slowed_by_power;
    if (sample.gpu.slowed_by_heat) json["slowed_by_heat"] = *sample.gpu.slowed_by_heat;
    return dump_json(json);
}

std::vector<DeviceSample> device_samples(const std::string& text) {
    std::vector<DeviceSample> samples;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (const auto sample = sample_in(line)) samples.push_back(*sample);
    }
    return samples;
}

}  // namespace loratrain
