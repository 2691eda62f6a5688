#include "train/command.h"

#include <string>
#include <utility>

#include "base/threads.h"
#include "plan/schedule/window_fields.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, TrainWindow& train) {
    archive("window", train.window);
}

template <class Archive>
void fields(Archive& archive, ReferWindow& refer) {
    archive("window", refer.window);
}

template <class Archive>
void fields(Archive& archive, ReferenceValues& of) {
    archive("values", of.values);
    archive("ends", of.ends);
}

template <class Archive>
void fields(Archive& archive, KnownReferences& known) {
    archive("adapter", known.adapter);
    archive("losses", known.losses);
}

template <class Archive>
void fields(Archive& archive, SendAdapter& send) {
    archive("adapter", send.adapter);
}

template <class Archive>
void fields(Archive& archive, CopyStates& copy) {
    archive("adapters", copy.adapters);
}

template <class Archive>
void fields(Archive& archive, AdapterAtStep& at) {
    archive("adapter", at.adapter);
    archive("step", at.step);
}

template <class Archive>
void fields(Archive& archive, KeepParameters& keep) {
    archive("adapters", keep.adapters);
}

template <class Archive>
void fields(Archive& archive, AdmitAdapters& admit) {
    archive("adapters", admit.adapters);
}

template <class Archive>
void fields(Archive& archive, ReleaseAdapter& release) {
    archive("adapter", release.adapter);
}

template <class Archive>
void fields(Archive& archive, LoadAdapter& load) {
    archive("adapter", load.adapter);
    archive("directory", load.directory);
}

template <class Archive>
void fields(Archive& archive, CheckAdditions& check) {
    archive("files", check.files);
}

template <class Archive>
void fields(Archive& archive, TakeAddition& take) {
    archive("plan", take.plan);
}

template <class Archive>
void fields(Archive& /*archive*/, DropAdditions& /*drop*/) {}

template <class Archive>
void fields(Archive& archive, TokenSample& sample) {
    archive("input_ids", sample.input_ids);
    archive("labels", sample.labels);
    archive("weights", sample.weights);
    archive("advantages", sample.advantages);
    archive("logprobs", sample.logprobs);
    archive("adapter_step", sample.adapter_step);
    archive("label", sample.label);
}

template <class Archive>
void fields(Archive& archive, AddSamples& add) {
    archive("dataset", add.dataset);
    archive("first", add.first);
    archive("samples", add.samples);
    archive("first_needed", add.first_needed);
}

template <class Archive>
void fields(Archive& archive, GenerateTexts& generate) {
    archive("adapter", generate.adapter);
}

template <class Archive>
void fields(Archive& archive, WriteTexts& write) {
    archive("orders", write.orders);
}

template <class Archive>
void fields(Archive& archive, Finish& finish) {
    archive("code", finish.code);
    archive("goes_on", finish.goes_on);
}

std::string to_bytes(const WorkerCommand& command) {
    return to_wire(command);
}

WorkerCommand command_from_bytes(std::string_view bytes) {
    return from_wire<WorkerCommand>(bytes, "a command");
}

namespace {

constexpr std::size_t long_text = std::size_t{4} << 10U;  // a thread takes longer to begin

}  // namespace

void CommandReader::look() {
    while (std::optional<std::string> text = channel_.arrived()) read(*std::move(text));
}

WorkerCommand CommandReader::next(const std::function<void()>& meanwhile) {
    if (taken_.empty()) return command_from_bytes(channel_.next(meanwhile));
    std::future<WorkerCommand> first = std::move(taken_.front());
    taken_.pop_front();
    return first.get();
}

void CommandReader::read(std::string text) {
    if (text.size() < long_text) {
        taken_.push_back(std::async(std::launch::deferred,
                                    [text = std::move(text)] { return command_from_bytes(text); }));
        return;
    }
    taken_.push_back(std::async(std::launch::async, [text = std::move(text)] {
        const BackgroundWork background;
        return command_from_bytes(text);
    }));
}

}  // namespace loratrain
