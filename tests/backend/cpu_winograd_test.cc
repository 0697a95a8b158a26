// Winograd's algorithm next to the reference in f64, whether or not it pays, and what changes no bit of it: threads,
// instructions, layouts, and the other images of a batch.
#include "lockstep/backend/cpu/winograd.h"

#include <algorithm>

#include "lockstep/backend/cpu/f32_conv.h"
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

using cpu::ConvAxis;

struct WinogradCase {
  std::int64_t images = 1, inputs = 16, outputs = 16;
  std::array<std::int64_t, 2> size{4, 4}, padding{1, 1};

  ConvAxis axis(int i) const { return {size[i], size[i] + 2 * padding[i] - 2, 3, 1, padding[i], 1}; }
  Shape x() const { return {images, inputs, size[0], size[1]}; }
  Shape w() const { return {outputs, inputs, 3, 3}; }
  Shape y() const { return {images, outputs, axis(0).output, axis(1).output}; }
  std::string str() const {
    return fmt::format("x {}, w {}, padding {} {}", x().str(), w().str(), padding[0], padding[1]);
  }
};

struct Values {
  TestTensor x, w, bias, dy;
};

Values random_values(const WinogradCase& c, Random& random) {
  return {random.tensor(c.x(), DType::f32), random.tensor(c.w(), DType::f32), random.tensor({c.outputs}, DType::f32),
          random.tensor(c.y(), DType::f32)};
}

// How to compute what must have the same bits.
struct Way {
  int threads = 1;
  Simd simd = lockstep::simd();
  Layout layout = Layout::plain;
  DType dtype = DType::f32;  // of x and dy
};

struct ConvResults {
  TestTensor y, dx, dw;
};

cpu::Weights weights_of(const WinogradCase& c, const TestTensor& w, bool transposed) {
  cpu::Weights weights{.data = w.view().data,
                       .terms = c.inputs,
                       .columns = c.outputs,
                       .taps = 9,
                       .term_stride = 9,
                       .column_stride = 9 * c.inputs};
  if (transposed) {
    std::swap(weights.terms, weights.columns);
    std::swap(weights.term_stride, weights.column_stride);
  }
  return weights;
}

// The forward pass, or the gradient of the data.
void run_pass(const WinogradCase& c, const Way& way, const TestTensor& from, const TestTensor& w,
              const TestTensor& bias, const TestTensor& to, bool transposed) {
  const cpu::F32Kernels& kernels = cpu::f32_kernels(way.simd);
  KernelContext context(way.threads);
  cpu::WinogradTiles tiles{c.axis(0), c.axis(1)};
  if (transposed) tiles = {turned(c.axis(0)), turned(c.axis(1))};
  const cpu::WinogradPass pass(tiles, c.images, cpu::StridedImages::of(from.view()), cpu::StridedImages::of(to.view()));
  std::vector<float> transformed(static_cast<std::size_t>(pass.weights_size())),
      scratch(static_cast<std::size_t>(pass.scratch() * way.threads));
  pass.transform(context, weights_of(c, w, transposed), transposed, transformed.data(), kernels);
  pass.run(context, transformed.data(), bias ? bias.view().as<float>() : nullptr, scratch.data(), kernels);
}

// In plain order.
ConvResults compute(const WinogradCase& c, const Values& values, const Way& way = {}) {
  const TestTensor x = values.x.to(way.dtype, way.layout), dy = values.dy.to(way.dtype, way.layout);
  TestTensor y(c.y(), DType::f32, way.layout), dx(c.x(), DType::f32, way.layout), dw(c.w(), DType::f32);
  run_pass(c, way, x, values.w, values.bias, y, false);
  run_pass(c, way, dy, values.w, {}, dx, true);
  KernelContext context(way.threads);
  const cpu::WinogradWeightPass pass({c.axis(0), c.axis(1)}, c.images, cpu::StridedImages::of(x.view()),
                                     cpu::StridedImages::of(dy.view()));
  std::vector<float> scratch(static_cast<std::size_t>(pass.scratch(way.threads)));
  pass.run(context, dw.view().as<float>(), scratch.data(), cpu::f32_kernels(way.simd));
  return {y.to(DType::f32, Layout::plain), dx.to(DType::f32, Layout::plain), dw};
}

