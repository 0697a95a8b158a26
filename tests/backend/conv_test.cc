#include "lockstep/base/environment.h"
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

struct ConvCase {
  Shape x;  // N, C, H, W
  std::int64_t outputs = 1;
  std::int64_t kernel = 3;
  Conv2dOptions options = {};
  Layout x_layout = Layout::plain;
  Layout y_layout = Layout::plain;

  Shape w() const { return {outputs, x[1] / options.groups, kernel, kernel}; }
  Shape y() const { return {x[0], outputs, extent(0), extent(1)}; }
  std::int64_t extent(int axis) const {
    return (x[2 + axis] + 2 * options.padding[axis] - options.dilation[axis] * (kernel - 1) - 1) /
               options.stride[axis] +
           1;
  }
  std::int64_t products() const { return y().numel() * w().numel() / outputs; }
  std::string str() const {
    return fmt::format("x {} {}, w {}, y {} {}, stride {} {}, padding {} {}, dilation {} {}, groups {}", x.str(),
                       name(x_layout), w().str(), y().str(), name(y_layout), options.stride[0], options.stride[1],
                       options.padding[0], options.padding[1], options.dilation[0], options.dilation[1],
                       options.groups);
  }
};

class ConvTest : public KernelTest {
 protected:
  // Forward and both gradients, with bias or without.
  void expect_conv(const ConvCase& c, bool bias) {
    SCOPED_TRACE(c.str() + (bias ? ", bias" : ""));
    const Conv2dOptions& options = c.options;
    TestTensor x = input(c.x, c.x_layout), dy = input(c.y(), c.y_layout), w = master(c.w());
    expect_matches_reference({x, w, bias ? master({c.outputs}) : TestTensor()}, {output(c.y(), c.y_layout)},
                             [&](Backend& b, KernelContext& context, Views in, Views out) {
                               b.run(context, kernels::Conv{options, in[0], in[1], in[2], out[0]});
                             });
    expect_matches_reference({dy, w}, {output(c.x, c.x_layout)},
                             [&](Backend& b, KernelContext& context, Views in, Views out) {
                               b.run(context, kernels::ConvBackwardData{options, in[0], in[1], out[0]});
                             });
    expect_matches_reference({x, dy}, {master_output(c.w()), bias ? master_output({c.outputs}) : TestTensor()},
                             [&](Backend& b, KernelContext& context, Views in, Views out) {
                               b.run(context, kernels::ConvBackwardWeights{options, in[0], in[1], out[0], out[1]});
                             });
  }

  // The layouts in which the back end under test wants to compute.
  ConvCase preferred(ConvCase c) {
    auto choose = [&](const Shape& shape) {
      Layout layout = backend_->conv().preferred_layout(dtype(), shape[1]);
      EXPECT_TRUE(layout_fits(layout, shape)) << name(layout) << " for " << shape.str();
      return layout;
    };
    c.x_layout = choose(c.x);
    c.y_layout = choose(c.y());
    return c;
  }

  void expect_in_all_layouts(const std::vector<ConvCase>& layers) {
    for (const ConvCase& layer : layers) {
      for (const Layout layout : layouts_that_fit(layer.x)) {
        ConvCase c = layer;
        c.x_layout = layout;
        expect_conv(c, true);
      }
      expect_conv(preferred(layer), false);
      expect_conv(preferred(layer), true);
    }
  }

  ConvCase random_case() {
    for (;;) {
      ConvCase c;
      c.kernel = random_.pick({1, 3, 3, 5, 7});
      std::int64_t channels = random_.pick({1, 3, 16, 17, 32});
      c.outputs = random_.pick({1, 6, 16, 20, 32});
      if (random_.integer(0, 3) == 0) {
        c.options.groups = random_.pick({std::int64_t{2}, channels});
        c.outputs = c.options.groups * random_.integer(1, 3);
        if (channels % c.options.groups != 0) continue;
      }
      for (int axis : {0, 1}) {
        c.options.stride[axis] = random_.pick({1, 1, 2, 3});
        c.options.padding[axis] = random_.integer(0, c.kernel / 2);
        c.options.dilation[axis] = random_.pick({1, 1, 1, 2});
      }
      c.x = {random_.integer(1, 3), channels, random_.integer(1, 11), random_.integer(1, 11)};
      bool empty = c.x[2] + 2 * c.options.padding[0] < c.options.dilation[0] * (c.kernel - 1) + 1 ||
                   c.x[3] + 2 * c.options.padding[1] < c.options.dilation[1] * (c.kernel - 1) + 1;
      if (empty || c.products() > 100000) continue;
      c.x_layout = random_.pick(layouts_that_fit(c.x));
      c.y_layout = random_.pick(layouts_that_fit(c.y()));
      return c;
    }
  }
};

