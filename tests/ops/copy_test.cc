// Operations that move elements: copies between devices, types, and layouts.
#include "lockstep/ops/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <numeric>

#include "lockstep/engine/trace.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/index.h"
#include "lockstep/ops/inter_op_parallel_guard.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

using Floats = std::vector<float>;

Floats floats(const Array& x) { return ops::host_readable(x).to_vector<float>(); }

class CopyTest : public ::testing::TestWithParam<bool> {
 protected:
  Device device(std::size_t i) { return runtime_.devices()[i]; }
  // 0, 1, 2, ... in host memory.
  static Array counting(const Shape& shape) {
    Floats v(static_cast<std::size_t>(shape.numel()));
    std::iota(v.begin(), v.end(), 0.0F);
    return Array::from(v, shape);
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1, .serial = GetParam()}};
};

INSTANTIATE_TEST_SUITE_P(Engines, CopyTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "serial" : "threaded"; });

TEST_P(CopyTest, RoundTripThroughTwoDevices) {
  Array x = counting({3, 4}), a = ops::to_device(x, device(0)), b = ops::to_device(a, device(1)),
        back = ops::to_device(b, kHost);
  EXPECT_EQ(a.device(), device(0));
  EXPECT_EQ(b.device(), device(1));
  EXPECT_TRUE(back.device().is_host());
  for (const Array& t : {a, b, back}) {
    EXPECT_EQ(t.shape(), x.shape());
    EXPECT_EQ(floats(t), floats(x));
  }
  EXPECT_EQ(ops::to_device(a, device(0)).storage(), a.storage());
  EXPECT_EQ(ops::to_device(x, kHost).storage(), x.storage());
}

TEST_P(CopyTest, ShardsStayWithTheirTensors) {
  Array x = counting({2}).with_shard(3);
  EXPECT_EQ(ops::to_device(x, device(0)).shard(), 3);
  EXPECT_EQ(ops::to_device(ops::to_device(ops::to_device(x, device(0)), device(1)), kHost).shard(), 3);
}

// After a blocking copy the caller may do to host memory as it likes.
TEST_P(CopyTest, ABlockingCopyIsThroughWithItsSource) {
  for (int i = 0; i < 20; ++i) {
    Array x = counting({1000});
    Array y = ops::to_device(x, device(0));
    std::fill_n(x.view().as<float>(), 1000, -1.0F);
    ASSERT_EQ(floats(ops::narrow(y, 7, 1)).at(0), 7);
  }
}

// A non-blocking copy holds host memory that its owner lets go, and is waited for by who reads its result.
TEST_P(CopyTest, NonBlockingCopiesHoldTheirMemory) {
  constexpr std::int64_t kMany = 1 << 16;
  std::vector<Array> copies;
  for (int i = 0; i < 20; ++i) {
    Array y = ops::to_device(counting({kMany}), device(0), {.non_blocking = true});
    copies.push_back(ops::to_device(ops::affine(y, 2, 0), Device(), {.non_blocking = true}));
  }
  for (const Array& t : copies) {
    Floats v = floats(t);
    EXPECT_EQ(v[5], 10);
    EXPECT_EQ(v[kMany - 1], 2.0F * (kMany - 1));
  }
}

TEST_P(CopyTest, AFailureArrivesWithTheCopy) {
  Array rows = ops::to_device(Array::from<std::int64_t>({0, 9}, {2, 1}), device(0));
  Array broken = ops::take_along_axis(ops::to_device(counting({3, 2}), device(0)), rows, 0);
  Array far = ops::to_device(broken, device(1), {.non_blocking = true});
  Array here = ops::to_device(far, Device(), {.non_blocking = true});
  EXPECT_THROW(here.wait(), TaskError);
  EXPECT_ERROR(ops::to_device(far, kHost), "take");
}

TEST_P(CopyTest, LayoutsAndTypesChangeOnTheWay) {
  Shape shape{2, 16, 3, 2};
  Array x = ops::to_device(counting(shape), device(0));
  for (Layout layout : {Layout::channels_last, Layout::blocked16}) {
    Array y = ops::to_layout(x, layout);
    EXPECT_EQ(y.layout(), layout);
    EXPECT_EQ(floats(y), floats(x));
    EXPECT_EQ(ops::to_device(y, device(1)).layout(), layout);
    EXPECT_EQ(ops::to_device(y, kHost).layout(), Layout::plain);
    EXPECT_EQ(ops::to_device(y, kHost).to_vector<float>(), floats(x));
    // 0 to 191 are bf16 numbers.
    Array half = ops::convert(y, DType::bf16, Layout::plain);
    EXPECT_EQ(floats(half), floats(x));
  }
  EXPECT_ERROR(ops::to_layout(ops::to_device(counting({2, 3, 1, 2}), device(0)), Layout::blocked16),
               "[2, 3, 1, 2] cannot be blocked16");
}

