#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/backend/cpu/onednn.h"
#include "tests/backend/onednn_testing.h"
#include "tests/environment_variable.h"

namespace lockstep::testing {
namespace {

using OnednnConv = Onednn;

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

// With fewer threads than planned, oneDNN waits forever. OpenMP reads the environment when the process starts: these
// are processes of their own.
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

}  // namespace
}  // namespace lockstep::testing
