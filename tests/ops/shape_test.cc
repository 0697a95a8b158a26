// The order of elements, and which ones are chosen.
#include "lockstep/ops/shape.h"

#include <gtest/gtest.h>

#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/index.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

using Floats = std::vector<float>;

class OpsShape : public ::testing::Test {
 protected:
  // 0, 1, 2, ...
  Array counting(const Shape& shape) {
    return ops::reshape(ops::arange(shape.numel(), DType::f32, runtime_.devices()[0]), shape);
  }
  Array numbers(const std::vector<std::int64_t>& values, const Shape& shape) {
    return ops::to_device(Array::from(values, shape), runtime_.devices()[0]);
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
};

TEST_F(OpsShape, Permute) {
  const Array x = counting({2, 3});
  const int axes[] = {1, 0}, twice[] = {1, 1}, three[] = {0, 1, 2};
  EXPECT_EQ(ops::permute(x, axes).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_ERROR(ops::permute(x, twice), "permute: axis 1 is repeated or out of range");
  EXPECT_ERROR(ops::permute(x, three), "permute: 3 axes for shape [2, 3]");
  EXPECT_EQ(ops::move_axis(counting({2, 1, 3}), 2, 0).shape(), (Shape{3, 2, 1}));
}

TEST_F(OpsShape, Expand) {
  EXPECT_EQ(ops::expand(counting({2, 1}), {2, 2, 3}).to_vector<float>(), (Floats{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));
  EXPECT_ERROR(ops::expand(counting({2}), {3}), "expand: [2] does not broadcast to [3]");
  EXPECT_ERROR(ops::expand(counting({1, 2}), {2}), "expand: [1, 2] does not broadcast to [2]");
}

TEST_F(OpsShape, Slice) {
  const Array x = counting({2, 5});
  EXPECT_EQ(ops::slice(x, 1, 1, 2).to_vector<float>(), (Floats{1, 2, 6, 7}));
  EXPECT_EQ(ops::slice(x, 1, 0, 3, 2).to_vector<float>(), (Floats{0, 2, 4, 5, 7, 9}));
  EXPECT_EQ(ops::slice(x, 1, 4, 1, 7).to_vector<float>(), (Floats{4, 9}));
  EXPECT_EQ(ops::slice(x, 1, 5, 0).numel(), 0);
  EXPECT_ERROR(ops::slice(x, 1, 4, 2), "slice: 2 elements from 4 on, 1 apart, of axis 1 of [2, 5]");
  EXPECT_ERROR(ops::slice(x, 1, 0, 4, 2), "slice: 4 elements from 0 on, 2 apart");
  EXPECT_ERROR(ops::slice(x, 0, -1, 1), "slice: 1 elements from -1 on");
  // Together in memory: the same elements.
  const Array row = ops::slice(x, 0, 1, 1);
  EXPECT_EQ(row.storage(), x.storage());
  EXPECT_EQ(ops::slice(row, 1, 2, 3).storage(), x.storage());
  EXPECT_EQ(ops::slice(row, 1, 2, 3).to_vector<float>(), (Floats{7, 8, 9}));
}

TEST_F(OpsShape, SliceIntoZeros) {
  EXPECT_EQ(ops::slice_into_zeros(ops::affine(counting({2, 2}), 1, 1), {2, 5}, 1, 1, 2).to_vector<float>(),
            (Floats{0, 1, 0, 2, 0, 0, 3, 0, 4, 0}));
}

TEST_F(OpsShape, Cat) {
  const Array parts[] = {counting({2, 1}), counting({2, 0}), counting({2, 2})};
  EXPECT_EQ(ops::cat(parts, 1).to_vector<float>(), (Floats{0, 0, 1, 1, 2, 3}));
  const Array uneven[] = {counting({2, 1}), counting({3, 1})}, ranks[] = {counting({2, 1}), counting({2})};
  EXPECT_EQ(ops::cat(uneven, 0).to_vector<float>(), (Floats{0, 1, 0, 1, 2}));
  EXPECT_ERROR(ops::cat(uneven, 1), "cat: [3, 1] f32 on cpu:0 and [2, 1] f32 on cpu:0, expected the same type");
  EXPECT_ERROR(ops::cat(ranks, 0), "cat: [2] f32 on cpu:0 and");
  EXPECT_ERROR(ops::cat({}, 0), "cat: no arrays");
}

TEST_F(OpsShape, AxesMayBeNegative) {
  EXPECT_EQ(ops::resolve_axis("test", {2, 3}, -1), 1);
  EXPECT_ERROR(ops::resolve_axis("test", {2, 3}, 2), "test: axis 2 of shape [2, 3], expected -2 to 1");
  EXPECT_ERROR(ops::resolve_axis("test", {2, 3}, -3), "test: axis -3 of shape [2, 3]");
}

TEST_F(OpsShape, IndexBroadcasts) {
  const Array x = counting({2, 3});
  EXPECT_EQ(ops::take_along_axis(x, numbers({2, 0, 1, 1}, {2, 2}), 1).to_vector<float>(), (Floats{2, 0, 4, 4}));
  EXPECT_EQ(ops::take_along_axis(x, numbers({1}, {1, 1}), 1).to_vector<float>(), (Floats{1, 4}));
  EXPECT_EQ(ops::take_along_axis(x, numbers({1, 0, 1}, {1, 3}), 0).to_vector<float>(), (Floats{3, 1, 5}));
  EXPECT_EQ(ops::take_along_axis(counting({1, 3}), numbers({0, 2}, {2, 1}), 1).to_vector<float>(), (Floats{0, 2}));
  EXPECT_EQ(ops::scatter_sum(x, numbers({1, 1, 0}, {1, 3}), 1, 2).to_vector<float>(), (Floats{2, 1, 5, 7}));
  EXPECT_ERROR(ops::take_along_axis(x, x, 0), "take_along_axis: the index is f32, expected i64");
  EXPECT_ERROR(ops::take_along_axis(x, numbers({0}, {1}), 0), "the index is [1] for [2, 3], expected as many axes");
  EXPECT_ERROR(ops::scatter_sum(x, numbers({0}, {1, 1}), 1, 2), "expected equal extents on axis 1");
  EXPECT_ERROR(ops::take_along_axis(x, numbers({3}, {1, 1}), 1).to_vector<float>(),
               "index: 3 at place 0 is outside [0, 3)");
}

}  // namespace
}  // namespace lockstep::testing