TEST_P(CopyTest, ALayoutThatOrdersEverythingAlikeIsNoCopy) {
  Array x = ops::to_device(counting({2, 32, 1, 1}), device(0));
  Array y = ops::to_layout(x, Layout::blocked16);
  EXPECT_EQ(y.storage(), x.storage());
  EXPECT_EQ(y.layout(), Layout::blocked16);
  EXPECT_EQ(ops::convert(x, DType::f32, Layout::plain).storage(), x.storage());
}

TEST_P(CopyTest, PartsOfAStorageMayBeCopied) {
  Array x = ops::to_device(counting({6}), device(0)), y = ops::to_device(Array::host({6}), device(1));
  ops::copy_(ops::narrow(x, 1, 2), ops::narrow(y, 3, 2));
  EXPECT_EQ(floats(y), (Floats{0, 0, 0, 1, 2, 0}));
}

TEST_P(CopyTest, Concatenate) {
  Array parts[] = {ops::to_device(counting({2, 3}), device(0)), ops::to_device(counting({0, 3}), device(0)),
                   ops::to_device(counting({1, 3}), device(1))};
  Floats expected{0, 1, 2, 3, 4, 5, 0, 1, 2};
  for (Device where : {device(0), device(1), Device()}) {
    Array all = ops::concatenate(parts, where);
    EXPECT_EQ(all.device(), where);
    EXPECT_EQ(all.shape(), (Shape{3, 3}));
    EXPECT_EQ(floats(all), expected);
  }
  parts[1] = ops::to_device(counting({2, 4}), device(0));
  EXPECT_ERROR(ops::concatenate(parts, device(0)),
               fmt::format("concatenate: [2, 4] f32 on {0} and [2, 3] f32 on {0}", device(0).name()));
  EXPECT_ERROR(ops::concatenate({}, device(0)), "concatenate: no arrays");
}

TEST_P(CopyTest, CopiesThatMakeNoSenseAreErrors) {
  Array x = counting({2});
  EXPECT_ERROR(ops::copy_(x, Array::host({3})), "copy: from [2] f32 on host to [3] f32 on host, expected the same");
  EXPECT_ERROR(ops::copy_(x, Array()), "undefined array");
  EXPECT_ERROR(ops::to_device(Array(), device(0)), "to: undefined array");
}

TEST_P(CopyTest, TheHostCopiesAtOnce) {
  const Array x = counting({2, 3}), y = Array::host({2, 3}, DType::f64);
  ops::copy_(x, y);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
}

TEST_P(CopyTest, CopyFromOverwritesInPlace) {
  const Array host = counting({2, 3}), x = ops::to_device(host, device(0));
  for (const CopyOptions options : {CopyOptions{}, CopyOptions{.non_blocking = true}}) {
    const Array near = ops::to_device(Array::host({2, 3}), device(0)),
                far = ops::to_device(Array::host({2, 3}), device(1)),
                back = ops::empty_host({2, 3}, DType::f32, device(1));
    ops::copy_(x, near, options);
    ops::copy_(near, far, options);
    ops::copy_(far, back, options);
    for (const Array& t : {near, far, back}) EXPECT_EQ(floats(t), floats(host));
    // Later operations see the new elements.
    const Array twice = ops::affine(far, 2, 0);
    ops::copy_(ops::affine(x, 0, 7), far, options);
    EXPECT_EQ(floats(twice), (Floats{0, 2, 4, 6, 8, 10}));
    EXPECT_EQ(floats(far), Floats(6, 7));
  }
  EXPECT_ERROR(ops::copy_(counting({3, 2}), x),
               fmt::format("copy: from [3, 2] f32 on host to [2, 3] f32 on {}", device(0).name()));
  EXPECT_ERROR(ops::copy_({}, x), "copy: undefined array");
}

