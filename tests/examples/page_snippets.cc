// The C++ of docs/architecture.md, docs/automatic-parallelism.md, docs/distributed.md, and docs/your-data.md, compiled
// and, but for the last one, run. Tests compare the pages with this file.
#include <fmt/core.h>
#include <lockstep/lockstep.h>

#include <thread>

using namespace lockstep;

namespace {

void start_ranks() {
  // clang-format off
  spawn([](int rank) {
    auto group = init_process_group();
    std::vector<float> x{1, 2, 3};
    group->all_reduce({x.data(), x.size(), DType::f32}, ReduceOp::sum).wait();
    fmt::print("rank {}: {}\n", rank, x[0]);
    destroy_process_group(group);
  }, {.nprocs = 4});
  // clang-format on
}

void train_in_ranks() {
  const auto data = std::make_shared<TensorDataset>(std::vector{rand({24, 5}, {.seed = 0}), repeat(arange(2), {12})});
  // clang-format off
  spawn([&](int) {
    Job job;                                                      // the ranks meet
    Linear net(5, 2);                                             // on this rank's devices
    DistributedDataParallel ddp(net);
    Sgd optimizer(net.parameters(), {.lr = 0.1});
    DataLoader loader(data, {.batch_size = 8, .shuffle = true});  // the batches of the whole job
    for (auto [x, labels] : loader.on(ddp)) {                     // this rank's rows of each batch
      cross_entropy(ddp(x), labels).backward();
      optimizer.step();
    }
    job.close();
  }, {.nprocs = 4});
  // clang-format on
}

[[maybe_unused]] void sweep() {
  const auto run = [](double rate) {
    manual_seed(7);
    Sequential net(Linear(8, 32), ReLU(), Linear(32, 1));
    net.to(devices()[0]);  // each batch is a whole tensor
    Adam adam(net.parameters(), {.lr = rate});
    for (int step = 0; step < 100; ++step) {
      square(net(rand({32, 8}))).mean().backward();
      adam.step();
    }
  };
  std::jthread slow(run, 1e-4), fast(run, 1e-2);
}

[[maybe_unused]] void predict_with_a_run() {
  const Run model = load_run("runs/flowers");
  const DataExamples examples = open_examples("new", model.schema());
  for (const Example& batch : DataLoader(examples.data, {.batch_size = 64})) {
    Tensor probabilities = model(batch[0]);  // [N, classes]; for regression, values in the data's units
  }
}

void two_devices_at_once() {
  Device first = devices(2)[0], second = devices()[1];
  Tensor x0 = rand({256, 256}, {.device = first, .seed = 0});
  Tensor x1 = rand({256, 256}, {.device = second, .seed = 0});  // the same numbers
  std::vector<Tensor> y0, y1;
  for (int i = 0; i < 50; ++i) {
    y0.push_back(matmul(x0, x0));
    y1.push_back(matmul(x1, x1));
  }
  synchronize();
  check(y0.back().to_vector<float>() == y1.back().to_vector<float>(), "two devices computed different products");
}

void copies(const Tensor& x) {
  std::vector<Tensor> y, copies;
  for (int i = 0; i < 50; ++i) y.push_back(matmul(x, x));
  for (const Tensor& t : y) copies.push_back(t.to(kHost, {.non_blocking = true}));
  for (int i = 0; i < 50; ++i) copies.push_back(matmul(x, x).to(kHost, {.non_blocking = true}));
  const auto expected = y[0].to_vector<float>();
  for (const Tensor& copy : copies) check(copy.to_vector<float>() == expected, "a copy differs from the product");
}

void small_operations(const Tensor& x) {
  auto step = [&](const Tensor& y) { return matmul(y, x); };
  std::vector<Tensor> chains(4, x);
  {
    InterOpParallelGuard parallel;
    for (Tensor& y : chains) y = step(y);
  }
  const auto expected = matmul(x, x).to_vector<float>();
  for (const Tensor& y : chains) check(y.to_vector<float>() == expected, "a chain beside others has other bits");
}

// Returns the sum of the weights after a few steps.
float train(int count) {
  Runtime runtime({.devices = count});
  constexpr int V = 4;
  Linear net(5, 2);
  net.initialize(Xavier{});
  Sgd optimizer(net.parameters(), {.lr = 0.5});
  DataLoader loader(TensorDataset({rand({24, 5}, {.seed = 0}), repeat(arange(2), {12})}), {.batch_size = 8});
  for (auto [x, labels] : loader.on(net, {.shards = V})) {
    cross_entropy(net(x), labels).backward();
    optimizer.step();
  }
  return sum(net.weight).item();
}

}  // namespace

void onnx_files(Module& net) {
  export_onnx("model.onnx", net, rand({1, 3, 224, 224}));

  // u8 [N, H, W, C] -> the probabilities of the classes
  const auto forward = [&](std::span<const Tensor> in) {
    const Tensor x = permute(in[0].to(DType::f32), {0, 3, 1, 2}) / 255.0;
    return std::vector{softmax(net((x - 0.45) / 0.225))};
  };
  export_onnx("pixels.onnx", net, {zeros({1, 224, 224, 3}, {.dtype = DType::u8})}, forward,
              {.input_names = {"pixels"}, .output_names = {"probabilities"}});
}

int main() {
  start_ranks();
  std::fflush(stdout);
  train_in_ranks();
  two_devices_at_once();
  const Tensor x = rand({64, 64}, {.device = devices()[0]});
  copies(x);
  small_operations(x);
  Sequential net(Conv2d(3, 4, 7, {.stride = 8}), ReLU(), GlobalAvgPool2d(), Flatten(), Linear(4, 2));
  onnx_files(net);
  check(train(1) == train(2), "training differs on two devices");
  fmt::print("all snippets ran\n");
}
