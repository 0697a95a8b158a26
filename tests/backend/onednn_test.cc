#include "lockstep/backend/cpu/onednn.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/backend/cpu/cpu_features.h"
#include "lockstep/backend/cpu/onednn_executor.h"
#include "lockstep/backend/cpu/onednn_plan.h"
#include "tests/environment_variable.h"

namespace lockstep {
namespace {

// oneDNN computes bf16 with AVX-512, in hardware or with f32 instructions.
class Onednn : public ::testing::Test {
 protected:
  void SetUp() override {
    if (simd() != Simd::avx512) GTEST_SKIP() << "needs AVX-512";
  }
};
using OnednnConv = Onednn;
using OnednnExecutor = Onednn;
using OnednnMatmul = Onednn;

// A tensor that owns its elements; reading and writing go through double.
class Array {
 public:
  Array() = default;
  Array(Shape shape, DType dtype, Layout layout = Layout::plain) : bytes_(shape.numel() * item_size(dtype) + 1) {
    view_ = {bytes_.data(), dtype, layout, shape};
  }
  // Values in steps of 1/8 within [-1, 1], different for each seed: exact in bf16 and f16.
  Array(Shape shape, DType dtype, Layout layout, unsigned seed) : Array(shape, dtype, layout) {
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      seed = seed * 1664525u + 1013904223u;
      set(i, (static_cast<int>((seed >> 16) % 17) - 8) / 8.0);
    }
  }

  const View& view() const { return view_; }
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return offset4(view_.layout, view_.shape, n, c, h, w);
  }
  double get(std::int64_t i) const {
    return visit_dtype(
        view_.dtype, [&](auto zero) { return static_cast<double>(static_cast<float>(view_.as<decltype(zero)>()[i])); });
  }
  void set(std::int64_t i, double value) {
    visit_dtype(view_.dtype, [&](auto zero) {
      using T = decltype(zero);
      view_.as<T>()[i] = T(static_cast<float>(value));
    });
  }
  void fill(double value) {
    for (std::int64_t i = 0; i < view_.numel(); ++i) set(i, value);
  }
  bool operator==(const Array& other) const { return bytes_ == other.bytes_; }

 private:
  std::vector<std::byte> bytes_;
  View view_;
};

struct Case {
  std::int64_t n, c, h, w, o, k;
  Conv2dOptions options;
  DType dtype;
  Layout x, y;
};

// A convolution with all its operands and results.
struct Conv {
  explicit Conv(const Case& p)
      : options(p.options), x({p.n, p.c, p.h, p.w}, p.dtype, p.x, 1),
        w({p.o, p.c / p.options.groups, p.k, p.k}, DType::f32, Layout::plain, 2),
        bias({p.o}, DType::f32, Layout::plain, 3), dy({p.n, p.o, out(p.h, 0, p), out(p.w, 1, p)}, p.dtype, p.y, 4),
        y(dy.view().shape, p.dtype, p.y), dx(x.view().shape, p.dtype, p.x), dw(w.view().shape, DType::f32),
        db(bias.view().shape, DType::f32) {}

  static std::int64_t out(std::int64_t extent, int axis, const Case& p) {
    return (extent + 2 * p.options.padding[axis] - p.options.dilation[axis] * (p.k - 1) - 1) / p.options.stride[axis] +
           1;
  }

  void run(ConvKernels& kernels, KernelContext& context) {
    kernels.forward(context, options, x.view(), w.view(), bias.view(), y.view());
    kernels.backward_data(context, options, dy.view(), w.view(), dx.view());
    kernels.backward_weights(context, options, x.view(), dy.view(), dw.view(), db.view());
  }

  bool same_results(const Conv& o) const { return y == o.y && dx == o.dx && dw == o.dw && db == o.db; }

  Conv2dOptions options;
  Array x, w, bias, dy, y, dx, dw, db;
};

// The three passes as loops over the definition, in double.
struct Expected {
  explicit Expected(const Conv& c)
      : y(c.y.view().numel()), dx(c.x.view().numel()), dw(c.w.view().numel()), db(c.bias.view().numel()) {
    const Shape &xs = c.x.view().shape, &ws = c.w.view().shape, &ys = c.y.view().shape;
    const std::int64_t outputs_per_group = ys[1] / c.options.groups;
    for (std::int64_t n = 0; n < ys[0]; ++n)
      for (std::int64_t o = 0; o < ys[1]; ++o)
        for (std::int64_t i = 0; i < ys[2]; ++i)
          for (std::int64_t j = 0; j < ys[3]; ++j) {
            const std::int64_t at_y = c.y.at(n, o, i, j);
            const double dy = c.dy.get(at_y);
            y[at_y] += c.bias.get(o);
            db[o] += dy;
            for (std::int64_t q = 0; q < ws[1]; ++q)
              for (std::int64_t r = 0; r < ws[2]; ++r)
                for (std::int64_t s = 0; s < ws[3]; ++s) {
                  std::int64_t h = i * c.options.stride[0] - c.options.padding[0] + r * c.options.dilation[0];
                  std::int64_t w = j * c.options.stride[1] - c.options.padding[1] + s * c.options.dilation[1];
                  if (h < 0 || h >= xs[2] || w < 0 || w >= xs[3]) continue;
                  const std::int64_t at_x = c.x.at(n, o / outputs_per_group * ws[1] + q, h, w);
                  const std::int64_t at_w = ((o * ws[1] + q) * ws[2] + r) * ws[3] + s;
                  y[at_y] += c.x.get(at_x) * c.w.get(at_w);
                  dx[at_x] += dy * c.w.get(at_w);
                  dw[at_w] += dy * c.x.get(at_x);
                }
          }
  }