TEST_P(CopyTest, OverlappingMemoryIsAnError) {
  const Array x = ops::to_device(counting({4}), device(0));
  ops::copy_(x, x);
  ops::copy_(ops::narrow(x, 0, 2), ops::narrow(x, 2, 2));
  EXPECT_EQ(floats(x), (Floats{0, 1, 0, 1}));
  EXPECT_ERROR(ops::copy_(ops::narrow(x, 0, 3), ops::narrow(x, 1, 3)),
               "which share some elements, expected separate memory");
  EXPECT_EQ(floats(x), (Floats{0, 1, 0, 1}));
}

TEST_P(CopyTest, DevicesOfTwoRuntimesAreAnError) {
  Runtime other;
  const Array x = ops::to_device(counting({4}), device(0)), y = ops::to_device(counting({4}), other.devices()[0]);
  EXPECT_ERROR(ops::copy_(x, y), "are devices of two Runtimes, expected one: copy to host memory in between");
  EXPECT_ERROR(ops::binary(BinaryOp::add, x, y),
               fmt::format("add: an input is on {} of another Runtime, expected it on {}", y.device().name(),
                           x.device().name()));
}

TEST_P(CopyTest, HostMemoryForADevice) {
  EXPECT_EQ(ops::empty_host({2, 3}, DType::bf16, device(0)).describe(), "[2, 3] bf16 on host");
  EXPECT_ERROR(ops::empty_host({2}, DType::f32, kHost), "empty_host: the tensor is in host memory");
  EXPECT_ERROR(ops::empty_host({-2}, DType::f32, device(0)), "shape: [-2] has a negative extent");
}

TEST_P(CopyTest, EachDirectionHasALaneOfItsOwn) {
  const auto trace = std::make_shared<Trace>();
  runtime_.engine().set_trace(trace);
  const Array x = ops::to_device(counting({4}), device(0)), y = ops::to_device(x, device(1), {.non_blocking = true});
  ops::to_device(y, kHost);
  ops::copy_(ops::affine(y, 2, 0), y);
  runtime_.synchronize();
  // By order of pushing: a device's clock is not exact enough to sort moments.
  std::vector<TraceRecord> records = trace->records();
  std::ranges::sort(records, {}, &TraceRecord::order);
  std::vector<std::string> ran;
  for (const TraceRecord& r : records) ran.push_back(r.name + ": " + runtime_.engine().lane_name({r.lane}));
  const std::string first(device(0).name()), second(device(1).name());
  EXPECT_EQ(ran, (std::vector<std::string>{"copy in: " + first + " copy in", "copy: " + first + " copy out",
                                           "copy out: " + second + " copy out", "affine: " + second + " compute 0",
                                           "copy: " + second + " compute 0"}));
}

// One device of two lanes.
class LanesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (lanes().size() < 2) GTEST_SKIP() << "this process has one core";
  }
  void TearDown() override { go(); }

  Device device() { return runtime_.devices()[0]; }
  const std::vector<LaneId>& lanes() { return state_of(device(), "test").compute_lanes; }
  Array zeros() { return ops::to_device(Array::host({4}), device()); }
  // y becomes 1, as soon as go() is called.
  void hold(const Array& y) {
    ops::launch("hold", {}, {y}, [this, y = y.view()](Backend&, KernelContext&) {
      go_.wait(false);
      std::fill_n(y.as<float>(), y.numel(), 1.0F);
    });
  }
  void go() {
    go_ = true;
    go_.notify_all();
  }

  std::atomic<bool> go_ = false;
  Runtime runtime_{{.cores_per_device = 2, .threads_per_shard = 1}};
};

// If both had one lane, the copy in would wait for the result and this test for ever.
TEST_F(LanesTest, CopiesInDoNotWaitBehindCopiesOut) {
  const Array y = zeros();
  hold(y);
  const Array out = ops::to_device(y, Device(), {.non_blocking = true});
  EXPECT_EQ(floats(ops::to_device(Array::from<float>({1, 2}, {2}), device())), (Floats{1, 2}));
  go();
  EXPECT_EQ(floats(out), Floats(4, 1));
}

// The lane of shard 0, which the first task holds, is not that of the others.
TEST_F(LanesTest, IndependentTasksSpread) {
  const Array y = zeros(), x = zeros();
  const InterOpParallelGuard spread;
  hold(y);
  EXPECT_EQ(floats(ops::affine(x, 1, 3)), Floats(4, 3));
  const Array z = ops::empty_like(x);
  ops::copy_(x, z);
  EXPECT_EQ(floats(z), Floats(4, 0));
  const Array after = ops::affine(y, 2, 1);
  go();
  EXPECT_EQ(floats(after), Floats(4, 3));
}

