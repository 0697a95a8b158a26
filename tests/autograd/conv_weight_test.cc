// Convolutions whose weights are computed, in the layouts that results of convolutions have.
#include <gtest/gtest.h>

#include "lockstep/autograd/functions.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

class ConvWeightTest : public ::testing::TestWithParam<bool> {
 protected:
  Tensor random(const Shape& shape, DType dtype = DType::f32) {
    return make_tensor(random_.uniforms(shape.numel()), shape, device_, dtype);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .reference_backend = GetParam()}};
  Device device_ = runtime_.devices()[0];
  Random random_{5};
};

INSTANTIATE_TEST_SUITE_P(BackEnds, ConvWeightTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

// A weight and its layout change the memory, and nothing else.
TEST_P(ConvWeightTest, AnyLayout) {
  struct Case {
    Shape x, w;
    std::int64_t groups;
    bool transposed;
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const Case& c : {Case{{2, 4, 6, 5}, {6, 4, 3, 2}, 1, false},
                          {{2, 32, 6, 6}, {16, 32, 3, 3}, 1, false},
                          {{1, 32, 5, 5}, {32, 16, 3, 3}, 2, false},
                          {{1, 16, 7, 7}, {16, 1, 3, 3}, 16, false},
                          {{2, 16, 4, 4}, {16, 16, 1, 1}, 1, false},
                          {{2, 6, 4, 3}, {6, 4, 3, 2}, 1, true},
                          {{1, 16, 4, 4}, {16, 16, 3, 3}, 2, true}}) {
      const Tensor x0 = random(c.x, dtype), w0 = random(c.w, dtype == DType::f64 ? dtype : DType::f32);
      const auto run = [&](Layout layout) {
        Tensor x = as_leaf(x0.detach()), w = as_leaf(w0.detach());
        const Tensor weight = w.to(layout);
        const Tensor y = c.transposed
                             ? conv_transpose2d(x, weight, {}, {.padding = {1, 0}, .groups = c.groups})
                             : conv2d(x, weight, {}, {.stride = {1, 2}, .padding = {1, 1}, .groups = c.groups});
        sum(square(y)).backward();
        return std::vector{values(y), values(x.grad()), values(w.grad())};
      };
      const auto plain = run(Layout::plain);
      for (const Layout layout : {Layout::channels_last, Layout::blocked16}) {
        if (!layout_fits(layout, c.w)) continue;
        SCOPED_TRACE(fmt::format("{} weight {} in {}", name(dtype), c.w, name(layout)));
        EXPECT_EQ(run(layout), plain);
      }
    }
  }
}

// The result of a convolution is a kernel of the next one, several times, as in a tracker.
TEST_P(ConvWeightTest, AResultOfAConvolution) {
  const Tensor x = random({1, 32, 8, 8}), templates = random({16, 32, 5, 5}), w = random({32, 32, 3, 3});
  const Tensor kernels = conv2d(templates, w);
  const auto expected = values(conv2d(x, make_tensor(values(kernels), kernels.shape(), device_)));
  for (int call = 0; call < 3; ++call) EXPECT_EQ(values(conv2d(x, kernels)), expected);
  if (!GetParam()) {
    EXPECT_NE(kernels.layout(), Layout::plain);
  }
}

TEST_P(ConvWeightTest, WeightsOfHalfTypes) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = random({2, 4, 6, 6}, dtype);
    Tensor w = as_leaf(random({8, 4, 3, 3}, dtype));
    const Tensor y = conv2d(x, w), expected = conv2d(x, cast(w.detach(), DType::f32));
    EXPECT_EQ(values(y), values(expected));
    sum(y).backward();
    EXPECT_EQ(w.grad().dtype(), dtype);
  }
  EXPECT_ERROR(conv2d(random({1, 2, 4, 4}), random({2, 2, 3, 3}, DType::f64)),
               "conv2d: input is f32, weight is f64, expected f32");
  EXPECT_ERROR(conv_transpose2d(random({1, 2, 4, 4}, DType::f64), random({2, 2, 3, 3})),
               "conv_transpose2d: input is [1, 2, 4, 4] f64");
}

// out[i stride + k dilation - padding] += x[i] w[k], as the definition says.
TEST_P(ConvWeightTest, OutputPaddingBelowTheDilation) {
  const std::int64_t stride = 2, dilation = 5, padding = 1, output_padding = 4, columns = 3, taps = 2;
  Tensor x = as_leaf(random({1, 1, 1, columns})), w = as_leaf(random({1, 1, 1, taps}));
  const Tensor y = conv_transpose2d(x, w, {},
                                    {.stride = {1, stride},
                                     .padding = {0, padding},
                                     .output_padding = {0, output_padding},
                                     .dilation = {1, dilation}});
  const std::int64_t width = (columns - 1) * stride - 2 * padding + dilation * (taps - 1) + output_padding + 1;
  ASSERT_EQ(y.shape(), (Shape{1, 1, 1, width}));
  std::vector<double> expected(static_cast<std::size_t>(width)), dx(columns), dw(taps);
  for (std::int64_t i = 0; i < columns; ++i) {
    for (std::int64_t k = 0; k < taps; ++k) {
      const std::int64_t at = i * stride + k * dilation - padding;
      if (at < 0 || at >= width) continue;
      const auto from = static_cast<std::size_t>(i), tap = static_cast<std::size_t>(k);
      expected[static_cast<std::size_t>(at)] += values(x)[from] * values(w)[tap];
      dx[from] += values(w)[tap];
      dw[tap] += values(x)[from];
    }
  }
  sum(y).backward();
  EXPECT_LT(distance(values(y), expected), 1e-6);
  EXPECT_LT(distance(values(x.grad()), dx), 1e-6);
  EXPECT_LT(distance(values(w.grad()), dw), 1e-6);
  EXPECT_ERROR(conv_transpose2d(x, w, {}, {.stride = {1, 2}, .output_padding = {0, 5}, .dilation = {1, 5}}),
               "conv_transpose2d: output padding 5, expected at least 0 and below the stride, 2, or the dilation, 5");
}

}  // namespace
}  // namespace lockstep::testing
