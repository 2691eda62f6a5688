#include <limits>

#include "reference/lora.h"
#include "reference/swiglu.h"
#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/lora_linear.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr std::int64_t model_columns = 24;

/// The rows of a microbatch and the adapters' ranks on the three linears of an MLP.
struct GatedRows {
    std::vector<std::int32_t> lengths;
    std::vector<LoraSegment> segments;
    std::vector<std::int32_t> gate, up, down;
};

struct GatedCase {
    std::int64_t f = 264;
    std::uint32_t dropout = 0;
    SColumns columns = SColumns::own;
    bool begins = false;
    Activation activation = Activation::silu;
    bool adds_down = false;
};

class LoraGatedTest : public BackendTest {
  protected:
    struct Setting {
        Setting(Backend& backend, const GatedRows& rows, const GatedCase& of)
            : samples(backend, rows.lengths),
              batch{rows.segments, samples.positions(), samples.sample_ids()},
              gate(backend, model_columns, of.f, rows.gate, of.dropout, 1, of.columns),
              up(backend, model_columns, of.f, rows.up, of.dropout, 2, of.columns),
              down(backend, of.f, model_columns, rows.down, of.dropout, 3, of.columns) {
            for (LoraLinear* adapters : {&gate, &up, &down}) {
                if (of.begins) adapters->begin_gradients();
            }
        }
        LoraRows rows() const { return {batch.segments, samples.rows()}; }
        std::int64_t tokens() const { return samples.rows().tokens; }

        PackedSamples samples;
        reference::LoraBatch batch;
        LoraLinear gate, up, down;
    };

    DeviceMatrix junk(std::int64_t rows, std::int64_t cols) {
        return {backend(), HostMatrix(rows, cols, std::numeric_limits<double>::infinity()), 8};
    }

