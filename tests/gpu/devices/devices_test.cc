// GPUs, or logical devices of one GPU, together with CPU devices in one Runtime.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <thread>

#include "lockstep/autograd/dlpack.h"
#include "lockstep/autograd/dlpack_abi.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/device/gpu.h"
#include "lockstep/engine/trace.h"
#include "lockstep/models/lenet.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/matmul.h"
#include "lockstep/ops/softmax.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/recorded_step.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/train/evaluate.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Floats = std::vector<float>;

Array counting(const Shape& shape) {
  Floats v(static_cast<std::size_t>(shape.numel()));
  std::iota(v.begin(), v.end(), 0.0F);
  return Array::from(v, shape);
}

class GpuTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (find_gpus().gpus.empty()) GTEST_SKIP() << "no GPU: " << find_gpus().why_none;
    runtime_ = std::make_unique<Runtime>(
        RuntimeOptions{.cpu_devices = 2, .threads_per_shard = 1, .serial = GetParam(), .cuda_logical = 2});
    a_ = runtime_->device("cuda:0/0"), b_ = runtime_->device("cuda:0/1"), cpu_ = runtime_->device("cpu:1");
  }

  std::unique_ptr<Runtime> runtime_;
  Device a_, b_, cpu_;
};

INSTANTIATE_TEST_SUITE_P(Engines, GpuTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "serial" : "threaded"; });

// The memory goes to another library and comes back; tasks may still use it when the last handle ends.
TEST_P(GpuTest, DlpackSharesGpuMemory) {
  const Tensor x = Tensor(counting({2, 3})).to(a_) * 2;
  DLManagedTensor* const m = to_dlpack(x);
  EXPECT_EQ(m->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(m->dl_tensor.device.device_id, 0);
  EXPECT_ERROR(from_dlpack(m, cpu_), "the memory is on GPU 0, expected it on cpu:1");
  Tensor y;
  {
    const Tensor back = from_dlpack(m, a_);
    EXPECT_EQ(back->view().data, x->view().data);
    y = back + 1;
  }
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 3, 5, 7, 9, 11}));
}

TEST_P(GpuTest, TheRuntimeHasBothKinds) {
  EXPECT_EQ(str(runtime_->devices()), "[cuda:0/0, cuda:0/1]");
  EXPECT_EQ(str(runtime_->devices("cpu")), "[cpu:0, cpu:1]");
  EXPECT_EQ(str(runtime_->devices("cuda:0/1,cpu:0")), "[cuda:0/1, cpu:0]");
  EXPECT_EQ(a_.kind(), DeviceKind::cuda);
  EXPECT_FALSE(a_.host_visible());
  EXPECT_GT(a_.info()->memory_bytes, 0U);
  EXPECT_FALSE(a_.info()->model.empty());
  EXPECT_FALSE(a_.info()->cpus.empty());
  EXPECT_ERROR(runtime_->device("cuda:0"), "expected one of [cuda:0/0, cuda:0/1, cpu:0, cpu:1]");
}

TEST_P(GpuTest, CopiesGoEverywhereAndBack) {
  for (const Shape& shape : {Shape{3, 5}, Shape{0, 4}, Shape{1, 1}, Shape{257, 1031}}) {
    const Array x = counting(shape);
    Array t = x;
    for (Device device : {a_, Device(), a_, b_, a_, cpu_, b_, cpu_, Device(), b_, Device()}) {
      t = ops::to_device(t, device);
      EXPECT_EQ(t.device(), device);
    }
    EXPECT_EQ(t.to_vector<float>(), x.to_vector<float>());
    EXPECT_EQ(ops::host_readable(ops::to_device(x, a_)).to_vector<float>(), x.to_vector<float>());
    EXPECT_ERROR(ops::to_device(x, a_).to_vector<float>(), "expected memory that the host can read");
  }
}