TEST_F(LanesTest, WithoutTheScopeALaneIsTheShards) {
  const Array y = zeros(), x = zeros();
  const auto trace = std::make_shared<Trace>();
  runtime_.engine().set_trace(trace);
  {
    const InterOpParallelGuard spread;
    const InterOpParallelGuard inner;
  }
  hold(y);
  ops::affine(x, 1, 3);
  ops::ShardScope second(1);
  ops::affine(x, 1, 3);
  go();
  runtime_.synchronize();
  int on_first = 0, on_second = 0;
  for (const TraceRecord& r : trace->records()) {
    on_first += LaneId{r.lane} == lanes()[0];
    on_second += LaneId{r.lane} == lanes()[1];
  }
  EXPECT_EQ(on_first, 2);
  EXPECT_EQ(on_second, 1);
}

// Memory that another lane still uses is not handed out where it would make independent tasks wait.
TEST_F(LanesTest, SpreadTasksDoNotWaitForFreedMemory) {
  Array x = zeros();
  const InterOpParallelGuard spread;
  Array y = ops::empty_like(x);
  const void* held = y.view().data;
  hold(y);
  y = {};
  const Array z = ops::affine(x, 1, 3);
  EXPECT_NE(z.view().data, held);
  EXPECT_EQ(floats(z), Floats(4, 3));
}

TEST(Reshape, InfersOneExtent) {
  const Array x = Array::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(ops::reshape(x, {3, -1}).shape(), (Shape{3, 2}));
  EXPECT_EQ(ops::reshape(x, {-1}).shape(), Shape{6});
  EXPECT_EQ(ops::reshape(x, {1, 6, 1}).storage(), x.storage());
  EXPECT_EQ(ops::reshape(x.with_shard(3), {6}).shard(), 3);
  EXPECT_EQ(ops::reshape(Array::host({0, 3}), {-1, 3}).shape(), (Shape{0, 3}));
  EXPECT_ERROR(ops::reshape(x, {4, -1}), "reshape: the 6 elements of [2, 3] do not fit shape [4, -1]");
  EXPECT_ERROR(ops::reshape(x, {5}), "reshape: the 6 elements of [2, 3] do not fit shape [5]");
  EXPECT_ERROR(ops::reshape(x, {-1, -1}), "reshape: extent -1 in [-1, -1]");
  EXPECT_ERROR(ops::reshape(Array(), {1}), "reshape: undefined array");
}

TEST_P(CopyTest, OnlyPlainElementsAreReshaped) {
  const Array x = ops::to_device(counting({2, 16, 3, 2}), device(0));
  for (Layout layout : {Layout::channels_last, Layout::blocked16}) {
    EXPECT_ERROR(ops::reshape(ops::to_layout(x, layout), {192}), "expected plain");
  }
}

TEST(Narrow, IsAHandleToRows) {
  const Array x = Array::from<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_EQ(floats(ops::narrow(x, 1, 2)), (Floats{3, 4, 5, 6}));
  EXPECT_EQ(floats(ops::narrow(ops::narrow(x, 1, 2), 1, 1)), (Floats{5, 6}));
  EXPECT_EQ(ops::narrow(x, 3, 0).numel(), 0);
  EXPECT_EQ(ops::narrow(x.with_shard(3), 0, 2).shard(), 3);
  EXPECT_ERROR(ops::narrow(x, 2, 2), "narrow: rows [2, 4) of an array with 3 rows");
  EXPECT_ERROR(ops::narrow(x, -1, 1), "narrow: rows [-1, 0)");
  EXPECT_ERROR(ops::narrow(Array::host({}), 0, 1), "narrow: the array has no axes");
}

TEST(Narrow, DoesNotOverflow) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 32, kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_ERROR(ops::narrow(Array::host({4}), 1, kMost), "of an array with 4 rows");
  EXPECT_ERROR(ops::narrow(Array::host({4}), kMost, 2), "of an array with 4 rows");
  EXPECT_ERROR(ops::reshape(Array::host({0}), {kHuge, kHuge, -1}), "more elements than can be counted");
}

}  // namespace
}  // namespace lockstep::testing