ConvResults reference(const WinogradCase& c, const Values& values) {
  KernelContext context;
  const Conv2dOptions options{.padding = c.padding};
  const TestTensor x = values.x.oracle(), w = values.w.oracle(), bias = values.bias.oracle(), dy = values.dy.oracle();
  ConvResults r{TestTensor(c.y(), DType::f64), TestTensor(c.x(), DType::f64), TestTensor(c.w(), DType::f64)};
  ConvKernels& conv = *reference_backend().families().conv;
  conv.run(context, kernels::Conv{options, x.view(), w.view(), bias.view(), r.y.view()});
  conv.run(context, kernels::ConvBackwardData{options, dy.view(), w.view(), r.dx.view()});
  conv.run(context, kernels::ConvBackwardWeights{options, x.view(), dy.view(), r.dw.view(), View()});
  return r;
}

void expect_same_bits(const ConvResults& a, const ConvResults& b) {
  EXPECT_TRUE(a.y.same_bits(b.y)) << "forward";
  EXPECT_TRUE(a.dx.same_bits(b.dx)) << "gradient of the data";
  EXPECT_TRUE(a.dw.same_bits(b.dw)) << "gradient of the weights";
}

std::vector<Simd> targets() {
  std::vector<Simd> all;
  for (int i = 0; i <= static_cast<int>(widest_simd()); ++i) all.push_back(static_cast<Simd>(i));
  return all;
}

// More images and tiles than are computed together, or summed in one go, or more channels, also with few tiles.
const std::vector<WinogradCase> kLargeCases{{.images = 2, .inputs = 16, .outputs = 16, .size = {33, 35}},
                                            {.images = 40, .inputs = 32, .outputs = 16, .size = {7, 7}},
                                            {.images = 2, .inputs = 272, .outputs = 48, .size = {6, 5}},
                                            {.images = 3, .inputs = 192, .outputs = 176, .size = {5, 3}},
                                            {.images = 70, .inputs = 16, .outputs = 80, .size = {4, 4}}};

WinogradCase random_case(Random& random) {
  for (;;) {
    WinogradCase c{.images = random.integer(1, 5),
                   .inputs = 16 * random.integer(1, 4),
                   .outputs = 16 * random.integer(1, 4),
                   .size = {random.integer(1, 20), random.integer(1, 20)},
                   .padding = {random.integer(0, 2), random.integer(0, 2)}};
    if (c.axis(0).output > 0 && c.axis(1).output > 0 && c.y().numel() * c.inputs < 300'000) return c;
  }
}

void expect_accurate(const WinogradCase& c, Random& random) {
  SCOPED_TRACE(c.str());
  const Values values = random_values(c, random);
  const ConvResults actual = compute(c, values), expected = reference(c, values);
  // A tenth of what is promised, 1e-4.
  expect_close(actual.y, expected.y, 1e-5);
  expect_close(actual.dx, expected.dx, 1e-5);
  expect_close(actual.dw, expected.dw, 1e-5);
}

TEST(Winograd, MatchesTheReference) {
  Random random{5};
  for (int i = 0; i < 30 && !::testing::Test::HasFailure(); ++i) expect_accurate(random_case(random), random);
}

TEST(Winograd, MatchesTheReferenceOverManyTilesAndChannels) {
  Random random{6};
  for (const WinogradCase& c : kLargeCases) expect_accurate(c, random);
}

TEST(Winograd, ImagesSmallerThanATile) {
  Random random{7};
  for (std::int64_t size : {1, 2, 3}) expect_accurate({.images = 3, .size = {size, 1}}, random);
}

TEST(Winograd, ThreadsChangeNoBit) {
  Random random{8};
  for (const WinogradCase& c : kLargeCases) {
    SCOPED_TRACE(c.str());
    const Values values = random_values(c, random);
    const ConvResults alone = compute(c, values);
    for (int threads : {2, 3}) expect_same_bits(compute(c, values, {.threads = threads}), alone);
  }
}

TEST(Winograd, InstructionsChangeNoBit) {
  Random random{9};
  for (int i = 0; i < 6; ++i) {
    const WinogradCase c = random_case(random);
    SCOPED_TRACE(c.str());
    const Values values = random_values(c, random);
    const ConvResults scalar = compute(c, values, {.simd = Simd::scalar});
    for (Simd simd : targets()) expect_same_bits(compute(c, values, {.simd = simd}), scalar);
  }
}

TEST(Winograd, LayoutsAndStorageChangeNoBit) {
  Random random{10};
  std::vector<WinogradCase> cases = kLargeCases;
  for (int i = 0; i < 6; ++i) cases.push_back(random_case(random));
  for (const WinogradCase& c : cases) {
    SCOPED_TRACE(c.str());
    Values values = random_values(c, random);
    // Numbers that bf16 has.
    values.x = values.x.to(DType::bf16, Layout::plain).to(DType::f32, Layout::plain);
    values.dy = values.dy.to(DType::bf16, Layout::plain).to(DType::f32, Layout::plain);
    const ConvResults plain = compute(c, values);
    for (Layout layout : layouts_that_fit(c.x())) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(fmt::format("{} {}", name(layout), name(dtype)));
        expect_same_bits(compute(c, values, {.threads = 2, .layout = layout, .dtype = dtype}), plain);
      }
    }
  }
}