TEST_P(GpuTest, CopiesConvert) {
  const Shape shape{2, 16, 3, 5};
  const Array x = counting(shape);
  for (Device device : {a_, cpu_, Device()}) {
    Array from = ops::to_device(x, device);
    Array on_gpu = ops::empty(shape, DType::bf16, b_, Layout::channels_last);
    ops::copy_(from, on_gpu);
    Array back = device.is_host() ? Array::host(shape, DType::f64) : ops::empty(shape, DType::f64, device);
    ops::copy_(on_gpu, back);
    Floats expected = x.to_vector<float>();
    for (float& v : expected) v = static_cast<float>(BFloat16(v));
    EXPECT_EQ(values(device.is_host() ? ops::to_device(back, cpu_) : back),
              std::vector<double>(expected.begin(), expected.end()));
  }
}

// Changes to the host's memory after a call must not affect the copy, however late the GPU is.
TEST_P(GpuTest, BlockingCopiesAreThroughWithTheirSource) {
  for (int i = 0; i < 10; ++i) {
    Array x = counting({1000});
    Tensor y = ops::to_device(x, a_);
    std::fill_n(x.view().as<float>(), 1000, -1.0F);
    EXPECT_EQ(y.to_vector<float>(), counting({1000}).to_vector<float>());
  }
}

TEST_P(GpuTest, PinnedMemoryIsCopiedWithoutWaiting) {
  for (int i = 0; i < 10; ++i) {
    Tensor x = Tensor(counting({1000})).pin(a_);
    EXPECT_TRUE(x.device().is_host());
    EXPECT_EQ(x.to_vector<float>(), counting({1000}).to_vector<float>());
    Tensor y = x.to(a_, {.non_blocking = true});
    // Its memory gets another user at once, which must wait for the copy.
    x = Tensor();
    Tensor other = Tensor::host({1000}).pin(a_);
    Tensor back = y.to(Device(), {.non_blocking = true});
    EXPECT_EQ(back.to_vector<float>(), counting({1000}).to_vector<float>());
    EXPECT_EQ(other.to_vector<float>(), Floats(1000, 0));
  }
  Tensor on_cpu = counting({4});
  EXPECT_EQ(on_cpu.pin(cpu_)->storage(), on_cpu->storage());
}

TEST_P(GpuTest, PinnedMemoryOutlivesItsRuntime) {
  Tensor x = Tensor(counting({64})).pin(a_);
  runtime_ = std::make_unique<Runtime>(RuntimeOptions{.cuda_logical = 1});
  EXPECT_EQ(x.to_vector<float>(), counting({64}).to_vector<float>());
  EXPECT_ERROR(x.to(runtime_->devices()[0]), "pinned for a device of another runtime");
}

TEST_P(GpuTest, PartsOfTensorsAreCopied) {
  Tensor all = ops::to_device(counting({6, 3}), a_);
  all.narrow(0, 2, 2).copy_from(Tensor::from(Floats(6, -1), {2, 3}));
  all.narrow(0, 5, 1).copy_from(Tensor::from(Floats(3, -2), {1, 3}).to(b_));
  Floats expected = counting({6, 3}).to_vector<float>();
  std::fill_n(expected.begin() + 6, 6, -1.0F);
  std::fill_n(expected.begin() + 15, 3, -2.0F);
  EXPECT_EQ(all.to_vector<float>(), expected);
  EXPECT_EQ(all.narrow(0, 1, 2).to(cpu_).to_vector<float>(), Floats(expected.begin() + 3, expected.begin() + 9));
}

TEST_P(GpuTest, WorkWaitsForCopiesAndCopiesForWork) {
  Tensor x = Tensor(counting({64, 64})).to(a_);
  for (int i = 0; i < 8; ++i) {
    const Tensor y = x + 1, away = y.to(i % 2 == 0 ? b_ : cpu_, {.non_blocking = true}) - 1;
    x = away.to(a_, {.non_blocking = true});
  }
  EXPECT_EQ(x.to_vector<float>(), counting({64, 64}).to_vector<float>());
}

