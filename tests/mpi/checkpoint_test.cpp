#include "train/checkpoint/checkpoint_reader.h"

#include <filesystem>
#include <fstream>

#include "backend/make_backend.h"
#include "base/error.h"
#include "base/rng.h"
#include "config/job_yaml.h"
#include "io/files.h"
#include "mpi/gather_adapter.h"
#include "mpi/shared_temp_dir.h"
#include "plan/deploy/partition_layers.h"
#include "support/made_up_form.h"
#include "support/small_model.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/stored_adapter.h"
#include "train/stage_run.h"
#include "unit/model/shared_stages.h"

namespace loratrain::mpi_test {
namespace {

using test::made_up_form;
using test::sharing_stages;
using test::small_model;

namespace fs = std::filesystem;

constexpr AdapterBank::Part parts[] = {AdapterBank::Part::parameters,
                                       AdapterBank::Part::first_moments,
                                       AdapterBank::Part::second_moments};

/// A run directory with a job of three adapters; of one backend and bank after another.
class Checkpoints : public ::testing::Test {
  protected:
    Checkpoints() : backend_(make_backend("cpu", {1, 0})) {
        job_.run.dir = folder_.path();
        for (const char* name : {"a", "b", "c"}) {
            job_.adapters.emplace_back();
            job_.adapters.back().name = name;
            job_.adapters.back().r = 3;
        }
        job_.datasets.emplace_back();
        job_.datasets.back().name = "data";
        plan_.model = small_model();
        plan_.model.dense().size = 64;
        plan_.replicas.resize(1);
        plan_.replicas[0].stages =
            partition_layers(static_cast<std::int32_t>(plan_.model.layers), session().size(),
                             CostModel{}, MicrobatchLoad{});
        plan_.adapter_capacity = 8;
        plan_.adapters.resize(8);
        for (AdapterPlan& adapter : plan_.adapters) adapter.total_steps = 100;
        plan_.first_admitted = {AdapterId{0}, AdapterId{1}};
        identity_ = {to_yaml(job_), "weights", {"data"}, {""}};
        state_.adapters.resize(3);
        state_.adapters[0].steps = 5;
        state_.adapters[1].steps = 4;
        state_.adapters[2].status = AdapterStatus::waiting;
    }

    const StagePlan& stage() const {
        return plan_.replicas[0].stages[static_cast<std::size_t>(session().rank())];
    }
    std::unique_ptr<AdapterBank> bank() const {
        return std::make_unique<AdapterBank>(job_, only_replica(plan_), stage(), *backend_);
    }
    void fill(AdapterBank& bank, AdapterId adapter, std::uint64_t key) const {
        for (std::size_t p = 0; p < std::size(parts); ++p) {
            auto tensors = bank.download(adapter, parts[p]);
            for (NamedTensor& tensor : tensors) {
                const std::uint64_t tensor_key_ = mix_key(hash_name(tensor.name), key + p);
                for (std::size_t i = 0; i < tensor.values.size(); ++i) {
                    tensor.values[i] = uniform_float(tensor_key_, i);
                }
            }
            bank.upload(adapter, parts[p], tensors);
        }
        bank.set_counters(adapter, {static_cast<std::int64_t>(key), 1});
    }
    void save(AdapterBank& bank, std::int32_t round, const std::string& root = "",
              const std::vector<AdapterId>& adapters = {AdapterId{0}, AdapterId{1}, AdapterId{2}}) {
        state_.round = round;
        std::optional<CheckpointWriter> writer;
        if (session().is_root()) writer.emplace(job_, identity_, round, root);
        for (const AdapterId adapter : adapters) {
            const Residence residence = bank.residence(adapter);
            if (residence == Residence::released && writer) writer->keep(adapter);
            if (residence == Residence::absent || residence == Residence::released) continue;
            std::vector<std::vector<NamedTensor>> whole;
            std::vector<TensorSource> stored;
            for (const StoredPart& part : stored_parts) {
                whole.push_back(gather_adapter(session(), job_, plan_, bank, adapter, part.part));
                append_part(part, sources_of(whole.back()), stored);
            }
            if (writer) writer->write(adapter, stored, bank.counters(adapter));
        }
        if (writer) writer->complete(state_);
        barrier(session());
    }
    RunState load(AdapterBank& bank, int round) const {
        return load_checkpoint(path(round), job_, plan_.model, stage(), bank);
    }
    std::string path(int round) const { return cat(job_.run.dir, "/ckpt/", round); }
    bool has_file(int round, const char* name) const {
        return fs::exists(cat(path(round), "/", name, ".safetensors"));
    }
    /// Saves three adapters on stages like `writers`, one of them suspended; any stage of `readers`
    /// can continue (the ranks try them in turn).
    void expect_loadable(const std::vector<StagePlan>& writers,
                         const std::vector<StagePlan>& readers) {
        plan_.first_admitted = {AdapterId{0}, AdapterId{1}, AdapterId{2}};
        plan_.replicas[0].stages = writers;
        const auto saved = bank();
        for (const AdapterId adapter : plan_.first_admitted) {
            fill(*saved, adapter, 11 * index(adapter) + 7);
        }
        saved->suspend(AdapterId{1});
        save(*saved, 5);
        const auto ranks = static_cast<std::size_t>(session().size());
        for (auto i = static_cast<std::size_t>(session().rank()); i < readers.size(); i += ranks) {
            const StagePlan& reader = readers[i];
            AdapterBank loaded(job_, only_replica(plan_), reader, *backend_);
            load_checkpoint(path(5), job_, plan_.model, reader, loaded);
            AdapterBank want(job_, only_replica(plan_), reader, *backend_);
            for (const AdapterId adapter : plan_.first_admitted) {
                fill(want, adapter, 11 * index(adapter) + 7);
                expect_equal(loaded, want, adapter);
            }
        }
        barrier(session());
    }
    static void expect_equal(const AdapterBank& got, const AdapterBank& want, AdapterId adapter) {
        for (const AdapterBank::Part part : parts) {
            const auto a = got.download(adapter, part);
            const auto b = want.download(adapter, part);
            ASSERT_EQ(a.size(), b.size());
            for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].values, b[i].values);
        }
        EXPECT_EQ(got.counters(adapter).applied_steps, want.counters(adapter).applied_steps);
        EXPECT_EQ(got.counters(adapter).skipped_steps, want.counters(adapter).skipped_steps);
    }

    SharedTempDir folder_;
    Job job_;
    Plan plan_;
    RunIdentity identity_;
    RunState state_;
    std::unique_ptr<Backend> backend_;
};

TEST_F(Checkpoints, AdaptersWhereverTheyAre) {
    const auto saved = bank();
    fill(*saved, AdapterId{0}, 11);
    fill(*saved, AdapterId{1}, 22);
    saved->suspend(AdapterId{1});
    save(*saved, 5);
    EXPECT_TRUE(has_file(5, "a"));
    EXPECT_TRUE(has_file(5, "b"));
    EXPECT_FALSE(has_file(5, "c"));

    plan_.first_admitted = {AdapterId{1}, AdapterId{2}};
    const auto loaded = bank();
    const RunState state = load(*loaded, 5);
    EXPECT_EQ(state.round, 5);
    EXPECT_EQ(state.adapters[2].status, AdapterStatus::waiting);
    EXPECT_EQ(loaded->residence(AdapterId{0}), Residence::suspended);
    EXPECT_EQ(loaded->residence(AdapterId{1}), Residence::resident);
    EXPECT_EQ(loaded->residence(AdapterId{2}), Residence::resident);
    for (const AdapterId adapter : {AdapterId{0}, AdapterId{1}}) {
        expect_equal(*loaded, *saved, adapter);
    }
    saved->reside(AdapterId{2});
    expect_equal(*loaded, *saved, AdapterId{2});
}