  std::vector<double> y, dx, dw, db;
};

void expect_near(const Array& found, const std::vector<double>& expected, const char* what) {
  double scale = 1e-30, worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::abs(expected[i]));
    worst = std::max(worst, std::abs(expected[i] - found.get(i)));
    ASSERT_FALSE(std::isnan(found.get(i))) << what << "[" << i << "]";
  }
  const DType dtype = found.view().dtype;
  EXPECT_LE(worst / scale, dtype == DType::bf16 ? 1.0 / 256 : dtype == DType::f16 ? 1.0 / 2048 : 1e-5) << what;
}

void expect_correct(const Conv& conv) {
  Expected expected(conv);
  expect_near(conv.y, expected.y, "y");
  expect_near(conv.dx, expected.dx, "dx");
  expect_near(conv.dw, expected.dw, "dw");
  expect_near(conv.db, expected.db, "db");
}

constexpr auto kPlain = Layout::plain;
constexpr auto kLast = Layout::channels_last;
constexpr auto kBlocked = Layout::blocked16;

// The kinds of convolution in ResNet-18 for 28x28 images, in small.
std::vector<Case> resnet_cases() {
  std::vector<Case> cases;
  struct Sizes {
    std::int64_t c, h, o, k, stride, padding;
  };
  for (Sizes s : {Sizes{1, 28, 64, 7, 1, 3},
                  {64, 14, 64, 3, 1, 1},
                  {64, 14, 128, 3, 2, 1},
                  {64, 14, 128, 1, 2, 0},
                  {128, 7, 128, 3, 1, 1},
                  {128, 4, 256, 3, 2, 1},
                  {256, 4, 256, 3, 1, 1},
                  {512, 1, 512, 3, 1, 1}}) {
    Conv2dOptions options{.stride = {s.stride, s.stride}, .padding = {s.padding, s.padding}};
    cases.push_back({1, s.c, s.h, s.h, s.o, s.k, options, DType::bf16, kLast, kLast});
  }
  return cases;
}

TEST_F(OnednnConv, ComputesTheConvolutionsOfResNet) {
  auto kernels = make_onednn_conv();
  KernelContext context;
  for (const Case& p : resnet_cases()) {
    SCOPED_TRACE(::testing::Message() << name(p.dtype) << " " << name(p.x) << " " << p.c << "@" << p.h << " to " << p.o
                                      << ", " << p.k << "x" << p.k);
    Conv conv(p);
    conv.run(*kernels, context);
    expect_correct(conv);
  }
}

// Enough pixels for what only pays in the large: a weight gradient that is one product of matrices, beside one that
// is not.
TEST_F(OnednnConv, ComputesLargeBatches) {
  auto kernels = make_onednn_conv();
  KernelContext context;
  for (const Case& p : {Case{16, 16, 8, 6, 32, 3, {.padding = {1, 1}}, DType::bf16, kLast, kLast},
                        Case{4, 16, 3, 20, 32, 3, {.padding = {1, 1}}, DType::bf16, kLast, kLast}}) {
    SCOPED_TRACE(::testing::Message() << name(p.dtype) << " " << p.n << "x" << p.c << "x" << p.h << "x" << p.w);
    Conv conv(p);
    conv.run(*kernels, context);
    expect_correct(conv);
  }
}

TEST_F(OnednnConv, TakesAnyPairOfLayouts) {
  auto kernels = make_onednn_conv();
  KernelContext context;
  for (Layout x : {kPlain, kLast, kBlocked})
    for (Layout y : {kPlain, kLast, kBlocked}) {
      SCOPED_TRACE(::testing::Message() << name(x) << " to " << name(y));
      Conv conv({2, 16, 6, 5, 32, 3, {.stride = {2, 1}, .padding = {0, 1}}, DType::bf16, x, y});
      conv.run(*kernels, context);
      expect_correct(conv);
    }
}

