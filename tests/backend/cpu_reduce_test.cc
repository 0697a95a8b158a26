#include "tests/backend/kernel_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

class CpuReduce : public ::testing::Test {
 protected:
  TestTensor tree_sum(Backend& backend, const Tensors& leaves, const Shape& shape) {
    std::vector<View> views;
    for (const TestTensor& leaf : leaves) views.push_back(leaf.view());
    TestTensor out(shape, DType::f32);
    backend.run(context_, kernels::TreeSum{views, out.view()});
    return out;
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  KernelContext context_;
  Random random_{19};
};

TEST_F(CpuReduce, TreesOfManyLeavesWithGapsToTheBit) {
  // One tile with a rest, and two chunks.
  for (const Shape& shape : std::vector<Shape>{{3}, {600}, {17000}}) {
    const Tensors pool{random_.tensor(shape, DType::f32), random_.tensor(shape, DType::f32),
                       random_.tensor(shape, DType::f32), random_.tensor(shape, DType::f32)};
    for (int round = 0; round < 40; ++round) {
      Tensors leaves(random_.integer(1, 40));
      for (TestTensor& leaf : leaves) {
        if (random_.integer(0, 2) > 0) leaf = random_.pick(pool);
      }
      leaves[random_.integer(0, static_cast<std::int64_t>(leaves.size()) - 1)] = pool[0];
      ASSERT_TRUE(tree_sum(*cpu_, leaves, shape).same_bits(tree_sum(reference_backend(), leaves, shape)))
          << leaves.size() << " leaves of shape " << shape.str();
    }
  }
}

TEST_F(CpuReduce, NegativeZeroSurvivesMissingSiblings) {
  TestTensor zero({20}, DType::f32, Layout::plain, std::vector<double>(20, -0.0));
  EXPECT_TRUE(tree_sum(*cpu_, {{}, {}, zero, {}, {}}, {20}).same_bits(zero));
  EXPECT_TRUE(tree_sum(*cpu_, {{}, zero, zero}, {20}).same_bits(zero));
}

TEST_F(CpuReduce, RefusesATreeWithoutLeaves) {
  EXPECT_ERROR(tree_sum(*cpu_, {{}, {}, {}}, {5}), "tree_sum: all 3 leaves are missing");
  EXPECT_ERROR(tree_sum(*cpu_, {}, {5}), "tree_sum: all 0 leaves are missing");
}

TEST_F(CpuReduce, LongSumsStayAccurate) {
  // In f32, one after another, these would come to 16777216.
  constexpr std::int64_t kCount = 20'000'000;
  TestTensor ones({kCount}, DType::f32), sum({}, DType::f32);
  cpu_->run(context_, kernels::Fill{1, ones.view()});
  cpu_->run(context_, kernels::SumTo{ones.view(), sum.view()});
  EXPECT_EQ(sum.values()[0], kCount);
}

}  // namespace
}  // namespace lockstep::testing