TEST_F(Checkpoints, OfSomeAdaptersAlone) {
    const auto saved = bank();
    fill(*saved, AdapterId{0}, 11);
    fill(*saved, AdapterId{1}, 22);
    const std::string root = cat(job_.run.dir, "/some");
    save(*saved, 5, root, {AdapterId{1}});
    EXPECT_FALSE(fs::exists(root + "/5/a.safetensors"));
    EXPECT_TRUE(fs::exists(root + "/5/b.safetensors"));
    const auto loaded = bank();
    load_stored_adapter(root + "/5/b.safetensors", job_.adapters[1], plan_.model, stage(),
                        AdapterId{1}, *loaded);
    expect_equal(*loaded, *saved, AdapterId{1});
    barrier(session());
}

TEST_F(Checkpoints, WrittenInTheBackgroundHaveTheSameFiles) {
    const auto saved = bank();
    fill(*saved, AdapterId{0}, 11);
    fill(*saved, AdapterId{1}, 22);
    save(*saved, 5);
    std::optional<BackgroundCheckpoint> background;
    if (session().is_root()) background.emplace(job_, plan_, identity_, 6);
    saved->release(AdapterId{0});
    if (background) background->keep(AdapterId{0});
    for (const AdapterBank::Part part : parts) {
        const auto all = gather(session(), saved->numbers(AdapterId{1}, part));
        if (!background) continue;
        AdapterParts::ByRank values;
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            values[static_cast<std::int32_t>(rank)] = all[rank];
        }
        background->add({AdapterId{1}, part, PartUse::checkpoint}, std::move(values),
                        saved->counters(AdapterId{1}));
    }
    if (!background) return;
    EXPECT_FALSE(fs::exists(path(6)));
    state_.round = 6;
    background->complete(state_);
    background->finish();
    EXPECT_EQ(find_checkpoint(job_, plan_, identity_, "")->path, path(6));
    for (const char* name : {"/a.safetensors", "/b.safetensors", "/job.yaml"}) {
        EXPECT_EQ(read_text(path(6) + name), read_text(path(5) + name));
    }
}

TEST_F(Checkpoints, FailuresInTheBackgroundComeOutAtTheEnd) {
    if (!session().is_root()) return;
    BackgroundCheckpoint background(job_, plan_, identity_, 6);
    background.keep(AdapterId{0});  // of no checkpoint
    background.complete(state_);
    EXPECT_THROW(background.finish(), Error);
    EXPECT_FALSE(fs::exists(path(6)));
}

TEST_F(Checkpoints, OfLanesForOneRankAndBack) {
    if (session().size() != 2) GTEST_SKIP() << "of two ranks";
    plan_.first_admitted = {AdapterId{0}, AdapterId{1}, AdapterId{2}};
    plan_.replicas[0].stages.resize(1);
    plan_.replicas[0].stages[0].layer_count = 3;
    const Plan whole = plan_;
    Plan shared = plan_;
    shared.replicas[0].tensor = 2;
    const LaneGroups lanes(session(), shared, *backend_);
    const auto lane_bank = [&] {
        return AdapterBank(job_, only_replica(shared), shared.replicas[0].stages[0], *backend_,
                           lanes.of_rank());
    };
    AdapterBank want(job_, only_replica(whole), whole.replicas[0].stages[0], *backend_);
    AdapterBank saved = lane_bank();
    for (const AdapterId adapter : plan_.first_admitted) {
        fill(want, adapter, 11 * index(adapter) + 7);
        for (const AdapterBank::Part part : parts) {
            saved.upload_cut(adapter, part, want.download(adapter, part));
        }
        saved.set_counters(adapter, want.counters(adapter));
    }
    saved.suspend(AdapterId{1});
    plan_ = shared;
    save(saved, 5);
    AdapterBank loaded = lane_bank();
    load_checkpoint(path(5), job_, plan_.model, shared.replicas[0].stages[0], loaded);
    AdapterBank alone(job_, only_replica(whole), whole.replicas[0].stages[0], *backend_);
    load_checkpoint(path(5), job_, plan_.model, whole.replicas[0].stages[0], alone);
    for (const AdapterId adapter : plan_.first_admitted) {
        expect_equal(loaded, saved, adapter);
        expect_equal(alone, want, adapter);
    }
    barrier(session());
}