TEST_P(GpuTest, BadLabelsAreNamed) {
  Array logits = ops::to_device(Array::host({3, 10}), a_);
  Array labels = ops::to_device(Array::from(std::vector<std::int64_t>{1, 12, 3}, {3}), a_);
  Tensor loss = ops::cross_entropy(logits, labels);
  EXPECT_ERROR(loss.to_vector<float>(), "cross entropy");
  EXPECT_ERROR(loss.to_vector<float>(), "label 12 of sample 1 is outside [0, 10)");
  // The device continues to work.
  Array good = ops::to_device(Array::from(std::vector<std::int64_t>{1, 2, 3}, {3}), a_);
  EXPECT_NEAR(Tensor(ops::cross_entropy_mean(ops::cross_entropy(logits, good))).item(), std::log(10.0), 1e-6);
  try {
    runtime_->synchronize();
  } catch (const Error&) {
  }
}

// The predictions lie on the GPU, where the host cannot read them.
TEST_P(GpuTest, EvaluationCountsWhatACpuCounts) {
  std::vector<std::int64_t> labels(20);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i) % 3;
  const auto data = std::make_shared<TensorDataset>(
      std::vector<Tensor>{Tensor(Random(1).floats({20, 4})), Tensor::from(labels, {20})});
  DataLoader loader(data, {.batch_size = 8});
  const auto count_on = [&](Device device) {
    Linear net({.in_features = 4, .out_features = 3});
    net.initialize(Xavier{}, {device}, {.seed = 3});
    const EvaluateOptions options{.devices = {device}, .split = {.shards = 2}};
    const Accuracy found = evaluate(net, loader, options);
    EXPECT_EQ(misclassified(net, loader, options).size(), static_cast<std::size_t>(found.total - found.correct));
    return found.correct;
  };
  EXPECT_EQ(count_on(a_), count_on(cpu_));
}

TEST_P(GpuTest, OutOfMemorySaysWhoHoldsWhat) {
  Runtime small({.cuda_logical = 2, .cuda_memory_limit = 1 << 20});
  Array held = ops::empty({1 << 16}, DType::f32, small.devices()[1]);
  EXPECT_ERROR(ops::empty({1 << 18}, DType::f32, small.devices()[1]),
               "cuda:0/1: out of memory: 1048576 bytes requested, 262144 of at most 1048576 are in use, "
               "262144 of them held");
}

TEST_P(GpuTest, MemoryOfKernelsCounts) {
  Runtime small({.serial = GetParam(), .cuda_logical = 1, .cuda_memory_limit = 1 << 20});
  const Device gpu = small.devices()[0];
  const Array labels = Array::from(std::vector<std::int64_t>{1, 2, 3}, {3});
  ops::cross_entropy(ops::to_device(Array::host({3, 10}), gpu), ops::to_device(labels, gpu));
  small.synchronize();
  const MemoryCounters memory = small.memory(gpu);
  EXPECT_GT(memory.scratch_bytes, 0U);
  EXPECT_ERROR(ops::empty({1 << 18}, DType::f32, gpu), fmt::format("{} by kernels", memory.scratch_bytes));
}

TEST_P(GpuTest, TheTimelineHasTheTasksOfAllLanes) {
  auto trace = std::make_shared<Trace>();
  runtime_->engine().set_trace(trace);
  Array x = ops::to_device(counting({32, 32}), a_);
  ops::to_device(ops::to_device(ops::matmul(x, x), b_, {.non_blocking = true}), kHost);
  runtime_->synchronize();
  runtime_->engine().set_trace(nullptr);
  std::vector<std::string> names;
  for (const TraceRecord& r : trace->records()) {
    names.push_back(r.name);
    EXPECT_LE(r.begin_ns, r.end_ns) << r.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"copy in", "matmul", "copy", "copy out"}));
}

