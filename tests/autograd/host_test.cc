// Tensors in host memory: operations run at once, on the calling thread, and meet those of CPU devices.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Floats = std::vector<float>;

Floats floats(const Tensor& x) { return x.to_vector<float>(); }

class HostTest : public ::testing::Test {
 protected:
  Device device(std::size_t i = 0) const { return runtime_.devices()[i]; }
  // Until the promise is kept, nothing runs on the device's compute lane.
  std::promise<void> hold_up(Device device) {
    std::promise<void> gate;
    const LaneId lane = state_of(device, "test").compute_lanes[0];
    runtime_.engine().push(
        {.name = "gate", .lane = lane, .run = [open = gate.get_future().share()](const TaskContext&) { open.wait(); }});
    return gate;
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
};

std::vector<Tensor> several_operations(const Tensor& x, const Tensor& w, const Tensor& image, const Tensor& filter) {
  return {x * 2 + 1,
          matmul(x, w),
          softmax(matmul(x, w)),
          conv2d(image, filter, {}, {.padding = {1, 1}}),
          max_pool2d(image, {.kernel_size = 2}),
          layer_norm(x, {x.size(1)}),
          sum(exp(x), 0),
          mean(x),
          cat({x, x}, 1),
          transpose(x),
          pad(image, {1, 2, 3, 4}),
          cross_entropy(matmul(x, w), argmax(matmul(x, w), 1))};
}

// Arrays without elements have no memory.
TEST_F(HostTest, EmptyTensorsOfEveryType) {
  for (const DType from : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64, DType::u8, DType::boolean}) {
    const Tensor x = zeros({0, 3}, {.dtype = from});
    for (const DType to : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64, DType::u8, DType::boolean}) {
      EXPECT_EQ(cast(x, to).dtype(), to);
      EXPECT_EQ(cast(x, to).shape(), (Shape{0, 3}));
    }
    if (!is_floating(from)) continue;
    for (const Tensor& y : {x * 2 + 1, x + x, exp(x), relu(x), where(gt(x, 0), x, x), softmax(x), cat({x, x}, 0)}) {
      EXPECT_EQ(y.dtype(), from);
      EXPECT_EQ(y.numel(), 0);
    }
    EXPECT_EQ(cast(sum(x), DType::f32).item<float>(), 0);
    EXPECT_EQ(floats(cast(sum(x, 0), DType::f32)), (Floats{0, 0, 0}));
    EXPECT_EQ(floats(cast(matmul(zeros({2, 0}, {.dtype = from}), x), DType::f32)), Floats(6, 0));
  }
}

TEST_F(HostTest, ComputesTheBitsOfACpuDevice) {
  const Tensor x = randn({5, 40}, {.seed = 1}), w = randn({40, 70}, {.seed = 2});
  const Tensor image = randn({2, 3, 12, 12}, {.seed = 3}), filter = randn({8, 3, 3, 3}, {.seed = 4});
  const std::vector<Tensor> here = several_operations(x, w, image, filter);
  const std::vector<Tensor> there =
      several_operations(x.to(device()), w.to(device()), image.to(device()), filter.to(device()));
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(here[i].device(), kHost) << i;
    EXPECT_EQ(floats(here[i]), floats(there[i])) << i;
  }
}

TEST_F(HostTest, NeedsNoRuntime) {
  EXPECT_EQ(floats(ones({2}) * 2 + Tensor::from(Floats{1, 2}, {2})), (Floats{3, 4}));
  EXPECT_EQ(rand({3}, like(ones({3}))).device(), kHost);
  EXPECT_EQ(dropout(ones({64}), 0.5).device(), kHost);
  EXPECT_EQ(eye(2, {.dtype = DType::bf16}).to(DType::f32).to_vector<float>(), (Floats{1, 0, 0, 1}));
}

TEST_F(HostTest, ThrowsAKernelsFailureAtOnce) {
  const Tensor index = full({1}, 5, {.dtype = DType::i64});
  EXPECT_ERROR(index_select(ones({2}), 0, index), "on host: ");
  EXPECT_THROW(index_select(ones({2}), 0, index), TaskError);
}

TEST_F(HostTest, HasGradients) {
  const auto gradients = [](Tensor x, Tensor w) {
    x.set_requires_grad(true);
    w.set_requires_grad(true);
    const Tensor y = matmul(relu(x), w);
    (sum(y * y) + mean(x.narrow(1, 1, 2))).backward();
    return std::vector{x.grad(), w.grad()};
  };
  const Tensor x = randn({4, 3}, {.seed = 1}), w = randn({3, 5}, {.seed = 2});
  const auto here = gradients(x.detach(), w.detach()), there = gradients(x.to(device()), w.to(device()));
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(here[i].device(), kHost);
    EXPECT_EQ(floats(here[i]), floats(there[i])) << i;
  }
}