// The convolutions of usual networks, in the layouts that networks run in and in plain.
TEST_P(ConvTest, LayersOfNetworks) {
  const std::vector<ConvCase> layers{
      {.x = {2, 3, 8, 8}, .outputs = 16, .kernel = 3, .options = {.padding = {1, 1}}},
      {.x = {2, 3, 15, 15}, .outputs = 16, .kernel = 7, .options = {.stride = {2, 2}, .padding = {3, 3}}},
      {.x = {2, 1, 12, 12}, .outputs = 6, .kernel = 5},
      {.x = {2, 6, 9, 9}, .outputs = 16, .kernel = 5},
      {.x = {2, 32, 6, 6}, .outputs = 32, .kernel = 3, .options = {.padding = {1, 1}}},
      {.x = {2, 16, 8, 8}, .outputs = 32, .kernel = 3, .options = {.stride = {2, 2}, .padding = {1, 1}}},
      {.x = {2, 16, 7, 7}, .outputs = 32, .kernel = 1, .options = {.stride = {2, 2}}},
      {.x = {3, 64, 4, 4}, .outputs = 48, .kernel = 1}};
  for (const ConvCase& layer : layers) {
    expect_conv(layer, false);
    expect_conv(preferred(layer), false);
    expect_conv(preferred(layer), true);
  }
}

// The CPU puts sixteen pixels of a row into a vector where a pass computes few channels.
TEST_P(ConvTest, FewChannels) {
  const std::vector<ConvCase> layers{
      {.x = {3, 1, 28, 28}, .outputs = 6, .kernel = 5},
      {.x = {2, 4, 5, 70}, .outputs = 4, .kernel = 3, .options = {.padding = {1, 1}, .groups = 4}},
      {.x = {5, 24, 6, 30}, .outputs = 3, .kernel = 3, .options = {.padding = {4, 2}, .dilation = {2, 1}}},
      {.x = {3, 3, 4, 45}, .outputs = 2, .kernel = 3, .options = {.padding = {0, 3}, .dilation = {1, 3}}},
      {.x = {20, 2, 9, 9}, .outputs = 1, .kernel = 5, .options = {.stride = {2, 3}, .padding = {2, 1}}},
      {.x = {2, 16, 3, 16}, .outputs = 7, .kernel = 1}};
  expect_in_all_layouts(layers);
}

// The CPU puts sixteen channels into a vector.
TEST_P(ConvTest, Depthwise) {
  const std::vector<ConvCase> layers{
      {.x = {2, 32, 9, 9}, .outputs = 32, .kernel = 3, .options = {.padding = {1, 1}, .groups = 32}},
      {.x = {3, 48, 12, 10},
       .outputs = 48,
       .kernel = 5,
       .options = {.stride = {2, 2}, .padding = {2, 2}, .groups = 48}},
      {.x = {9, 20, 4, 5},
       .outputs = 20,
       .kernel = 3,
       .options = {.padding = {2, 1}, .dilation = {2, 1}, .groups = 20}},
      {.x = {70, 16, 12, 12}, .outputs = 16, .kernel = 3, .options = {.padding = {1, 1}, .groups = 16}},
      {.x = {2, 40, 9, 7}, .outputs = 40, .kernel = 7, .options = {.stride = {1, 2}, .padding = {3, 3}, .groups = 40}},
      {.x = {2, 3, 8, 40}, .outputs = 3, .kernel = 3, .options = {.padding = {0, 2}, .groups = 3}}};
  expect_in_all_layouts(layers);
}

TEST_P(ConvTest, Dilated) {
  for (std::int64_t channels : {3, 16, 64}) {
    for (Conv2dOptions options :
         {Conv2dOptions{.padding = {2, 2}, .dilation = {2, 2}}, Conv2dOptions{.padding = {1, 0}, .dilation = {1, 3}},
          Conv2dOptions{.stride = {2, 2}, .padding = {0, 1}, .dilation = {3, 1}}}) {
      expect_conv(preferred({.x = {2, channels, 8, 7}, .outputs = 16, .kernel = 3, .options = options}), true);
    }
  }
}