// A graph is one task. The timeline shows its parts, on their lanes, at each repetition.
TEST_P(GpuTest, TheTimelineHasThePartsOfARecordedStep) {
  RecordedStep step([&](std::span<const Tensor> in) {
    const Tensor y = matmul(in[0], in[0]);
    return std::vector{relu(y.to(b_, {.non_blocking = true}))};
  });
  const Tensor x = ops::to_device(counting({8, 8}), a_);
  for (int i = 0; i < 4; ++i) step.run(std::vector{x});
  ASSERT_EQ(step.why_no_graph(), "");
  runtime_->synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // the streams move their bases
  constexpr int kRounds = 7;                                    // more than the number of graphs with times
  constexpr std::int64_t kClocksDiffer = 10'000'000;            // far more than comparing two clocks takes
  auto trace = std::make_shared<Trace>();
  runtime_->engine().set_trace(trace);
  for (int i = 0; i < kRounds; ++i) step.run(std::vector{x});
  runtime_->synchronize();
  runtime_->engine().set_trace(nullptr);
  std::map<std::string, int> count;
  std::map<std::string, std::string> device;
  for (const TraceRecord& r : trace->records()) {
    if (r.name != "matmul" && r.name != "copy" && r.name != "relu") continue;
    device[r.name] = trace->lanes()[static_cast<std::size_t>(r.lane)].device;
    EXPECT_GT(r.begin_ns, -kClocksDiffer);
    EXPECT_LE(r.begin_ns, r.end_ns);
    EXPECT_LE(r.end_ns, trace->elapsed_ns() + kClocksDiffer);
    ++count[r.name];
  }
  EXPECT_EQ(count["matmul"], kRounds);
  EXPECT_EQ(count["relu"], kRounds);
  EXPECT_EQ(count["copy"], 3 * kRounds);  // one in the step, and those of its input and output
  EXPECT_EQ(device["matmul"], "cuda:0/0");
  EXPECT_EQ(device["relu"], "cuda:0/1");
  for (const TraceRecord& r : trace->records()) EXPECT_NE(r.name, "recorded step");
}

// Losses of a few steps.
Floats train(const std::vector<Device>& devices, const std::function<std::unique_ptr<Sequential>()>& make, int shards,
             DType dtype, double lr) {
  auto net = make();
  net->initialize(Xavier{}, devices, {.seed = 3});
  Sgd optimizer(net->parameters(), {.lr = lr, .momentum = 0.9});
  Random random(7);
  Floats losses;
  for (int step = 0; step < 3; ++step) {
    std::vector<std::int64_t> labels(12);
    for (std::int64_t& label : labels) label = random.integer(0, 9);
    Tensor x = split_and_load(random.floats({12, 1, 28, 28}), devices, {.shards = shards});
    Tensor y = split_and_load(Tensor::from(labels, {12}), devices, {.shards = shards});
    Tensor loss = cross_entropy((*net)(x.to(dtype)), y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

TEST_P(GpuTest, TrainingIsThatOfTheCpu) {
  using Make = std::function<std::unique_ptr<Sequential>()>;
  for (const Make& make : {Make([] { return mlp(); }), Make([] { return lenet(); })}) {
    const Floats expected = train({cpu_}, make, 3, DType::f32, 0.05);
    const Floats one = train({a_}, make, 3, DType::f32, 0.05), two = train({a_, b_}, make, 3, DType::f32, 0.05);
    EXPECT_EQ(one, two);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(one[i], expected[i], 1e-4 * expected[i]) << i;
    for (const auto& [dtype, tolerance] : {std::pair{DType::bf16, 2e-2}, {DType::f16, 2.5e-3}}) {
      const Floats rounded = train({a_}, make, 3, dtype, 0.05);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(rounded[i], expected[i], tolerance * expected[i]) << i;
    }
  }
}

// Shards of one model run on a GPU and on the CPU, and their gradients meet.
TEST_P(GpuTest, CpuAndGpuTrainTogether) {
  auto make = [] { return lenet(); };
  const Floats expected = train({cpu_}, make, 4, DType::f32, 0.05), both = train({a_, cpu_}, make, 4, DType::f32, 0.05);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(both[i], expected[i], 1e-4 * expected[i]) << i;
}

// A graph with more than shards' tensors: a batch norm over all of them, a penalty that counts once, and loss scales.
struct Penalized {
  Floats losses;
  std::string weights;
  bool operator==(const Penalized&) const = default;
};

Penalized train_penalized(const std::vector<Device>& devices, bool scaled) {
  Sequential net;
  net.append<Conv2d>(ConvLayerOptions{.out_channels = 4, .kernel_size = 3, .padding = 1});
  net.append<BatchNorm2d>(BatchNorm2dOptions{.synchronized = true}).append<ReLU>();
  net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 3});
  net.initialize(Xavier{}, devices, {.seed = 3});
  Sgd optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  LossScaler scaler(devices, {.initial_scale = 1024});
  Random random(7);
  Penalized found;
  for (int step = 0; step < 4; ++step) {
    const Tensor x = split_and_load(random.floats({7, 1, 6, 6}), devices, {.shards = 3});
    const Tensor y = split_and_load(random.floats({7, 3}), devices, {.shards = 3});
    const Tensor loss = mse_loss(net(x), y);
    const auto scales = scaled ? scaler.scales() : std::span<const Array>();
    Tensor penalty;
    for (const Parameter& p : net.parameters()) {
      const Tensor squares = sum(square(p)) * 0.01;
      penalty = penalty.defined() ? penalty + squares : squares;
    }
    // The penalty is in the loss, and every other time separate.
    if (step % 2 == 0) {
      (loss + penalty).backward({.scales = scales});
    } else {
      loss.backward({.scales = scales});
      penalty.backward({.scales = scales});
    }
    if (scaled) optimizer.unscale(scaler, 0);
    optimizer.step();
    found.losses.push_back((loss + penalty).item<float>());
  }
  found.weights = weights_sha256(net);
  return found;
}

TEST_P(GpuTest, PenaltiesSynchronizedNormsAndLossScalesDependOnNoNumberOfDevices) {
  const Penalized one = train_penalized({a_}, false);
  EXPECT_EQ(train_penalized({a_, b_}, false), one);
  // Scaling by a power of two is exact in both directions.
  EXPECT_EQ(train_penalized({a_}, true), one);
  EXPECT_EQ(train_penalized({a_, b_}, true), one);
  const Floats cpu = train_penalized({cpu_}, false).losses, both = train_penalized({cpu_, b_}, true).losses;
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_NEAR(one.losses[i], cpu[i], 1e-4 * cpu[i]) << i;
    EXPECT_NEAR(both[i], cpu[i], 1e-4 * cpu[i]) << i;
  }
}

