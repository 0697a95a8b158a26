// The exercises of "Automatic Parallelism" in Dive into Deep Learning: operations that run in parallel on one device,
// computation beside communication on two, and a graph of many dependencies.
//
//   parallel_operations
//   parallel_operations --devices cuda:0,cuda:1
#include <fmt/core.h>
#include <lockstep/autograd/functions.h>
#include <lockstep/base/random.h>
#include <lockstep/nn/initializers.h>
#include <lockstep/nn/linear.h>
#include <lockstep/ops/inter_op_parallel_guard.h>
#include <lockstep/optim/sgd.h>
#include <lockstep/parallel/split.h>

#include <chrono>

#include "device_options.h"

using namespace lockstep;

namespace {

struct Options : DeviceOptions {
  std::int64_t size = 384;
  int count = 20;
};

// Describes the work, waits for its end, and returns the seconds of the fastest of three times.
template <typename Work>
double seconds(Runtime& runtime, Work work) {
  double fastest = 0;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Tensor> results = work();
    runtime.synchronize();
    const double time = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    fastest = i == 0 ? time : std::min(fastest, time);
  }
  return fastest;
}

void check_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b, std::string_view what) {
  check(a.size() == b.size(), "{}: {} results and {}", what, a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    check(a[i].to_vector<float>() == b[i].to_vector<float>(), "{}: results differ", what);
  }
}

// Eight chains of products, without a dependency between two of them.
std::vector<Tensor> chains(const Tensor& x, int length) {
  std::vector<Tensor> y(8, x);
  for (int i = 0; i < length; ++i) {
    for (Tensor& chain : y) chain = matmul(chain, x);
  }
  return y;
}

// Exercises 1 and 2, on one device: one chain after the other, on one core and on all, and several chains at once.
void one_device(std::int64_t size, int length) {
  Runtime one_core({.devices = "cpu:0", .threads_per_shard = 1});  // a compute lane for each core; one is used
  Runtime all_cores({.devices = "cpu:0", .threads_per_shard = 0});
  // Rows whose sums are about 1, so that long products stay finite.
  auto matrix = [&](Runtime& runtime) {
    return rand({size, size}, {.device = runtime.devices()[0], .seed = 0}) * (2.0 / static_cast<double>(size));
  };
  const Tensor x = matrix(one_core), z = matrix(all_cores);
  auto in_parallel = [&] {
    InterOpParallelGuard parallel;
    return chains(x, length);
  };
  check_equal(in_parallel(), chains(x, length), "chains in parallel");
  check_equal(chains(z, length), chains(x, length), "chains on all cores");
  fmt::print(
      "8 chains of {} products of {} x {}: on one core {:.4f} sec, each on all cores {:.4f} sec, in parallel {:.4f} "
      "sec\n",
      length, size, size, seconds(one_core, [&] { return chains(x, length); }),
      seconds(all_cores, [&] { return chains(z, length); }), seconds(one_core, in_parallel));
}