// An image has the same bits in any batch.
TEST(Winograd, OtherImagesChangeNoBit) {
  Random random{11};
  const WinogradCase c{.images = 9, .inputs = 32, .outputs = 16, .size = {7, 9}};
  WinogradCase one = c;
  one.images = 1;
  const Values values = random_values(c, random);
  const std::vector<double> together = compute(c, values).y.values(), x = values.x.values();
  const std::size_t in = static_cast<std::size_t>(one.x().numel()), out = static_cast<std::size_t>(one.y().numel());
  for (std::size_t n = 0; n < 9; ++n) {
    Values alone = random_values(one, random);
    alone.w = values.w;
    alone.bias = values.bias;
    alone.x = TestTensor(one.x(), DType::f32, Layout::plain, std::span(x).subspan(n * in, in));
    EXPECT_TRUE(std::ranges::equal(compute(one, alone).y.values(), std::span(together).subspan(n * out, out))) << n;
  }
}

bool pays(const WinogradCase& c) { return cpu::winograd_pays(c.axis(0), c.axis(1), c.images, c.inputs, c.outputs); }

// kLargeCases has both ways of computing the gradient of the weights.
TEST(Winograd, FewTilesOfManyChannelsAreComputedAtOnce) {
  const auto at_once = [](const WinogradCase& c) {
    return cpu::WinogradWeightPass({c.axis(0), c.axis(1)}, c.images,
                                   cpu::StridedImages::blocked(nullptr, c.inputs, c.size[0] * c.size[1]),
                                   cpu::StridedImages::blocked(nullptr, c.outputs, c.axis(0).output * c.axis(1).output))
        .at_once();
  };
  EXPECT_EQ(std::ranges::count_if(kLargeCases, at_once), 1);
}

TEST(Winograd, PaysWhereTilesAreManyAndChannelsToo) {
  for (auto [channels, size] : {std::pair<std::int64_t, std::int64_t>{64, 28}, {128, 14}, {256, 7}, {512, 4}}) {
    const WinogradCase layer{.images = 64, .inputs = channels, .outputs = channels, .size = {size, size}};
    EXPECT_TRUE(pays(layer)) << layer.str();
  }
  EXPECT_TRUE(pays({.images = 32, .inputs = 512, .outputs = 512, .size = {4, 4}}));  // a shard of a batch of 256
  EXPECT_FALSE(pays({.images = 16, .inputs = 512, .outputs = 512, .size = {4, 4}}));
  EXPECT_FALSE(pays({.images = 64, .inputs = 512, .outputs = 512, .size = {1, 1}}));  // of nine taps, one meets a pixel
  EXPECT_FALSE(pays({.images = 1, .inputs = 512, .outputs = 512}));  // transforming the weights costs more
  EXPECT_FALSE(pays({.images = 64, .size = {28, 28}}));              // transforming images costs more
}