TEST_F(HostTest, ADeviceReadsHostMemoryWhereItIs) {
  Tensor constant = randn({4}, {.seed = 1});
  const Tensor x = randn({3, 4}, {.device = device(1), .seed = 2});
  const Floats expected = floats(x * constant.to(device(1)));
  for (const Tensor& y : {x * constant, constant * x}) {
    EXPECT_EQ(y.device(), device(1));
    EXPECT_EQ(floats(y), expected);
  }
  EXPECT_EQ(floats(where(gt(constant, 0), x, constant)),
            floats(where(gt(constant.to(device(1)), 0), x, constant.to(device(1)))));
  // It is not copied.
  const Array lent = ops::lend(constant->array(), device(1));
  EXPECT_EQ(lent.view().data, constant->view().data);
  EXPECT_ERROR(x + constant + ones({4}, {.device = device()}), "add: an input is on cpu:0, expected it on cpu:1");
}

TEST_F(HostTest, HostMemoryOutlivesTheHandleWhileADeviceReadsIt) {
  std::promise<void> gate = hold_up(device());
  Tensor y;
  {
    const Tensor constant = full({1000}, 3);
    y = ones({1000}, {.device = device()}) * constant;
  }
  const Tensor other = full({1000}, 7);  // would take its memory
  gate.set_value();
  EXPECT_EQ(floats(y), Floats(1000, 3));
}

TEST_F(HostTest, GradientsFlowToTheHost) {
  Tensor x = randn({3}, {.seed = 1});
  x.set_requires_grad(true);
  const Tensor w = randn({3}, {.device = device(), .seed = 2});
  sum(x * 2 * w).backward();
  EXPECT_EQ(x.grad().device(), kHost);
  EXPECT_EQ(floats(x.grad()), floats(w * 2));
}

TEST_F(HostTest, BesideAParameterTheParameterDecides) {
  Tensor w =
      replicated_tensor({full({2}, 3, {.device = device(0)})->array(), full({2}, 3, {.device = device(1)})->array()});
  w.set_requires_grad(true);
  const Tensor y = ones({2}) * w;
  EXPECT_EQ(y.device(), device());
  EXPECT_EQ(floats(y), Floats(2, 3));
  sum(y).backward();
  EXPECT_EQ(floats(w.grad()), Floats(2, 1));
}

TEST_F(HostTest, BesideABatchItIsAConstant) {
  const auto at =
      std::make_shared<Placement>(std::vector<std::int64_t>{2, 1}, std::vector<Slot>{{0, device(0)}, {1, device(1)}});
  Tensor scale = Tensor::from(Floats{1, 2}, {2});
  scale.set_requires_grad(true);
  const Tensor y = scatter(ones({3, 2}), at) * scale;
  EXPECT_EQ(y->kind, Kind::cut);
  sum(y).backward();
  EXPECT_EQ(floats(scale.grad()), Floats(2, 3));
}

TEST_F(HostTest, WritingWaitsForReaders) {
  Tensor constant = full({100}, 3);
  std::promise<void> gate = hold_up(device());
  const Tensor y = ones({100}, {.device = device()}) * constant;
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.set_value();
  });
  constant.copy_from(full({100}, 5));
  opens.join();
  EXPECT_EQ(floats(constant), Floats(100, 5));
  EXPECT_EQ(floats(y), Floats(100, 3));
}

TEST_F(HostTest, ReadingWaitsForWriters) {
  std::promise<void> gate = hold_up(device());
  const Tensor y = (ones({100}, {.device = device()}) * 3).to(kHost, {.non_blocking = true});
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.set_value();
  });
  EXPECT_EQ(floats(y + 1), Floats(100, 4));
  opens.join();
}

TEST_F(HostTest, AFailedCopyIsToldToReadersUntilAllIsWrittenAnew) {
  const Tensor bad =
      index_select(ones({2}, {.device = device()}), 0, full({4}, 5, {.dtype = DType::i64, .device = device()}));
  const Tensor y = bad.to(kHost, {.non_blocking = true});
  EXPECT_ERROR(y + 1, "take");
  y.copy_from(ones({4}));
  EXPECT_EQ(floats(y + 1), Floats(4, 2));
}

TEST_F(HostTest, AChangeInPlaceIsDetected) {
  for (const Device place : {kHost, device()}) {
    Tensor w = ones({2}, {.device = place});
    w.set_requires_grad(true);
    const Tensor constant = full({2}, 3);
    const Tensor y = sum(w * constant);
    constant.copy_from(full({2}, 4));
    EXPECT_ERROR(y.backward(), "changed in place after forward");
  }
}

TEST_F(HostTest, ThreadsComputeAtOnce) {
  const Tensor x = randn({33, 65}, {.seed = 1}), w = randn({65, 33}, {.seed = 2});
  const Floats expected = floats(softmax(matmul(x, w)));
  std::vector<std::thread> threads;
  std::vector<Floats> found(4);
  for (Floats& each : found) {
    threads.emplace_back([&each, &x, &w] {
      for (int i = 0; i < 20; ++i) each = floats(softmax(matmul(x, w)));
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(floats(x.to(device()) + x), floats(x + x));
  for (std::thread& thread : threads) thread.join();
  for (const Floats& each : found) EXPECT_EQ(each, expected);
}

}  // namespace
}  // namespace lockstep::testing