    void expect_gradients(const LoraLinear& adapters, const std::vector<HostMatrix>& expected,
                          bool of_a, const char* what) {
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expect_close(of_a ? adapters.grad_a(i) : adapters.grad_b(i), expected[i], dtype(),
                         cat(what, " of rank ", adapters.factors()[i].rank));
        }
    }

    /// dS and the gradients of B of gate or up, from the backend's own dY.
    void expect_backward(const Setting& setting, const LoraLinear& adapters, const HostMatrix& dy,
                         const HostMatrix& s, const DeviceMatrix& ds, const char* what) {
        expect_close(ds,
                     reference::lora_ds(dy, adapters.factors(), setting.batch, adapters.columns()),
                     cat("dS of ", what));
        auto expected = adapters.gradient_starts(setting.batch, false);
        reference::add_lora_grad_b(dy, s, adapters.factors(), setting.batch, expected);
        expect_gradients(adapters, expected, false, what);
    }

    void expect_all(const GatedRows& rows, const GatedCase& of) {
        const Setting setting(backend(), rows, of);
        const std::int64_t tokens = setting.tokens();
        const HostMatrix gate = random(tokens, of.f, 1);
        const HostMatrix up = random(tokens, of.f, 2);
        const HostMatrix dh = random(tokens, of.f, 3);
        const HostMatrix s_gate = random(tokens, setting.gate.columns(), 4);
        const HostMatrix s_up = random(tokens, setting.up.columns(), 5);
        const HostMatrix ds_down = random(tokens, setting.down.columns(), 6);
        const DeviceMatrix device_gate(backend(), gate, 8);
        const DeviceMatrix device_up(backend(), up, 8);
        const DeviceMatrix device_dh(backend(), dh, 8);
        const DeviceMatrix device_s_gate(backend(), s_gate, 8);
        const DeviceMatrix device_s_up(backend(), s_up, 8);
        const DeviceMatrix device_ds_down(backend(), ds_down, 8);
        const DeviceMatrix both = junk(tokens, 2 * of.f);
        const DeviceMatrix h = junk(tokens, of.f);
        const DeviceMatrix ds_gate = junk(tokens, setting.gate.columns());
        const DeviceMatrix ds_up = junk(tokens, setting.up.columns());
        const TensorView dgate = both.view().col_range(0, of.f);
        const TensorView dup = both.view().col_range(of.f, of.f);
        const LoraGatedBackward op{
            {device_gate.view(),
             device_up.view(),
             device_dh.view(),
             dgate,
             dup,
             h.view(),
             {},
             of.activation},
            {setting.down.slots(), device_ds_down.view()},
            {dgate, {setting.gate.slots(), device_s_gate.view()}, ds_gate.view(), setting.rows()},
            {dup, {setting.up.slots(), device_s_up.view()}, ds_up.view(), setting.rows()},
            of.adds_down};
        backend().lora_gated_backward(op);

        const HostMatrix made = both.download();
        HostMatrix made_gate(tokens, of.f);
        HostMatrix made_up(tokens, of.f);
        for (std::int64_t row = 0; row < tokens; ++row) {
            for (std::int64_t col = 0; col < of.f; ++col) {
                made_gate(row, col) = made(row, col);
                made_up(row, col) = made(row, of.f + col);
            }
        }
        HostMatrix whole = dh;
        if (of.adds_down) {
            reference::add_lora_dx(ds_down, setting.down.factors(), setting.batch, whole);
            if (!backend().takes_at_once(op)) {
                expect_close(device_dh, whole, "dh");
                whole = device_dh.download();
            }
        }
        const auto expected = reference::swiglu_backward(gate, up, whole, of.activation);
        const Tolerance tolerance = tolerance_of(dtype());
        expect_close(made_gate.values, expected.dgate.values, tolerance, "dgate");
        expect_close(made_up.values, expected.dup.values, tolerance, "dup");
        expect_backward(setting, setting.gate, made_gate, s_gate, ds_gate, "gate");
        expect_backward(setting, setting.up, made_up, s_up, ds_up, "up");
        auto of_down = setting.down.gradient_starts(setting.batch, true);
        reference::add_lora_grad_a(reference::swiglu(gate, up, of.activation), ds_down,
                                   setting.down.factors(), setting.batch, of_down);
        expect_gradients(setting.down, of_down, true, "down");
    }

    void expect_forward(const GatedRows& rows, const GatedCase& of) {
        const Setting setting(backend(), rows, of);
        const std::int64_t tokens = setting.tokens();
        const HostMatrix gate = random(tokens, of.f, 1);
        const HostMatrix up = random(tokens, of.f, 2);
        const DeviceMatrix device_gate(backend(), gate, 8);
        const DeviceMatrix device_up(backend(), up, 8);
        const DeviceMatrix h = junk(tokens, of.f);
        const DeviceMatrix s = junk(tokens, setting.down.columns());
        const DeviceMatrix again = junk(tokens, setting.down.columns());
        for (const bool twice : {false, true}) {
            backend().lora_gated_forward(
                {{device_gate.view(), device_up.view(), h.view(), {}, of.activation},
                 {setting.down.slots(), s.view()},
                 setting.rows(),
                 twice ? again.view() : TensorView{}});
            expect_close(h, reference::swiglu(gate, up, of.activation), "h");
            expect_close(s,
                         reference::lora_shrink(h.download(), setting.down.factors(), setting.batch,
                                                setting.down.columns()),
                         "S of down");
        }
        EXPECT_EQ(s.download().values, again.download().values);
    }

    void expect_every_case(const GatedRows& rows) {
        std::vector<GatedCase> cases;
        for (const SColumns columns : {SColumns::own, SColumns::stacked}) {
            cases.push_back({.f = 264, .columns = columns});
            cases.push_back({.f = 520, .columns = columns, .begins = true});
            cases.push_back({.f = 264, .dropout = dropout_threshold(0.3), .columns = columns});
            cases.push_back({.f = 520, .columns = columns, .adds_down = true});
            cases.push_back({.f = 264,
                             .dropout = dropout_threshold(0.3),
                             .columns = columns,
                             .adds_down = true});
        }
        cases.push_back({.f = 16,
                         .dropout = dropout_threshold(0.5),
                         .begins = true,
                         .activation = Activation::gelu_tanh,
                         .adds_down = true});
        cases.push_back(
            {.f = 1096, .dropout = dropout_threshold(0.1), .columns = SColumns::stacked});
        cases.push_back({.f = 37});
        cases.push_back({.f = 37, .dropout = dropout_threshold(0.3), .adds_down = true});
        for (const GatedCase& of : cases) {
            expect_forward(rows, of);
            expect_all(rows, of);
        }
    }
};

/// Segments of one row and of several tiles, rows of none, adapters that leave some linears alone,
/// one without rows.
TEST_P(LoraGatedTest, OfFewRanks) {
    expect_every_case({{300, 1, 255, 84},
                       {{2, 0, 300, 1}, {0, 300, 301, 2}, {1, 301, 556, 3}, {2, 560, 640, 4}},
                       {16, 5, 12, 8},
                       {8, 16, 0, 3},
                       {16, 0, 7, 16}});
}

TEST_P(LoraGatedTest, OfOneAdapterAndOfOneRow) {
    expect_every_case({{1}, {{0, 0, 1, 0}}, {16}, {16}, {16}});
    expect_every_case({{130}, {{0, 0, 130, 5}}, {8}, {16}, {4}});
}

TEST_P(LoraGatedTest, OfMoreRanksToo) {
    const GatedRows rows{{200, 40}, {{0, 0, 200, 1}, {1, 200, 239, 2}}, {16, 20}, {32, 4}, {8, 64}};
    expect_forward(rows, {.dropout = dropout_threshold(0.3)});
    expect_all(rows, {.dropout = dropout_threshold(0.3)});
}

/// The rows of no adapter alone.
TEST_P(LoraGatedTest, OfNoSegment) {
    const GatedRows rows{{70}, {}, {4}, {4}, {4}};
    expect_forward(rows, {});
    expect_all(rows, {});
    expect_all(rows, {.adds_down = true});
}

LORATRAIN_FOR_EACH_BACKEND_AND_LIMIT(LoraGatedTest);

}  // namespace
}  // namespace loratrain