TEST(Winograd, IsForThreeByThreeAtStrideOneOfWholeBlocks) {
  const WinogradCase c{.images = 64, .inputs = 64, .outputs = 64, .size = {28, 28}};
  const ConvAxis axis = c.axis(0);
  EXPECT_TRUE(cpu::winograd_pays(axis, axis, 64, 64, 64));
  EXPECT_FALSE(cpu::winograd_pays(axis, axis, 64, 63, 64));
  EXPECT_FALSE(cpu::winograd_pays(axis, axis, 64, 64, 65));
  for (const ConvAxis& other : {ConvAxis{28, 28, 5, 1, 2, 1}, ConvAxis{28, 14, 3, 2, 1, 1},
                                ConvAxis{28, 28, 3, 1, 2, 2}, ConvAxis{28, 32, 3, 1, 3, 1}}) {
    EXPECT_FALSE(cpu::winograd_pays(axis, other, 64, 64, 64));
    EXPECT_FALSE(cpu::winograd_pays(other, axis, 64, 64, 64));
  }
}

// The convolutions of a back end, which use it where it pays.
ConvResults convolve(ConvKernels& conv, const WinogradCase& c, const Values& values, TestTensor* dbias = nullptr) {
  KernelContext context;
  const Conv2dOptions options{.padding = c.padding};
  ConvResults r{TestTensor(c.y()), TestTensor(c.x()), TestTensor(c.w())};
  conv.run(context, kernels::Conv{options, values.x.view(), values.w.view(), values.bias.view(), r.y.view()});
  conv.run(context, kernels::ConvBackwardData{options, values.dy.view(), values.w.view(), r.dx.view()});
  conv.run(context, kernels::ConvBackwardWeights{options, values.x.view(), values.dy.view(), r.dw.view(),
                                                 dbias ? dbias->view() : View()});
  return r;
}

TEST(Winograd, ConvolutionsUseItUnlessDirect) {
  Random random{12};
  const WinogradCase c{.images = 16, .inputs = 64, .outputs = 80, .size = {14, 13}, .padding = {1, 2}};
  ASSERT_TRUE(pays(c));
  const Values values = random_values(c, random);
  TestTensor dbias({c.outputs}), direct_dbias({c.outputs});
  const ConvResults winograd = convolve(*make_f32_conv(), c, values, &dbias);
  const ConvResults direct = convolve(*make_f32_conv({.direct = true}), c, values, &direct_dbias);
  expect_same_bits(winograd, compute(c, values));
  EXPECT_FALSE(winograd.y.same_bits(direct.y));
  EXPECT_FALSE(winograd.dx.same_bits(direct.dx));
  EXPECT_FALSE(winograd.dw.same_bits(direct.dw));
  expect_close(winograd.y, direct.y, 1e-5);
  expect_close(winograd.dx, direct.dx, 1e-5);
  expect_close(winograd.dw, direct.dw, 1e-5);
  EXPECT_TRUE(dbias.same_bits(direct_dbias));
}

// Winograd's algorithm and direct sums alike.
TEST(Winograd, RoundsWeightsToTheImagesType) {
  Random random{13};
  const WinogradCase c{.images = 8, .inputs = 64, .outputs = 64, .size = {14, 14}};
  ASSERT_TRUE(pays(c));
  const Values values = random_values(c, random);
  KernelContext context;
  const auto forward = [&](bool direct, const TestTensor& w) {
    TestTensor y(c.y(), DType::bf16);
    make_f32_conv({.direct = direct})
        ->run(context, kernels::Conv{{.padding = c.padding},
                                     values.x.to(DType::bf16, Layout::plain).view(),
                                     w.view(),
                                     values.bias.view(),
                                     y.view()});
    return y;
  };
  const TestTensor rounded = values.w.to(DType::bf16, Layout::plain).to(DType::f32, Layout::plain);
  for (bool direct : {false, true})
    EXPECT_TRUE(forward(direct, values.w).same_bits(forward(direct, rounded))) << direct;
}

}  // namespace
}  // namespace lockstep::testing