// Replicas of a parameter stay equal although devices of two kinds compute a penalty's gradient.
TEST_P(GpuTest, ReplicasOnCpuAndGpuStayEqual) {
  const std::vector<Device> devices{cpu_, a_};
  Parameter p(ParameterOptions{.shape = {64}});
  p.initialize("p", devices, Uniform{}, 1);
  Sgd optimizer({p}, {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    sum(exp(tanh(Tensor(p)))).backward();
    optimizer.step();
  }
  EXPECT_EQ(values(p.data(cpu_)), values(p.data(a_)));
}

TEST(DeviceListTest, SaysWhatARuntimeNeeds) {
  DeviceList list = parse_device_list("cpu:2,cuda:1/0,cuda:0/3");
  EXPECT_EQ(list.count, 3);
  EXPECT_EQ(list.options.cpu_devices, 3);
  EXPECT_EQ(list.options.cuda, (std::vector<int>{1, 0}));
  EXPECT_EQ(list.options.cuda_logical, 4);
  list = parse_device_list("cuda:1");
  EXPECT_EQ(list.options.cuda, std::vector<int>{1});
  EXPECT_EQ(list.options.cuda_logical, 0);
  for (const char* bad :
       {"", "cuda", "cuda:", "cuda:x", "cuda:0/", "cuda:0/x", "cuda:-1", "cpu:0,", "gpu:0", "cuda:0,cuda:0/0"}) {
    EXPECT_THROW(parse_device_list(bad), Error) << bad;
  }
}

TEST(MissingGpuTest, IsNamed) { EXPECT_ERROR(Runtime({.cuda = {63}}), "cuda:63 requested"); }

}  // namespace
}  // namespace lockstep::testing
