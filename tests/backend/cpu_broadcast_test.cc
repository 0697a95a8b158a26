#include "lockstep/backend/cpu/broadcast.h"

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

// Shapes of up to six axes, with axes of one element and axes left out in front.
struct Shapes {
  Shape a, b, out;
};

Shapes random_shapes(Random& random) {
  std::int64_t dim = random.integer(0, Shape::kMaxDim);
  std::vector<std::int64_t> a, b, out;
  for (std::int64_t axis = 0; axis < dim; ++axis) {
    std::int64_t extent = random.integer(1, 5), who = random.integer(0, 3);
    out.push_back(extent);
    a.push_back(who == 0 ? 1 : extent);
    b.push_back(who == 1 ? 1 : extent);
  }
  auto drop_ones = [&](std::vector<std::int64_t>& dims) {
    while (!dims.empty() && dims.front() == 1 && random.integer(0, 1) == 1) dims.erase(dims.begin());
  };
  drop_ones(a);
  drop_ones(b);
  return {Shape(a), Shape(b), Shape(out)};
}

class CpuBroadcast : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  KernelContext context_;
  Random random_{7};
};

TEST_F(CpuBroadcast, AnyShapesToTheBit) {
  for (int round = 0; round < 300; ++round) {
    Shapes shapes = random_shapes(random_);
    SCOPED_TRACE(shapes.a.str() + " and " + shapes.b.str());
    TestTensor a = random_.tensor(shapes.a, DType::f32), b = random_.tensor(shapes.b, DType::f32);
    TestTensor actual(shapes.out, DType::f32), expected(shapes.out, DType::f32);
    cpu_->run(context_, kernels::Binary{BinaryOp::subtract, a.view(), b.view(), actual.view()});
    reference_backend().run(context_, kernels::Binary{BinaryOp::subtract, a.view(), b.view(), expected.view()});
    ASSERT_TRUE(actual.same_bits(expected));
  }
}

TEST_F(CpuBroadcast, SumsBackToAnyShape) {
  for (int round = 0; round < 300; ++round) {
    Shapes shapes = random_shapes(random_);
    SCOPED_TRACE(shapes.out.str() + " to " + shapes.a.str());
    // Small integers: every sum is exact, in any order.
    std::vector<double> values(shapes.out.numel());
    for (double& value : values) value = static_cast<double>(random_.integer(-50, 50));
    TestTensor x(shapes.out, DType::f32, Layout::plain, values);
    TestTensor actual(shapes.a, DType::f32), expected(shapes.a, DType::f32);
    cpu_->run(context_, kernels::SumTo{x.view(), actual.view()});
    reference_backend().run(context_, kernels::SumTo{x.view(), expected.view()});
    ASSERT_EQ(actual.values(), expected.values());
  }
}

// Chunks may begin and end within a run.
TEST_F(CpuBroadcast, RunsOfChunksAreThoseOfTheWhole) {
  for (int round = 0; round < 100; ++round) {
    Shapes shapes = random_shapes(random_);
    cpu::BroadcastPlan<2> plan({shapes.a, shapes.b}, shapes.out);
    auto elements = [&](std::int64_t grain) {
      std::vector<std::array<std::int64_t, 3>> elements;
      for (std::int64_t begin = 0; begin < plan.numel(); begin += grain) {
        plan.for_each_run(begin, std::min(plan.numel(), begin + grain), [&](const cpu::BroadcastPlan<2>::Run& run) {
          for (std::int64_t i = 0; i < run.length; ++i) {
            elements.push_back(
                {run.out + i, run.at[0] + (plan.repeats(0) ? 0 : i), run.at[1] + (plan.repeats(1) ? 0 : i)});
          }
        });
      }
      return elements;
    };
    auto whole = elements(std::max<std::int64_t>(plan.numel(), 1));
    ASSERT_EQ(static_cast<std::int64_t>(whole.size()), shapes.out.numel());
    EXPECT_EQ(elements(1), whole);
    EXPECT_EQ(elements(7), whole);
  }
}

}  // namespace
}  // namespace lockstep::testing