TEST_F(Checkpoints, AFormWithOtherTensors) {
    job_.adapters[0].form = made_up_form();
    const auto saved = bank();
    fill(*saved, AdapterId{0}, 11);
    fill(*saved, AdapterId{1}, 22);
    save(*saved, 5);
    const auto loaded = bank();
    load(*loaded, 5);
    expect_equal(*loaded, *saved, AdapterId{0});
    expect_equal(*loaded, *saved, AdapterId{1});
    EXPECT_EQ(loaded->download(AdapterId{0}, parts[0]).size(),
              2 * loaded->download(AdapterId{1}, parts[0]).size());
}

TEST_F(Checkpoints, AReleasedAdapterIsCarriedAlong) {
    const auto saved = bank();
    fill(*saved, AdapterId{0}, 11);
    fill(*saved, AdapterId{1}, 22);
    save(*saved, 5);
    saved->release(AdapterId{0});
    fill(*saved, AdapterId{1}, 33);
    save(*saved, 6);
    save(*saved, 6);
    job_.checkpoint.keep = 1;
    save(*saved, 7);
    EXPECT_FALSE(fs::exists(path(5)));
    const auto loaded = bank();
    load(*loaded, 7);
    const auto want = bank();
    fill(*want, AdapterId{0}, 11);
    fill(*want, AdapterId{1}, 33);
    expect_equal(*loaded, *want, AdapterId{0});
    expect_equal(*loaded, *want, AdapterId{1});
    if (session().is_root()) {
        EXPECT_EQ(find_checkpoint(job_, plan_, identity_, "")->path, path(7));
    }
}

TEST_F(Checkpoints, AnAdapterAddedSinceThenStartsAfresh) {
    const auto saved = bank();
    fill(*saved, AdapterId{0}, 11);
    save(*saved, 5);
    job_.adapters.push_back(job_.adapters[0]);
    job_.adapters.back().name = "added";
    plan_.first_admitted = {AdapterId{3}};
    const auto loaded = bank();
    const RunState state = load(*loaded, 5);
    ASSERT_EQ(state.adapters.size(), 4U);
    EXPECT_EQ(state.adapters[3].steps, 0);
    EXPECT_EQ(loaded->residence(AdapterId{3}), Residence::resident);
    expect_equal(*loaded, *saved, AdapterId{0});
    identity_.job_yaml = to_yaml(job_);
    if (session().is_root()) {
        EXPECT_TRUE(find_checkpoint(job_, plan_, identity_, "").has_value());
    }
}

TEST_F(Checkpoints, AMissingFileOfABegunAdapterIsAnError) {
    const auto saved = bank();
    save(*saved, 5);
    barrier(session());
    if (session().is_root()) fs::remove(path(5) + "/b.safetensors");
    barrier(session());
    const auto loaded = bank();
    EXPECT_THROW(load(*loaded, 5), InputError);
}

TEST_F(Checkpoints, SharedLayersGoWithOtherDivisionsIntoStages) {
    constexpr std::int32_t layers = 7;
    plan_.model = small_model(layers);
    state_.adapters[2].status = AdapterStatus::running;
    state_.adapters[2].steps = 3;
    const auto whole = [&](int count) {
        return partition_layers(layers, count, CostModel{}, MicrobatchLoad{});
    };
    for (const std::int32_t writer_number : {1, 2}) {
        const auto shared = sharing_stages(layers, session().size(), writer_number);
        for (const int count : {1, 3}) {
            SCOPED_TRACE(cat(count, " stages read what was divided at ", writer_number));
            expect_loadable(shared, whole(count));
            expect_loadable(shared, sharing_stages(layers, count, 1));
            expect_loadable(shared, sharing_stages(layers, count, 2));
            expect_loadable(whole(session().size()), sharing_stages(layers, count, 2));
        }
    }
}

}  // namespace
}  // namespace loratrain::mpi_test
