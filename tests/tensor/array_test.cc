#include "lockstep/tensor/array.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lockstep/engine/engine.h"
#include "lockstep/tensor/storage.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

using Floats = std::vector<float>;

TEST(Array, FromKeepsElementsInPlainOrder) {
  Array t = Array::from<std::int64_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(t.shape(), (Shape{2, 3}));
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_EQ(t.numel(), 6);
  EXPECT_EQ(t.dtype(), DType::i64);
  EXPECT_EQ(t.layout(), Layout::plain);
  EXPECT_TRUE(t.device().is_host());
  EXPECT_EQ(t.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(t.describe(), "[2, 3] i64 on host");
  EXPECT_ERROR(Array::from<float>({1, 2}, {3}), "array: 2 values for shape [3]");
  EXPECT_ERROR(Array::host({2, -1}), "shape: [2, -1] has a negative extent");
  EXPECT_EQ(Array::host({3}).to_vector<float>(), (Floats{0, 0, 0}));
}

TEST(Array, CopiesAreHandles) {
  Array a = Array::host({2}), b = a;
  *b.view().as<float>() = 5;
  EXPECT_EQ(a.to_vector<float>(), (Floats{5, 0}));
  EXPECT_FALSE(Array().defined());
  EXPECT_EQ(Array().describe(), "undefined");
}

TEST(Array, ReadsItsOwnTypeAndBf16AndF16AsF32) {
  Array t = Array::from<BFloat16>({BFloat16(1.5F), BFloat16(-2.0F)}, {2});
  EXPECT_EQ(t.to_vector<float>(), (Floats{1.5, -2}));
  Array half = Array::from<Float16>({Float16(1.5F), Float16(65504.0F)}, {2});
  EXPECT_EQ(half.to_vector<float>(), (Floats{1.5, 65504}));
  EXPECT_EQ(half.to_vector<Float16>()[0].bits, 0x3e00);
  EXPECT_ERROR(t.to_vector<double>(), "to_vector: the elements are bf16, requested as f64");
  EXPECT_ERROR(Array::host({1}, DType::f64).to_vector<float>(),
               "are f64, requested as f32: name their type, as in item<double>()");
  EXPECT_ERROR(Array::host({1}).item<double>(), "are f32, requested as f64: name their type, as in item<float>()");
  EXPECT_ERROR(Array::host({1}, DType::i64).item(), "name their type, as in item<std::int64_t>()");
  EXPECT_ERROR(Array::host({1}, DType::u8).item(), "name their type, as in item<std::uint8_t>()");
  EXPECT_EQ((Array::from<std::uint8_t>({7}, {1, 1}).item<std::uint8_t>()), 7);
  EXPECT_ERROR(Array::host({2}).item<float>(), "item: 2 elements, expected 1");
  EXPECT_ERROR(Array().to_vector<float>(), "undefined array");
}

// Rows of 16 channels, written element by element where offset4() says they lie.
TEST(Array, ReadsEveryLayoutInPlainOrder) {
  const Shape shape{2, 16, 3, 2};
  Floats expected(static_cast<std::size_t>(shape.numel()));
  std::iota(expected.begin(), expected.end(), 0.0F);
  for (Layout layout : {Layout::plain, Layout::channels_last, Layout::blocked16}) {
    const auto storage = make_host_storage(expected.size() * sizeof(float));
    const Array x(storage, {storage->data, DType::f32, layout, shape});
    float next = 0;
    for (std::int64_t n = 0; n < 2; ++n) {
      for (std::int64_t c = 0; c < 16; ++c) {
        for (std::int64_t h = 0; h < 3; ++h) {
          for (std::int64_t w = 0; w < 2; ++w) x.view().as<float>()[offset4(layout, shape, n, c, h, w)] = next++;
        }
      }
    }
    EXPECT_EQ(x.to_vector<float>(), expected) << name(layout);
  }
}

TEST(Array, OfAnotherMemoryIsNotRead) {
  DeviceInfo gpu;
  gpu.kind = DeviceKind::cuda;
  gpu.name = "cuda:0";
  const Array host = Array::host({2});
  host.storage()->device = Device(&gpu);
  EXPECT_ERROR(host.to_vector<float>(),
               "to_vector: the array is [2] f32 on cuda:0, expected memory that the host can read");
}

TEST(Array, ReadingWaitsForTheTaskThatWrites) {
  const Array x = Array::host({1});
  x.storage()->engine = std::make_shared<Engine>();
  x.storage()->resource = x.storage()->engine->make_resource();
  const LaneId lane = x.storage()->engine->add_lane({.name = "compute"});
  Task task{.name = "write", .lane = lane};
  task.writes.push_back(x.resource());
  task.run = [at = x.view().as<float>()](const TaskContext&) { *at = 7; };
  x.storage()->engine->push(std::move(task));
  EXPECT_EQ(x.item(), 7);
  Task broken{.name = "break", .lane = lane};
  broken.writes.push_back(x.resource());
  broken.run = [](const TaskContext&) { fail("it broke"); };
  x.storage()->engine->push(std::move(broken));
  EXPECT_ERROR(x.item(), "break on compute: it broke");
}

TEST(Array, ShardsTravelWithHandles) {
  const Array t = Array::host({4, 2});
  EXPECT_EQ(t.shard(), -1);
  EXPECT_EQ(t.with_shard(3).shard(), 3);
}

}  // namespace
}  // namespace lockstep::testing