TEST_F(OnednnConv, TakesGroupsDilationAndOddChannels) {
  auto kernels = make_onednn_conv();
  KernelContext context;
  for (const Case& p : {Case{2, 6, 7, 7, 4, 3, {.padding = {2, 2}, .groups = 2}, DType::bf16, kPlain, kLast},
                        Case{2, 32, 7, 7, 32, 3, {.padding = {1, 1}, .groups = 32}, DType::bf16, kLast, kLast},
                        Case{3, 3, 9, 8, 5, 3, {.padding = {2, 2}, .dilation = {2, 2}}, DType::bf16, kPlain, kPlain}}) {
    Conv conv(p);
    conv.run(*kernels, context);
    expect_correct(conv);
  }
}

TEST_F(OnednnConv, EmptyBatchHasZeroGradients) {
  auto kernels = make_onednn_conv();
  KernelContext context;
  Conv conv({0, 16, 6, 6, 32, 3, {}, DType::bf16, kLast, kLast});
  conv.dw.fill(1);
  conv.db.fill(1);
  conv.run(*kernels, context);
  EXPECT_EQ(conv.dw, Array(conv.dw.view().shape, DType::f32));
  EXPECT_EQ(conv.db, Array(conv.db.view().shape, DType::f32));
}

// Small enough to run often, large enough that threads overlap.
std::vector<Case> repeated_cases() {
  return {{4, 64, 14, 14, 64, 3, {.padding = {1, 1}}, DType::bf16, kLast, kLast},
          {4, 64, 7, 7, 128, 3, {.stride = {2, 2}, .padding = {1, 1}}, DType::bf16, kLast, kLast}};
}

TEST_F(OnednnConv, GivesTheSameBitsFromRunToRun) {
  auto kernels = make_onednn_conv();
  for (int threads : {1, 2}) {
    KernelContext context{threads};
    for (const Case& p : repeated_cases()) {
      Conv first(p);
      first.run(*kernels, context);
      for (int i = 0; i < 5; ++i) {
        Conv again(p);
        again.run(*kernels, context);
        EXPECT_TRUE(first.same_results(again));
      }
    }
  }
}

TEST_F(OnednnConv, GivesTheSameBitsOnThreadsSideBySide) {
  auto kernels = make_onednn_conv();
  for (const Case& p : repeated_cases()) {
    KernelContext context;
    Conv alone(p);
    alone.run(*kernels, context);
    std::barrier start(2);
    auto work = [&](int& different) {
      KernelContext own;
      for (int i = 0; i < 20; ++i) {
        Conv conv(p);
        start.arrive_and_wait();
        conv.run(*kernels, own);
        different += !conv.same_results(alone);
      }
    };
    int different[2] = {0, 0};
    std::thread other([&] { work(different[1]); });
    work(different[0]);
    other.join();
    EXPECT_EQ(different[0], 0);
    EXPECT_EQ(different[1], 0);
  }
}

TEST_F(OnednnExecutor, PlansOnceForEachProblem) {
  onednn::Executor executor;
  Conv conv({2, 16, 6, 6, 16, 3, {.padding = {1, 1}}, DType::bf16, kLast, kLast});
  auto run = [&](KernelContext& context) {
    executor.run(context, {.kind = onednn::Kind::conv_forward, .conv = conv.options},
                 {conv.x.view(), conv.w.view(), View{}, conv.y.view()});
  };
  KernelContext one, two{2};
  run(one);
  run(one);
  EXPECT_EQ(executor.plans(), 1u);
  run(two);
  EXPECT_EQ(executor.plans(), 2u);
}

// A forward convolution of images `width` wide, which is a problem of its own for each width.
struct WideConv {
  explicit WideConv(std::int64_t width)
      : conv({2, 16, 6, width, 16, 3, {.padding = {1, 1}}, DType::bf16, kLast, kLast}) {}

  onednn::Problem problem() const {
    return {.kind = onednn::Kind::conv_forward,
            .operands = {onednn::Operand::of(conv.x.view()), onednn::Operand::of(conv.w.view()),
                         onednn::Operand::of(conv.bias.view()), onednn::Operand::of(conv.y.view())},
            .conv = conv.options};
  }
  void run(onednn::Executor& executor, KernelContext& context) {
    executor.run(context, {.kind = onednn::Kind::conv_forward, .conv = conv.options},
                 {conv.x.view(), conv.w.view(), conv.bias.view(), conv.y.view()});
  }
  void expect_correct() const { expect_near(conv.y, Expected(conv).y, "y"); }

  Conv conv;
};

