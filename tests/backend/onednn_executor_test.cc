#include "lockstep/backend/cpu/onednn_executor.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "lockstep/backend/cpu/onednn_plan.h"
#include "tests/backend/onednn_testing.h"
#include "tests/environment_variable.h"

namespace lockstep::testing {
namespace {

using OnednnExecutor = Onednn;

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
            .operands = {onednn::OperandSpec::of(conv.x.view()), onednn::OperandSpec::of(conv.w.view()),
                         onednn::OperandSpec::of(conv.bias.view()), onednn::OperandSpec::of(conv.y.view())},
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

// The environment is read once: this is a process of its own.
TEST(OnednnIsa, IsLimitedAsOurLoopsAre) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EnvironmentVariable simd_limit("LOCKSTEP_SIMD", "scalar"), onednn_limit("ONEDNN_MAX_CPU_ISA", nullptr),
      old_onednn_limit("DNNL_MAX_CPU_ISA", nullptr);
  auto uses = [] {
    using namespace onednn;
    const bool native_bf16 = has_native_bf16();
    const Plan plan({.kind = Kind::conv_forward,
                     .operands = {OperandSpec{.shape = {1, 16, 8, 8}}, OperandSpec{.shape = {16, 16, 3, 3}},
                                  OperandSpec{}, OperandSpec{.shape = {1, 16, 6, 6}}}});
    std::fprintf(stderr, "simd %d, bf16 %d, %s\n", static_cast<int>(simd()), native_bf16,
                 plan.implementation().c_str());
    std::exit(simd() == Simd::scalar && !native_bf16 && plan.implementation().find("avx") == std::string::npos ? 0 : 1);
  };
  EXPECT_EXIT(uses(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep::testing
