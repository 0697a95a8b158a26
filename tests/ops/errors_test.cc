// Operations check their arguments before they push a task. Their errors name what was found and what was expected.
#include <gtest/gtest.h>

#include "lockstep/ops/conv.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/matmul.h"
#include "lockstep/ops/norm.h"
#include "lockstep/ops/optimizer.h"
#include "lockstep/ops/pool.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/shape.h"
#include "lockstep/ops/softmax.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

class OpsErrors : public ::testing::Test {
 protected:
  Array on(const Shape& shape, std::size_t device = 0, DType dtype = DType::f32) {
    return ops::to_device(Array::host(shape, dtype), runtime_.devices()[device]);
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
};

TEST_F(OpsErrors, InputsAreDefinedAndInOnePlace) {
  Array host = Array::host({2, 2});
  EXPECT_ERROR(ops::matmul(host, on({2, 2})), "matmul: an input is on cpu:0, expected it in host memory");
  EXPECT_ERROR(ops::lend(host, kHost), "lend: the tensor is in host memory, expected it on a device");
  EXPECT_ERROR(ops::unary(UnaryOp::relu, Array()), "relu: an input is undefined");
  EXPECT_ERROR(ops::binary(BinaryOp::add, on({2, 2}), Array()), "add: an input is undefined");
  EXPECT_ERROR(ops::matmul(on({2, 2}), host), "matmul: an input is on host, expected it on cpu:0");
}

TEST_F(OpsErrors, InputsAreOnOneDevice) {
  EXPECT_ERROR(ops::binary(BinaryOp::add, on({2}), on({2}, 1)), "add: an input is on cpu:1, expected it on cpu:0");
  EXPECT_ERROR(ops::conv2d(on({1, 1, 2, 2}), on({1, 1, 1, 1}, 1), {}), "conv2d: an input is on cpu:1");
}

TEST_F(OpsErrors, Elementwise) {
  EXPECT_ERROR(ops::binary(BinaryOp::multiply, on({2, 3}), on({2})),
               "multiply: shapes [2, 3] and [2] do not broadcast");
  EXPECT_ERROR(ops::binary(BinaryOp::add, on({2}), on({2}, 0, DType::f64)), "expected one type");
  EXPECT_ERROR(ops::unary(UnaryOp::exp, on({2}, 0, DType::i64)), "exp: input is i64, expected a floating type");
  EXPECT_ERROR(ops::add_(on({2}), on({3})), "add: [2] f32 on cpu:0 and [3] f32 on cpu:0, expected the same shape");
  EXPECT_ERROR(ops::dropout(on({2}), 1, {}), "dropout: probability 1, expected at least 0 and below 1");
  EXPECT_ERROR(ops::empty({2, -1}, DType::f32, runtime_.devices()[0]), "shape: [2, -1] has a negative extent");
  EXPECT_ERROR(ops::empty({2}, DType::f32, runtime_.devices()[0], Layout::channels_last),
               "[2] cannot be channels-last");
}

TEST_F(OpsErrors, MatmulAndSums) {
  EXPECT_ERROR(ops::matmul(on({2, 3}), on({4, 5})), "matmul: a has 3 columns, b has 4 rows ([2, 3] x [4, 5])");
  EXPECT_ERROR(ops::matmul(on({2}), on({4, 5})), "matmul: a is [2], expected 2 axes");
  EXPECT_ERROR(ops::matmul(on({2, 3}), on({3, 5}), on({4})), "matmul: bias is [4], expected [5]");
  EXPECT_ERROR(ops::sum_to(on({2, 3}), {2}), "sum: [2] does not broadcast to [2, 3]");
  EXPECT_ERROR(ops::argmax(on({2, 0})), "argmax: rows are empty");
  Array leaves[] = {on({2}), on({3}, 1)};
  EXPECT_ERROR(ops::tree_sum(leaves, runtime_.devices()[0]), "tree_sum: [2] f32 on cpu:0 and [3] f32 on cpu:1");
}

TEST_F(OpsErrors, ConvolutionsAndPools) {
  EXPECT_ERROR(ops::conv2d(on({1, 3, 4, 4}), on({2, 4, 3, 3}), {}), "conv2d: input has 3 channels, weight expects 4");
  EXPECT_ERROR(ops::conv2d(on({1, 3, 4, 4}), on({2, 3, 5, 3}), {}),
               "(5 wide, dilation 1) does not fit the padded input (4 wide)");
  EXPECT_ERROR(ops::conv2d(on({1, 3, 4, 4}), on({2, 3, 3, 3}), on({3})), "conv2d: bias is [3], expected [2]");
  EXPECT_ERROR(ops::conv2d(on({1, 3, 4, 4}), on({2, 3, 3, 3}), {}, {.stride = {0, 1}}), "stride 0");
  EXPECT_ERROR(ops::conv2d(on({1, 4, 4, 4}), on({3, 2, 3, 3}), {}, {.groups = 2}), "2 groups for 3 output channels");
  EXPECT_ERROR(ops::max_pool2d(on({1, 1, 1, 4}), {}),
               "max_pool2d: the window (2 wide) does not fit the padded input (1 wide)");
  EXPECT_ERROR(ops::pool2d("avg_pool2d", on({1, 1, 4, 4}), kernels::AvgPool{{.padding = {2, 0}}}),
               "avg_pool2d: kernel 2, stride 2, padding 2");
  EXPECT_ERROR(ops::global_avg_pool2d(on({1, 1, 0, 4})), "has no pixels");
}

TEST_F(OpsErrors, NormsAndLosses) {
  Array x = on({1, 3, 2, 2}), c = on({4});
  ops::BatchStats stats = ops::batch_norm_stats(x);
  EXPECT_ERROR(ops::batch_norm(x, stats, c, c, {}, {}), "batch_norm: input has 3 channels, weight expects 4");
  EXPECT_ERROR(ops::merge_batch_stats({}, runtime_.devices()[0], false), "no shard has statistics to merge");
  Array labels = on({2}, 0, DType::i64);
  EXPECT_ERROR(ops::cross_entropy(on({3, 4}), labels), "cross_entropy: 3 rows of logits, 2 labels");
  EXPECT_ERROR(ops::cross_entropy(on({2, 4}), on({2})), "cross_entropy: labels are f32, expected i64");
  EXPECT_ERROR(ops::cross_entropy(on({2, 4}), labels, {.smoothing = 2}), "label smoothing 2, expected 0 to 1");
  EXPECT_ERROR(ops::mse(on({2}), on({3})), "mse: [2] f32 on cpu:0 and [3] f32 on cpu:0");
  EXPECT_ERROR(ops::clip_scale(on({1}, 0, DType::f64), 0), "clip: norm 0, expected above 0");
}

// Small sums over devices of one memory domain read the others' memory themselves.
TEST_F(OpsErrors, TreeSumsReadOtherDevices) {
  Array leaves[] = {ops::to_device(Array::from<float>({1}, {1}), runtime_.devices()[0]),
                    {},
                    ops::to_device(Array::from<float>({2}, {1}), runtime_.devices()[1])};
  for (Device device : runtime_.devices()) {
    Array sum = ops::tree_sum(leaves, device);
    EXPECT_EQ(sum.device(), device);
    EXPECT_EQ(sum.item<float>(), 3);
  }
  EXPECT_FALSE(ops::tree_sum(std::span(leaves).subspan(1, 1), runtime_.devices()[0]).defined());
}

TEST_F(OpsErrors, ShardScopesNest) {
  EXPECT_EQ(ops::ShardScope::current(), -1);
  {
    ops::ShardScope outer(2);
    { ops::ShardScope inner(5); }
    EXPECT_EQ(on({1}).shard(), -1);
    EXPECT_EQ(ops::empty({1}, DType::f32, runtime_.devices()[0]).shard(), 2);
  }
  EXPECT_EQ(ops::ShardScope::current(), -1);
}

TEST_F(OpsErrors, NoArrayIsMadeOfWhatCannotBeCounted) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 32;
  const Device device = runtime_.devices()[0];
  for (const Shape& shape : {Shape{kHuge, kHuge}, Shape{-1, -1}, Shape{kHuge, kHuge, kHuge, kHuge}}) {
    EXPECT_ERROR(ops::empty(shape, DType::f32, device), "shape: " + shape.str());
    EXPECT_ERROR(ops::empty_host(shape, DType::f32, device), "shape: " + shape.str());
  }
  EXPECT_ERROR(ops::empty({kHuge, kHuge / 4}, DType::f64, device), "of f64 has more bytes than can be counted");
  EXPECT_ERROR(ops::empty({kHuge, kHuge / 16}, DType::f32, device), "out of memory");
}

}  // namespace
}  // namespace lockstep::testing
