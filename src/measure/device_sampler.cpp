#include "measure/device_sampler.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "base/plain_file.h"
#include "base/system.h"
#include "io/files.h"

namespace loratrain {

namespace {

/// The first, and each that is about so many seconds or more from the one kept before it.
std::vector<DeviceSample> apart_by(const std::vector<DeviceSample>& samples, double seconds) {
    std::vector<DeviceSample> kept;
    for (const DeviceSample& sample : samples) {
        if (kept.empty() || std::fabs(sample.time - kept.back().time) >= 0.95 * seconds) {
            kept.push_back(sample);
        }
    }
    return kept;
}

}  // namespace

DeviceSampler::DeviceSampler(std::string folder, std::int32_t rank,
                             std::function<std::uint64_t()> allocated, GpuSensors sensors,
                             SamplePace pace)
    : folder_(std::move(folder)),
      rank_(rank),
      allocated_(std::move(allocated)),
      sensors_(std::move(sensors)),
      pace_(pace) {}

void DeviceSampler::look() {
    if (!path_.empty() && seconds_since(last_) >= pace_.seconds) take();
}

void DeviceSampler::take() {
    const activity::Aside aside;
    try {
        if (!std::exchange(opened_, true)) open();
        if (path_.empty()) return;
        last_ = Clock::now();
        const DeviceSample taken = sample();
        add_energy(taken);
        append(taken);
        if (lines_ >= pace_.most_lines) thin();
    } catch (const std::exception& error) {
        path_.clear();
        log::info(cat("samples of memory and devices end here: ", error.what()));
    }
}

DeviceSample DeviceSampler::sample() const {
    DeviceSample sample;
    sample.time = unix_time();
    sample.seconds = std::chrono::duration<double>(last_ - first_).count();
    sample.rank = rank_;
    sample.resident_bytes = resident_memory().now;
    sample.allocated_bytes = allocated_();
    sample.gpu = sensors_.read();
    return sample;
}

void DeviceSampler::add_energy(const DeviceSample& sample) {
    if (!sample.gpu.watts) return;
    if (last_power_) {
        const double mean = 0.5 * (*last_power_->gpu.watts + *sample.gpu.watts);
        joules_ = joules_.value_or(0.0) + mean * (sample.seconds - last_power_->seconds);
    }
    last_power_ = sample;
}

/// What a writer that died has left of a line goes.
void DeviceSampler::open() {
    if (!std::filesystem::is_directory(folder_)) return;
    path_ = folder_ + "/" + device_file_name(rank_);
    first_ = Clock::now();
    if (!std::filesystem::exists(path_)) return;
    const std::string text = read_text(path_);
    const std::vector<DeviceSample> samples = device_samples(text);
    lines_ = samples.size();
    if (!text.empty() && text.back() != '\n') write(samples);
}

void DeviceSampler::append(const DeviceSample& sample) {
    append_to_plain_file(path_, to_line(sample) + "\n");
    ++lines_;
}

void DeviceSampler::thin() {
    std::vector<DeviceSample> samples = device_samples(read_text(path_));
    while (samples.size() > pace_.most_lines / 2) {
        pace_.seconds *= 2.0;
        samples = apart_by(samples, pace_.seconds);
    }
    write(samples);
}

void DeviceSampler::write(const std::vector<DeviceSample>& samples) {
    std::string text;
    for (const DeviceSample& sample : samples) text += to_line(sample) + "\n";
    write_text_atomic(path_, text);
    lines_ = samples.size();
}

}  // namespace loratrain