// Exercise 3: each device computes, then sums its results with those of the other one.
void two_devices(const Options& o) {
  Runtime runtime(o.runtime());
  const Device first = runtime.devices().front(), second = runtime.devices().back();
  const Tensor x = rand({o.size, o.size}, {.device = first});
  const std::vector<Tensor> start{x, x.to(second)};
  auto products = [&](const Tensor& of) {
    std::vector<Tensor> y;
    for (int i = 0; i < o.count; ++i) y.push_back(matmul(of, of) * i);
    return y;
  };
  auto compute = [&] {
    std::vector<Tensor> a = products(start[0]), b = products(start[1]);
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const std::vector<Tensor> a = products(start[0]), b = products(start[1]);
  auto sums = [&](const std::vector<Tensor>& on_first, const std::vector<Tensor>& on_second) {
    std::vector<Tensor> y;
    for (std::size_t i = 0; i < on_first.size(); ++i) {
      y.push_back(on_first[i] + on_second[i].to(first, {.non_blocking = true}));
      y.push_back(on_second[i] + on_first[i].to(second, {.non_blocking = true}));
    }
    return y;
  };
  fmt::print("products on {} and {}: {:.4f} sec\n", first.name(), second.name(), seconds(runtime, compute));
  fmt::print("sums of both on both: {:.4f} sec\n", seconds(runtime, [&] { return sums(a, b); }));
  std::vector<Tensor> y;
  fmt::print("products and sums: {:.4f} sec\n",
             seconds(runtime, [&] { return y = sums(products(start[0]), products(start[1])); }));
  for (std::size_t i = 0; i < y.size(); i += 2) check_equal({y[i]}, {y[i + 1]}, "sums on two devices");
}

// Exercise 5: node i is (a b + c) / 2 of three earlier nodes, wherever these are.
std::vector<Tensor> graph(const std::vector<Device>& devices, const Options& o) {
  std::vector<Tensor> nodes;
  for (std::uint64_t i = 0; i < 4; ++i) nodes.push_back(rand({o.size, o.size}, {.device = devices[0], .seed = i}));
  const RandomKey key = random_key(7, {});
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(4 * o.count); ++i) {
    const Device device = devices[i % devices.size()];
    auto earlier = [&](std::uint64_t operand) {
      const auto k = random_below(key, 3 * i + operand, nodes.size());
      return nodes[static_cast<std::size_t>(k)].to(device, {.non_blocking = true});
    };
    const Tensor a = earlier(0), b = earlier(1), c = earlier(2);
    nodes.push_back((matmul(a, b) / static_cast<double>(o.size) + c) / 2);
  }
  return nodes;
}

void dependencies(const Options& o) {
  RuntimeOptions one_by_one = o.runtime();
  one_by_one.serial = true;  // runs each operation at once, on this thread
  Runtime serial(one_by_one), runtime(o.runtime());
  check_equal(graph(runtime.devices(), o), graph(serial.devices(), o), "graph");
  fmt::print("a graph of {} nodes: one by one {:.4f} sec, in parallel {:.4f} sec\n", 4 * o.count,
             seconds(serial, [&] { return graph(serial.devices(), o); }),
             seconds(runtime, [&] { return graph(runtime.devices(), o); }));
}

// From "Concise Implementation for Multiple GPUs": the losses of 20 steps of training. The host is at most
// `steps_ahead` steps ahead of the devices; 0: as far as it can be.
std::vector<Tensor> train(std::size_t steps_ahead) {
  Linear net(784, 10);
  net.initialize(Xavier{});
  Sgd sgd(net.parameters(), {.lr = 0.1});
  const std::vector<Device> devices = net.devices();
  const Tensor images = rand({64, 784}, {.seed = 0}), targets = rand({64, 10}, {.seed = 1});
  std::vector<Tensor> losses;
  for (int step = 0; step < 20; ++step) {
    const Tensor loss = mse_loss(net(split_and_load(images, devices)), split_and_load(targets, devices));
    losses.push_back(loss.detach());
    loss.backward();
    sgd.step();
    if (steps_ahead > 0 && losses.size() > steps_ahead) losses[losses.size() - 1 - steps_ahead].wait();
  }
  return losses;
}

void steps_ahead(const Options& o) {
  Runtime runtime(o.runtime());
  check_equal(train(2), train(0), "losses");
  fmt::print("20 steps of training, described two steps ahead: {:.4f} sec, any number ahead: {:.4f} sec\n",
             seconds(runtime, [] { return train(2); }), seconds(runtime, [] { return train(0); }));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Shows what runs in parallel, on one device and on several, and that the results do not change."};
  Options o;
  o.add_to(app);
  app.add_option("--size", o.size, "Rows and columns of a matrix")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 13))
      ->capture_default_str();
  app.add_option("--count", o.count, "Products of each device")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  return run_example(app, argc, argv, [&] {
    one_device(32, o.count);
    one_device(128, o.count);
    one_device(512, o.count);
    two_devices(o);
    dependencies(o);
    steps_ahead(o);
    fmt::print("all results are equal\n");
  });
}
