// Which convolutions the CPU computes by which pass, and that all passes give the same bits. The values are tested in
// conv_test.cc.
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/backend/cpu/conv_thin_pass.h"
#include "lockstep/backend/cpu/f32_conv.h"
#include "lockstep/backend/cpu/strided_images.h"
#include "tests/backend/kernel_testing.h"

namespace lockstep::cpu {
namespace {

ConvGroup group(const Shape& x, std::int64_t outputs, std::int64_t kernel, Conv2dOptions options = {}) {
  const auto extent = [&](int axis) {
    return (x[2 + axis] + 2 * options.padding[axis] - options.dilation[axis] * (kernel - 1) - 1) /
               options.stride[axis] +
           1;
  };
  return {options, View{.shape = x}, View{.shape = {outputs, x[1] / options.groups, kernel, kernel}},
          View{.shape = {x[0], outputs, extent(0), extent(1)}}};
}

TEST(ThinPass, IsForFewChannelsOfWideRows) {
  EXPECT_TRUE(ThinPass::pays(group({256, 1, 28, 28}, 6, 5), ConvPass::forward));         // LeNet's first layer
  EXPECT_FALSE(ThinPass::pays(group({256, 6, 14, 14}, 16, 5), ConvPass::forward));       // the second one
  EXPECT_TRUE(ThinPass::pays(group({256, 6, 14, 14}, 16, 5), ConvPass::backward_data));  // has 6 channels
  EXPECT_TRUE(ThinPass::pays(group({8, 32, 16, 16}, 64, 3, {.padding = {1, 1}, .groups = 32}), ConvPass::forward));
  EXPECT_FALSE(ThinPass::pays(group({8, 2, 16, 16}, 2, 3, {.groups = 2}), ConvPass::forward));  // depthwise
  EXPECT_FALSE(ThinPass::pays(group({8, 1, 4, 4}, 6, 3), ConvPass::forward));                   // 2 of 16 pixels
  EXPECT_FALSE(ThinPass::pays(group({8, 1, 28, 28}, 6, 5, {.stride = {2, 2}}), ConvPass::forward));
}

TEST(ThinWeightPass, IsForFewOutputsOfManyWeights) {
  EXPECT_TRUE(ThinWeightPass::pays(group({256, 1, 28, 28}, 6, 5)));
  EXPECT_FALSE(ThinWeightPass::pays(group({256, 6, 14, 14}, 16, 5)));
  EXPECT_FALSE(ThinWeightPass::pays(group({256, 1, 28, 28}, 6, 1)));
  EXPECT_FALSE(ThinWeightPass::pays(group({256, 1, 28, 28}, 6, 5, {.dilation = {1, 2}})));
}

struct Memory {
  Shape shape;
  std::vector<float> values = std::vector<float>(static_cast<std::size_t>(shape.numel()));
  View view() { return {values.data(), DType::f32, Layout::plain, shape}; }
};

Memory random(const Shape& shape, std::uint64_t seed) {
  Memory m{shape};
  for (std::size_t i = 0; i < m.values.size(); ++i)
    m.values[i] = static_cast<float>(random_normal(random_key(seed, {}), i));
  return m;
}

// The same with more channels on an axis, which are 0.
Memory widened(const Memory& m, int axis, std::int64_t channels) {
  Shape shape = m.shape;
  shape[axis] = channels;
  Memory wide{shape};
  const std::int64_t outer = axis == 0 ? 1 : m.shape[0], inner = m.shape.numel() / outer,
                     wide_inner = shape.numel() / outer;
  for (std::int64_t n = 0; n < outer; ++n)
    std::copy_n(m.values.begin() + n * inner, inner, wide.values.begin() + n * wide_inner);
  return wide;
}

// More channels would not be few, so another pass computes them.
TEST(ThinPass, HasTheBitsOfMoreChannels) {
  struct Case {
    Shape x;
    std::int64_t outputs, kernel, padding;
  };
  for (const Case& c : {Case{{2, 1, 12, 28}, 6, 5, 0}, Case{{2, 64, 3, 40}, 2, 1, 0}, Case{{2, 40, 5, 31}, 4, 3, 1},
                        Case{{3, 33, 6, 17}, 3, 2, 1}}) {
    const Conv2dOptions options{.padding = {c.padding, c.padding}};
    const auto conv = make_f32_conv({.direct = true});
    KernelContext context(1);
    Memory x = random(c.x, 1), w = random({c.outputs, c.x[1], c.kernel, c.kernel}, 2);
    const Shape y_shape{c.x[0], c.outputs, c.x[2] + 2 * c.padding - c.kernel + 1,
                        c.x[3] + 2 * c.padding - c.kernel + 1};
    const ConvGroup few(options, x.view(), w.view(), View{.shape = y_shape});
    ASSERT_TRUE(ThinPass::pays(few, ConvPass::forward));
    Memory y{y_shape}, wide_w = widened(w, 0, 40), wide_y = widened(y, 1, 40);
    conv->run(context, kernels::Conv{options, x.view(), w.view(), View(), y.view()});
    conv->run(context, kernels::Conv{options, x.view(), wide_w.view(), View(), wide_y.view()});
    EXPECT_EQ(widened(y, 1, 40).values, wide_y.values);

    // Few inputs: the same net, backward.
    Memory dy = random({c.x[0], c.x[1], c.x[2], c.x[3]}, 3), v = random({c.x[1], c.outputs, c.kernel, c.kernel}, 4);
    const std::int64_t rows = c.x[2] + c.kernel - 1 - 2 * c.padding, columns = c.x[3] + c.kernel - 1 - 2 * c.padding;
    Memory dx{{c.x[0], c.outputs, rows, columns}}, wide_v = widened(v, 1, 40), wide_dx = widened(dx, 1, 40);
    ASSERT_TRUE(ThinPass::pays(ConvGroup(options, dx.view(), v.view(), dy.view()), ConvPass::backward_data));
    conv->run(context, kernels::ConvBackwardData{options, dy.view(), v.view(), dx.view()});
    conv->run(context, kernels::ConvBackwardData{options, dy.view(), wide_v.view(), wide_dx.view()});
    EXPECT_EQ(widened(dx, 1, 40).values, wide_dx.values);
  }
}

TEST(ThinWeightPass, HasTheBitsOfMoreOutputs) {
  struct Case {
    Shape x;
    std::int64_t outputs, kernel, padding, stride;
  };
  for (const Case& c :
       {Case{{5, 1, 28, 28}, 6, 5, 0, 1}, Case{{70, 3, 9, 9}, 4, 5, 2, 2}, Case{{2, 7, 40, 33}, 2, 3, 1, 1}}) {
    const Conv2dOptions options{.stride = {c.stride, c.stride}, .padding = {c.padding, c.padding}};
    const auto conv = make_f32_conv();
    KernelContext context(1);
    const auto extent = [&](int axis) { return (c.x[axis] + 2 * c.padding - c.kernel) / c.stride + 1; };
    Memory x = random(c.x, 1), dy = random({c.x[0], c.outputs, extent(2), extent(3)}, 2);
    Memory dw{{c.outputs, c.x[1], c.kernel, c.kernel}}, db{{c.outputs}};
    ASSERT_TRUE(ThinWeightPass::pays(ConvGroup(options, x.view(), dw.view(), dy.view())));
    Memory wide_dy = widened(dy, 1, 20), wide_dw = widened(dw, 0, 20), wide_db = widened(db, 0, 20);
    conv->run(context, kernels::ConvBackwardWeights{options, x.view(), dy.view(), dw.view(), db.view()});
    conv->run(context, kernels::ConvBackwardWeights{options, x.view(), wide_dy.view(), wide_dw.view(), wide_db.view()});
    EXPECT_EQ(widened(dw, 0, 20).values, wide_dw.values);
    EXPECT_EQ(widened(db, 0, 20).values, wide_db.values);
  }
}

// Channel c of a tensor [N, C, …], or weight c.
Memory channel(const Memory& m, int axis, std::int64_t c) {
  Shape shape = m.shape;
  shape[axis] = 1;
  Memory one{shape};
  const std::int64_t outer = axis == 0 ? 1 : m.shape[0], inner = shape.numel() / outer;
  for (std::int64_t n = 0; n < outer; ++n)
    std::copy_n(m.values.begin() + (n * m.shape[axis] + c) * inner, inner, one.values.begin() + n * inner);
  return one;
}

// Images of one layout in another.
Memory arranged(Memory& m, Layout from, Layout to) {
  Memory result{m.shape};
  const View in{m.values.data(), DType::f32, from, m.shape}, out{result.values.data(), DType::f32, to, m.shape};
  copy_images(StridedImages::of(in), StridedImages::of(out), m.shape[0]);
  return result;
}

TEST(Depthwise, HasTheBitsOfSeparateChannels) {
  struct Case {
    Shape x;
    std::int64_t kernel, padding, stride;
    Layout layout;
  };
  for (const Case& c :
       {Case{{5, 20, 9, 28}, 3, 1, 1, Layout::plain}, Case{{70, 32, 14, 14}, 3, 1, 2, Layout::blocked16},
        Case{{9, 33, 4, 5}, 5, 2, 1, Layout::channels_last}}) {
    const std::int64_t channels = c.x[1];
    Conv2dOptions one{.stride = {c.stride, c.stride}, .padding = {c.padding, c.padding}}, all = one;
    all.groups = channels;
    const auto conv = make_f32_conv({.direct = true});
    const auto extent = [&](int axis) { return (c.x[axis] + 2 * c.padding - c.kernel) / c.stride + 1; };
    Memory x = random(c.x, 1), w = random({channels, 1, c.kernel, c.kernel}, 2), bias = random({channels}, 3);
    Memory dy = random({c.x[0], channels, extent(2), extent(3)}, 4);
    Memory x_in = arranged(x, Layout::plain, c.layout), dy_in = arranged(dy, Layout::plain, c.layout);
    const View x_view{x_in.values.data(), DType::f32, c.layout, x.shape},
        dy_view{dy_in.values.data(), DType::f32, c.layout, dy.shape};
    for (const int threads : {1, 3}) {
      KernelContext context(threads);
      Memory y_out{dy.shape}, dx_out{x.shape}, dw{w.shape}, db{bias.shape};
      conv->run(
          context,
          kernels::Conv{all, x_view, w.view(), bias.view(), {y_out.values.data(), DType::f32, c.layout, dy.shape}});
      conv->run(context, kernels::ConvBackwardData{
                             all, dy_view, w.view(), {dx_out.values.data(), DType::f32, c.layout, x.shape}});
      conv->run(context, kernels::ConvBackwardWeights{all, x_view, dy_view, dw.view(), db.view()});
      const Memory y = arranged(y_out, c.layout, Layout::plain), dx = arranged(dx_out, c.layout, Layout::plain);
      for (std::int64_t i = 0; i < channels; ++i) {
        Memory x1 = channel(x, 1, i), w1 = channel(w, 0, i), b1 = channel(bias, 0, i), dy1 = channel(dy, 1, i);
        Memory y1{dy1.shape}, dx1{x1.shape}, dw1{w1.shape}, db1{b1.shape};
        conv->run(context, kernels::Conv{one, x1.view(), w1.view(), b1.view(), y1.view()});
        conv->run(context, kernels::ConvBackwardData{one, dy1.view(), w1.view(), dx1.view()});
        conv->run(context, kernels::ConvBackwardWeights{one, x1.view(), dy1.view(), dw1.view(), db1.view()});
        EXPECT_EQ(channel(y, 1, i).values, y1.values);
        EXPECT_EQ(channel(dx, 1, i).values, dx1.values);
        EXPECT_EQ(channel(dw, 0, i).values, dw1.values);
        EXPECT_EQ(channel(db, 0, i).values, db1.values);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu
