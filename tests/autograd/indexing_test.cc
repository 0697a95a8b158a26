// Indexing. The expected elements are PyTorch's.
#include "lockstep/autograd/indexing.h"

#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/index_list.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/placement.h"
#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

// Assigning to a result without a name writes, or does not compile.
static_assert(std::is_assignable_v<Tensor&, Tensor> && !std::is_assignable_v<Tensor, Tensor>);
static_assert(std::is_assignable_v<IndexedTensor, Tensor> && std::is_assignable_v<IndexedTensor, IndexedTensor>);
static_assert(!std::is_assignable_v<IndexedTensor&, Tensor> && !std::is_assignable_v<IndexedTensor&, IndexedTensor>);

class IndexingTest : public ::testing::Test {
 protected:
  // 0, 1, 2, ...
  Tensor counting(const Shape& shape) const { return arange(static_cast<double>(shape.numel()), on()).reshape(shape); }
  Tensor ids(const TensorValues& values) const { return lockstep::tensor(values, on()); }
  TensorOptions on() const { return {.device = device_}; }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
  Device device_ = runtime_.devices()[0];
};

TEST_F(IndexingTest, ElementsAreThoseOfPyTorch) {
  const Tensor x = counting({2, 3, 4}), i = ids({2, 0, -1}), j = ids({1, 1, 3});
  const Tensor mask = lt(ids({{0, 1, 0}, {1, 1, 0}}), 1);
  const auto expect = [](const Tensor& y, const Shape& shape, const Numbers& elements) {
    EXPECT_EQ(y.shape(), shape);
    EXPECT_EQ(values(y), elements);
  };
  expect(x[1], {3, 4}, {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
  expect(x.index({-1, Slice(), Slice(1, 3)}), {3, 2}, {13, 14, 17, 18, 21, 22});
  expect(x.index({Ellipsis, 0, None}), {2, 3, 1}, {0, 4, 8, 12, 16, 20});
  expect(x.index({Slice(), Slice(None, None, 2), Slice(1, None, 2)}), {2, 2, 2}, {1, 3, 9, 11, 13, 15, 21, 23});
  expect(x.index({None, 1, Ellipsis, -1}), {1, 3}, {15, 19, 23});
  expect(x.index({Slice(), i, 0}), {2, 3}, {8, 0, 8, 20, 12, 20});
  expect(x.index({Slice(), i, j}), {2, 3}, {9, 1, 11, 21, 13, 23});
  expect(x.index({ids({1, 0, 1}), Slice(), j}), {3, 3}, {13, 17, 21, 1, 5, 9, 15, 19, 23});
  expect(x.index({0, Slice(), ids({{0, 3}, {2, 2}})}), {3, 2, 2}, {0, 3, 2, 2, 4, 7, 6, 6, 8, 11, 10, 10});
  expect(x.index({Slice(), ids(1)}), {2, 4}, {4, 5, 6, 7, 16, 17, 18, 19});
  expect(x.index({ids({{0}, {1}}), i, 1}), {2, 3}, {9, 1, 9, 21, 13, 21});
  expect(x[mask], {3, 4}, {0, 1, 2, 3, 8, 9, 10, 11, 20, 21, 22, 23});
  expect(x[x > 20], {3}, {21, 22, 23});
  expect(x[x > 30], {0}, {});
  expect(x.index({mask, 1}), {3}, {1, 9, 21});
  // A mask without axes makes an axis of one row or none.
  const Tensor yes = lt(ids(0), 1), no = lt(ids(1), 1);
  expect(x.index({yes, 1, 1}), {1, 4}, values(x[1][1]));
  EXPECT_EQ(x[no].shape(), (Shape{0, 2, 3, 4}));
}

TEST_F(IndexingTest, ReadingHasAGradient) {
  Tensor x = as_leaf(counting({2, 3}));
  const Tensor mask = x.detach() > 3;
  (sum(square(x[mask])) + sum(x.index({ids({0, 0}), ids({1, -1})}) * 10) + sum(x[1].narrow(0, 0, 1) * 100)).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{0, 10, 10, 100, 8, 10}));
}

TEST_F(IndexingTest, AssignmentWrites) {
  Tensor x = counting({2, 3});
  const Tensor same = x;
  x[1] = x[0];
  EXPECT_EQ(values(same), (Numbers{0, 1, 2, 0, 1, 2}));
  x[0] = 7;
  x[1] += 1.0;
  EXPECT_EQ(values(same), (Numbers{7, 7, 7, 1, 2, 3}));
  x[x > 2] = -1.0;
  EXPECT_EQ(values(same), (Numbers{-1, -1, -1, 1, 2, -1}));
  x[ids({1, 0})] = ids({{10, 11, 12}, {20, 21, 22}});
  EXPECT_EQ(values(same), (Numbers{20, 21, 22, 10, 11, 12}));
  const Tensor row = x[1];
  EXPECT_EQ(values(row), (Numbers{10, 11, 12}));

  Tensor y = counting({2, 3, 4});
  y.index_put_({Slice(), Slice(None, None, 2), 0}, -1);
  EXPECT_EQ(values(y),
            (Numbers{-1, 1, 2, 3, 4, 5, 6, 7, -1, 9, 10, 11, -1, 13, 14, 15, 16, 17, 18, 19, -1, 21, 22, 23}));
  y = counting({2, 3, 4});
  y.index_put_({Slice(), ids({2, 0}), Slice(1, 3)}, ids({{100, 101}, {102, 103}}));
  EXPECT_EQ(values(y),
            (Numbers{0, 102, 103, 3, 4, 5, 6, 7, 8, 100, 101, 11, 12, 102, 103, 15, 16, 17, 18, 19, 20, 100, 101, 23}));
  y.index_put_({0, 0, ids({1, 1, 1})}, ids({1, 2, 3}));
  EXPECT_EQ(y.index({0, 0, 1}).item(), 3);
  Tensor labels = ids({1, 2, 3});
  labels[labels == 2] = 5;
  EXPECT_EQ(labels.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 5, 3}));
}

TEST_F(IndexingTest, SlicesAreWrittenAtTheirPlaces) {
  const std::vector<std::vector<TensorIndex>> lists = {
      {Slice(), 1},
      {Ellipsis, -1},
      {Slice(), None, Slice(1, 3), None, Slice(None, None, 3)},
      {-1, Ellipsis, Slice(-3, -1), Slice(1, None, 2)},
      {Slice(None, None, std::numeric_limits<std::int64_t>::max()), Slice(2, 9)},
      {Slice(), Slice(4, 2)},
  };
  const Shape shape{3, 4, 5};
  for (const Device device : {device_, kHost}) {
    for (const std::vector<TensorIndex>& list : lists) {
      const Tensor x = arange(static_cast<double>(shape.numel()), {.device = device}).reshape(shape);
      const Tensor places = index(x, list);
      Numbers expected = values(x);
      const Numbers at = values(places);
      for (const double place : at) expected[static_cast<std::size_t>(place)] = -1 - place;
      index_put_(x, list, -1 - places);
      EXPECT_EQ(values(x), expected) << "list " << &list - lists.data() << " on " << device.name();
    }
  }
  // Reads the memory that it writes.
  const Tensor x = counting({3, 3});
  x.index_put_({Slice(), 1}, x.reshape({9}).index({Slice(0, 3)}));
  EXPECT_EQ(values(x), (Numbers{0, 0, 2, 3, 1, 5, 6, 2, 8}));
}

TEST_F(IndexingTest, AMaskTakesOneValueForAll) {
  const Tensor x = counting({2, 3});
  x.index_put_({gt(x, 3)}, 9);
  EXPECT_EQ(values(x), (Numbers{0, 1, 2, 3, 9, 9}));
  x.index_put_({lt(ids({1, 0}), 1)}, Tensor::from({-1.0}, {1}));
  EXPECT_EQ(values(x), (Numbers{0, 1, 2, -1, -1, -1}));
  x.index_put_({gt(x, 100)}, 5);
  EXPECT_EQ(values(x), (Numbers{0, 1, 2, -1, -1, -1}));
  EXPECT_ERROR(x.index_put_({gt(counting({1, 3}), 0)}, 1), "a mask of [1, 3] for axes 0 to 1 of [2, 3]");
  const Tensor whole = ids({1, 2, 3});
  whole.index_put_({gt(whole, 1)}, Tensor::from({2.7F}, {}));
  EXPECT_EQ(values(whole), (Numbers{1, 2, 2}));
}