// For a search: LOCKSTEP_TEST_CASES=3000 LOCKSTEP_TEST_SEED=1 ONEDNN_MAX_CPU_ISA=AVX2 (oneDNN 2: DNNL_MAX_CPU_ISA).
TEST_P(ConvTest, RandomShapesAndLayouts) {
  const std::int64_t count = environment_integer("LOCKSTEP_TEST_CASES", 1, 1'000'000).value_or(30);
  if (auto seed = environment_integer("LOCKSTEP_TEST_SEED", 0, 1'000'000)) random_ = Random(*seed);
  for (std::int64_t i = 0; i < count && !HasFailure(); ++i) expect_conv(random_case(), i % 2 == 0);
}

TEST_P(ConvTest, EveryPairOfLayouts) {
  ConvCase c{.x = {2, 16, 5, 6}, .outputs = 32, .kernel = 3, .options = {.stride = {2, 1}, .padding = {1, 0}}};
  for (Layout x : layouts_that_fit(c.x)) {
    for (Layout y : layouts_that_fit(c.y())) {
      c.x_layout = x;
      c.y_layout = y;
      expect_conv(c, true);
    }
  }
}

// On processors with AVX-512 BF16, oneDNN 2.6.3 added the next pixel's numbers to the gradient of the data.
TEST_P(ConvTest, AnOddNumberOfOutputs) {
  for (std::int64_t channels : {1, 16, 17, 32}) {
    for (std::int64_t outputs : {1, 3, 17}) {
      for (Shape x : {Shape{2, channels, 9, 10}, Shape{1, channels, 6, 10}}) {
        expect_conv(preferred({.x = x, .outputs = outputs, .kernel = 1}), true);
      }
    }
  }
}

// oneDNN 3.7 was wrong in these two: images one pixel wide out of a stride wider than that, and one plain channel.
TEST_P(ConvTest, OneColumn) {
  for (std::int64_t channels : {1, 3, 16, 32}) {
    for (std::int64_t width : {1, 2, 3, 5}) {
      ConvCase c{
          .x = {2, channels, 10, width}, .outputs = 16, .kernel = 3, .options = {.stride = {1, 3}, .padding = {1, 1}}};
      if (c.extent(1) == 1) expect_conv(preferred(c), true);
    }
  }
}

TEST_P(ConvTest, OneChannel) {
  for (auto [in, out] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {17, 1}, {1, 6}}) {
    for (Layout x : {Layout::plain, Layout::channels_last}) {
      for (Layout y : {Layout::plain, Layout::channels_last}) {
        expect_conv({.x = {3, in, 9, 11}, .outputs = out, .kernel = 1, .x_layout = x, .y_layout = y}, true);
      }
    }
  }
}

// oneDNN's weight gradients for AVX2 and AVX-512 wrote beyond their memory with fewer channels than a vector has lanes:
// wrong on two threads, or without end.
TEST_P(ConvTest, StridedOneByOneOfFewChannels) {
  for (std::int64_t channels : {1, 2, 3, 7, 8, 15, 16}) {
    for (auto [h, w] : {std::array<std::int64_t, 2>{2, 1}, {1, 2}, {2, 2}}) {
      expect_conv({.x = {5, channels, 8, 8}, .outputs = 16, .kernel = 1, .options = {.stride = {h, w}}}, true);
    }
  }
}

TEST_P(ConvTest, OnePixelAndOneSample) {
  expect_conv({.x = {1, 16, 1, 1}, .outputs = 16, .kernel = 1}, true);
  expect_conv(preferred({.x = {1, 16, 1, 1}, .outputs = 16, .kernel = 3, .options = {.padding = {1, 1}}}), true);
  expect_conv(preferred({.x = {5, 32, 1, 1}, .outputs = 16, .kernel = 1}), false);
}

TEST_P(ConvTest, EmptyShard) {
  ConvCase c{.x = {0, 16, 5, 5}, .outputs = 16, .kernel = 3, .options = {.padding = {1, 1}}};
  expect_conv(c, true);
  expect_conv(preferred(c), true);
}

TEST_P(ConvTest, PreferredLayoutFitsAnyNumberOfChannels) {
  for (std::int64_t channels : {1, 3, 10, 16, 17, 64, 512}) {
    Layout layout = backend_->conv().preferred_layout(dtype(), channels);
    EXPECT_TRUE(layout_fits(layout, {1, channels, 2, 2})) << channels;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConvTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
