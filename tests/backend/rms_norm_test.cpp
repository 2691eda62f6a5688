#include "reference/rms_norm.h"

#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr float eps = 1e-5F;

struct NormShape {
    std::int64_t rows, cols, groups, padding;
};

const std::vector<NormShape> norm_shapes{{0, 16, 1, 0},   {1, 8, 1, 0},     {3, 7, 1, 2},
                                         {5, 48, 3, 4},   {70, 768, 1, 64}, {9, 20000, 1, 0},
                                         {9, 256, 2, 8},  {17, 576, 1, 8},  {3, 2048, 1, 0},
                                         {3, 2056, 1, 8}, {2, 8192, 1, 0},  {2, 8200, 1, 8}};

/// Rows that can be read in wide pieces where those of x can.
std::int64_t other_padding(const NormShape& shape) {
    return shape.padding % 8 == 0 ? 16 : 5;
}

class RmsNormTest : public BackendTest {};

TEST_P(RmsNormTest, AgreesWithLoopsAlsoInPlace) {
    for (const NormShape& shape : norm_shapes) {
        const HostMatrix x = random(shape.rows, shape.cols, 1);
        const HostMatrix weight = random(1, shape.cols / shape.groups, 2);
        const HostMatrix expected = reference::rms_norm(x, weight, eps, shape.groups);
        const DeviceMatrix device_x(backend(), x, shape.padding);
        const DeviceMatrix device_w(backend(), weight);
        const DeviceMatrix y(backend(), HostMatrix(shape.rows, shape.cols), other_padding(shape));
        backend().rms_norm({device_x.view(), device_w.data(), eps, shape.groups, y.view()});
        expect_close(y, expected, cat("rms_norm of ", shape.cols));
        backend().rms_norm({device_x.view(), device_w.data(), eps, shape.groups, device_x.view()});
        expect_close(device_x, expected, "rms_norm in place");
    }
}

TEST_P(RmsNormTest, BackwardAgreesWithLoops) {
    for (const NormShape& shape : norm_shapes) {
        const HostMatrix x = random(shape.rows, shape.cols, 1);
        const HostMatrix weight = random(1, shape.cols / shape.groups, 2);
        const HostMatrix dy = random(shape.rows, shape.cols, 3);
        const HostMatrix before = random(shape.rows, shape.cols, 4);
        HostMatrix expected = reference::rms_norm_backward(x, weight, eps, shape.groups, dy);
        const DeviceMatrix device_x(backend(), x, shape.padding);
        const DeviceMatrix device_w(backend(), weight);
        const DeviceMatrix device_dy(backend(), dy, other_padding(shape));
        const DeviceMatrix dx(backend(), before, shape.padding);
        RmsNormBackward op{device_x.view(),  device_w.data(),  eps,  shape.groups,
                           device_dy.view(), device_dy.view(), false};
        backend().rms_norm_backward(op);
        expect_close(device_dy, expected, "rms_norm_backward over dy");
        backend().copy({device_dy.view(), DeviceMatrix(backend(), dy).view()});
        op.dx = dx.view();
        op.accumulate = true;
        backend().rms_norm_backward(op);
        for (std::size_t i = 0; i < expected.values.size(); ++i) {
            expected.values[i] += before.values[i];
        }
        expect_close(dx, expected, "rms_norm_backward accumulated");
    }
}

TEST_P(RmsNormTest, OffsetOfTheWeightsAndWhatIsAdded) {
    for (const NormShape& shape : norm_shapes) {
        const HostMatrix x = random(shape.rows, shape.cols, 1);
        const HostMatrix weight = random(1, shape.cols / shape.groups, 2);
        const HostMatrix dy = random(shape.rows, shape.cols, 3);
        const HostMatrix before = random(shape.rows, shape.cols, 4);
        HostMatrix more = weight;
        for (double& value : more.values) value += 1.0;
        HostMatrix expected = reference::rms_norm(x, more, eps, shape.groups);
        for (std::size_t i = 0; i < expected.values.size(); ++i) {
            expected.values[i] += before.values[i];
        }
        const DeviceMatrix device_x(backend(), x, shape.padding);
        const DeviceMatrix device_w(backend(), weight);
        const DeviceMatrix y(backend(), before, other_padding(shape));
        backend().rms_norm(
            {device_x.view(), device_w.data(), eps, shape.groups, y.view(), {}, 1.0F, y.view()});
        expect_close(y, expected, cat("norm added in place, of ", shape.cols));

        const DeviceMatrix dx(backend(), dy, shape.padding);
        backend().rms_norm_backward({device_x.view(),
                                     device_w.data(),
                                     eps,
                                     shape.groups,
                                     dx.view(),
                                     dx.view(),
                                     false,
                                     {},
                                     1.0F});
        expect_close(dx, reference::rms_norm_backward(x, more, eps, shape.groups, dy),
                     cat("backward with an offset, of ", shape.cols));
    }
}

TEST_P(RmsNormTest, BackwardScalesRowsAndChangesNothingElse) {
    for (const NormShape& shape : norm_shapes) {
        if (shape.groups > 1) continue;
        const HostMatrix values = random(shape.rows, shape.cols, 1);
        const DeviceMatrix x(backend(), values, shape.padding);
        const DeviceMatrix weight(backend(), random(1, shape.cols, 2));
        const DeviceMatrix dy(backend(), random(shape.rows, shape.cols, 3), shape.padding);
        const DeviceMatrix dx(backend(), values, shape.padding);
        const DeviceMatrix alone(backend(), values, shape.padding);
        RmsNormBackward op{x.view(), weight.data(), eps, 1, dy.view(), alone.view(), true};
        backend().rms_norm_backward(op);
        for (const std::int64_t columns : {1, 48, 777}) {
            HostMatrix expected = random(shape.rows, columns, 4);
            const DeviceMatrix scaled(backend(), expected, other_padding(shape));
            backend().copy({dx.view(), x.view()});
            op.dx = dx.view();
            op.scaled = scaled.view();
            backend().rms_norm_backward(op);
            for (std::int64_t row = 0; row < shape.rows; ++row) {
                const double inverse = reference::inverse_rms(values, row, 0, shape.cols, eps);
                for (std::int64_t j = 0; j < columns; ++j) expected(row, j) *= inverse;
            }
            expect_close(scaled, expected, cat(columns, " columns beside ", shape.cols));
            EXPECT_EQ(dx.download().values, alone.download().values) << shape.cols;
        }
    }
}

LORATRAIN_FOR_EACH_BACKEND(RmsNormTest);

}  // namespace
}  // namespace loratrain