TEST_F(OnednnExecutor, ForgetsThePlanThatWasUsedLongestAgo) {
  onednn::Executor executor(2);
  KernelContext context;
  onednn::Problem a = WideConv(5).problem(), b = WideConv(6).problem(), c = WideConv(7).problem();
  const auto plan_a = executor.plan(context, a);
  const std::weak_ptr<onednn::Plan> plan_b = executor.plan(context, b);
  executor.plan(context, a);
  EXPECT_FALSE(plan_b.expired());
  executor.plan(context, c);
  EXPECT_EQ(executor.plans(), 2u);
  EXPECT_TRUE(plan_b.expired());
  EXPECT_EQ(executor.plan(context, a), plan_a);
}

TEST_F(OnednnExecutor, ForgottenPlansRunToTheirEnd) {
  onednn::Executor executor(1);
  auto work = [&](std::int64_t first) {
    KernelContext context;
    for (int i = 0; i < 10; ++i) {
      WideConv conv(first + i % 2);
      conv.run(executor, context);
      conv.expect_correct();
    }
  };
  std::thread other(work, 5);
  work(7);
  other.join();
  EXPECT_EQ(executor.plans(), 1u);
}

// c = op(a) op(b) + bias against loops, for one choice of sizes, types and transposes.
void check_matmul(MatmulKernels& kernels, std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb,
                  bool with_bias, DType type_a, DType type_b, DType type_c) {
  SCOPED_TRACE(::testing::Message() << m << "x" << n << "x" << k << " " << ta << tb << with_bias << " " << name(type_a)
                                    << " " << name(type_b) << " " << name(type_c));
  Array a(ta ? Shape{k, m} : Shape{m, k}, type_a, kPlain, 1);
  Array b(tb ? Shape{n, k} : Shape{k, n}, type_b, kPlain, 2);
  Array bias({n}, DType::f32, kPlain, 3);
  Array c({m, n}, type_c);
  c.fill(NAN);
  KernelContext context;
  kernels.matmul(context, {ta, tb}, a.view(), b.view(), with_bias ? bias.view() : View{}, c.view());
  std::vector<double> expected(m * n);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double& sum = expected[i * n + j] = with_bias ? bias.get(j) : 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += a.get(ta ? l * m + i : i * k + l) * b.get(tb ? j * k + l : l * n + j);
      }
    }
  expect_near(c, expected, "c");
}

TEST_F(OnednnMatmul, MultipliesInEveryOrientationAndType) {
  auto kernels = make_onednn_matmul();
  const DType half = DType::bf16;
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (bool bias : {false, true})
        for (auto [m, n, k] : {std::array<std::int64_t, 3>{30, 2, 5}, {33, 65, 70}, {9, 9, 63}, {1, 7, 1}, {5, 1, 3}}) {
          check_matmul(*kernels, m, n, k, ta, tb, bias, half, half, half);
          check_matmul(*kernels, m, n, k, ta, tb, bias, half, DType::f32, half);
          check_matmul(*kernels, m, n, k, ta, tb, bias, half, half, DType::f32);
        }
}

// With fewer threads than planned, oneDNN waits forever. OpenMP reads the environment when the process starts: these are
// processes of their own.
TEST_F(OnednnConv, ComputesInSpiteOfWhatOpenMpIsTold) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto compute = [](int threads) {
    ::alarm(60);
    auto kernels = make_onednn_conv();
    KernelContext context{threads};
    Conv conv(repeated_cases()[0]);
    conv.run(*kernels, context);
    expect_correct(conv);
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  // OMP_DYNAMIC=true gives no more threads than cores.
  const int many = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  for (const auto& [name, value, threads] :
       {std::tuple{"OMP_DYNAMIC", "true", many}, {"OMP_MAX_ACTIVE_LEVELS", "0", 2}, {"OMP_NUM_THREADS", "1", 2}}) {
    SCOPED_TRACE(name);
    EnvironmentVariable variable(name, value);
    EXPECT_EXIT(compute(threads), ::testing::ExitedWithCode(0), "");
  }
}

// The environment is read once: this is a process of its own.
TEST(OnednnIsa, IsLimitedAsOurLoopsAre) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EnvironmentVariable simd_limit("LOCKSTEP_SIMD", "scalar"), onednn_limit("ONEDNN_MAX_CPU_ISA", nullptr),
      old_onednn_limit("DNNL_MAX_CPU_ISA", nullptr);
  auto uses = [] {
    using namespace onednn;
    const bool native_bf16 = has_native_bf16();
    const Plan plan({.kind = Kind::conv_forward,
                     .operands = {Operand{.shape = {1, 16, 8, 8}}, Operand{.shape = {16, 16, 3, 3}}, Operand{},
                                  Operand{.shape = {1, 16, 6, 6}}}});
    std::fprintf(stderr, "simd %d, bf16 %d, %s\n", static_cast<int>(simd()), native_bf16,
                 plan.implementation().c_str());
    std::exit(simd() == Simd::scalar && !native_bf16 && plan.implementation().find("avx") == std::string::npos ? 0 : 1);
  };
  EXPECT_EXIT(uses(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