// A temporary that is a copy would take the change along.
TEST_F(IndexingTest, AWriteThatNobodyWouldSeeIsAnError) {
  Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor before = x + 0;
  EXPECT_ERROR(x.t()[0] = 5, "x is a temporary copy");
  EXPECT_ERROR((x + 0)[0] = before[1], "x is a temporary copy");
  EXPECT_ERROR((x + 0)[x > 2] += 1, "x is a temporary copy");
  EXPECT_EQ(x.to_vector<float>(), before.to_vector<float>());
  // Handles of a tensor, slices, and other views share its memory.
  const auto handle = [&] { return x; };
  handle()[0] = 7;
  x[1][0] = 8;
  x.reshape({4})[3] = 9;
  x.detach()[0][1] = 6;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{7, 6, 8, 9}));
  const Tensor copy = x.t();
  copy[0] = 5;
  EXPECT_EQ(copy.to_vector<float>(), (std::vector<float>{5, 5, 6, 9}));
  // The memory of others.
  std::vector<float> theirs{1, 2};
  from_blob(theirs.data(), {2})[1] = 3;
  EXPECT_EQ(theirs[1], 3);
  Runtime runtime;
  Tensor on_device = zeros({2, 2}, {.device = runtime.devices()[0]});
  EXPECT_ERROR(on_device.t()[0] = 5, "x is a temporary copy");
  on_device[1][1] = 4;
  EXPECT_EQ(on_device.to_vector<float>(), (std::vector<float>{0, 0, 0, 4}));
}

TEST_F(IndexingTest, HostTensorsAreIndexedAlike) {
  Tensor x = arange(6.0).reshape({2, 3});
  EXPECT_EQ(x[x > 3].to_vector<float>(), (std::vector<float>{4, 5}));
  EXPECT_EQ(x.index({Slice(), lockstep::tensor({-1, 0})}).to_vector<float>(), (std::vector<float>{2, 0, 5, 3}));
  x[1] = x[0];
  x.index_put_({Slice(), lockstep::tensor({2})}, 7);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 7, 0, 1, 7}));
}

TEST_F(IndexingTest, ErrorsNameWhatIsExpected) {
  Tensor x = counting({2, 3});
  EXPECT_ERROR(x[2], "select: index 2 is out of range for axis 0 of [2, 3]");
  EXPECT_ERROR(x.index({0, 0, 0}), "index: 3 axes and 0 ellipses for shape [2, 3]");
  EXPECT_ERROR(x[lt(ids({0, 1, 2}), 1)], "index: a mask of [3] for axes 0 to 0 of [2, 3], expected their extents");
  EXPECT_ERROR(x[x], "expected i64, or a mask (bool or u8)");
  EXPECT_ERROR(values(x.index({ids({0, 1}), ids({0, 3})})), "is outside [0, 6)");
  EXPECT_ERROR(x[0] = counting({2}), "expand");
  x.set_requires_grad(true);
  EXPECT_ERROR(x[0] = 1, "index_put_: [2, 3] f32 on");
  EXPECT_ERROR(x.add_(1), "add_: [2, 3] f32 on");
  const NoGradGuard no_grad;
  x[0] = 1;
  x.add_(1).mul_(2);
  EXPECT_EQ(values(x), (Numbers{4, 4, 4, 8, 10, 12}));
  EXPECT_EQ(values(x.zero_()), Numbers(6, 0));
}

TEST_F(IndexingTest, TheBatchAxisOfACutTensorNeedsGather) {
  const std::vector<Device>& devices = runtime_.devices();
  const Tensor x =
      scatter(counting({4, 3}), std::make_shared<Placement>(std::vector<std::int64_t>{2, 2},
                                                            std::vector<Slot>{{0, devices[0]}, {1, devices[1]}}));
  EXPECT_EQ(values(x.index({Slice(), Slice(1, None)})), (Numbers{1, 2, 4, 5, 7, 8, 10, 11}));
  EXPECT_EQ(values(x.index({Slice(), ids({-1})})), (Numbers{2, 5, 8, 11}));
  for (const char* way : {"gather()", "per_shard()"}) {
    EXPECT_ERROR(x[0], way);
    EXPECT_ERROR(x[ids({0})], way);
    EXPECT_ERROR(x[x > 1], way);
    EXPECT_ERROR(x.index_put_({Slice(), 0}, 1), way);
  }
}

}  // namespace
}  // namespace lockstep::testing
