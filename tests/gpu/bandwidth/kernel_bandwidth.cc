// Measures how close Lockstep's own kernels come to the bandwidth of a GPU's memory: gpu_bandwidth [batch]. For the
// kernels of a step of ResNet-18 on 28x28 images, prints the time of one run and the bytes per second that it must read
// and write.
#include <fmt/core.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "lockstep/backend/cuda/families.h"
#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/runtime/random_state.h"
#include "tests/gpu/gpu_testing.h"

namespace lockstep::testing {
namespace {

class Bench {
 public:
  View tensor(const Shape& shape, DType dtype = DType::bf16, Layout layout = Layout::channels_last) {
    View view{nullptr, dtype, shape.dim() == 4 ? layout : Layout::plain, shape};
    view.data = memory_.allocate(view.bytes());
    elementwise_->run(context(), kernels::Fill{1, view});
    return view;
  }
  BatchNormStats stats(const Shape& x) {
    return {x[0] * x[2] * x[3], tensor({x[1]}, DType::f32), tensor({x[1]}, DType::f32)};
  }
  KernelContext& context() { return memory_.context(); }

  // `moved`: every tensor read or written, listed once per access.
  void measure(const std::string& name, std::initializer_list<View> moved, const std::function<void()>& run) {
    double bytes = 0;
    for (const View& view : moved) bytes += static_cast<double>(view.bytes());
    measure(name, bytes, run);
  }
  void measure(const std::string& name, double bytes, const std::function<void()>& run) {
    constexpr int kRuns = 20;
    for (int i = 0; i < 3; ++i) run();
    cudaEvent_t begin, end;
    check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end), "cudaEventCreate");
    check_cuda(cudaEventRecord(begin, memory_.stream()), "cudaEventRecord");
    for (int i = 0; i < kRuns; ++i) run();
    check_cuda(cudaEventRecord(end, memory_.stream()), "cudaEventRecord");
    memory_.synchronize();
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    const double seconds = milliseconds / 1e3 / kRuns;
    fmt::print("{:<44} {:>9.1f} us {:>9.1f} MB {:>8.0f} GB/s\n", name, seconds * 1e6, bytes / 1e6,
               bytes / seconds / 1e9);
  }

 private:
  GpuMemory memory_;
  std::unique_ptr<ElementwiseKernels> elementwise_ = make_cuda_elementwise();
};

void measure_norm(Bench& b, const Shape& shape) {
  auto norm = make_cuda_norm();
  const View x = b.tensor(shape), y = b.tensor(shape), z = b.tensor(shape), dy = b.tensor(shape), dx = b.tensor(shape);
  const View gamma = b.tensor({shape[1]}, DType::f32), beta = b.tensor({shape[1]}, DType::f32);
  const BatchNormStats stats = b.stats(shape);
  const std::string of = " " + shape.str();
  b.measure("batch norm: stats" + of, {x}, [&] { norm->run(b.context(), kernels::NormStats{x, stats}); });
  b.measure("batch norm: forward, ReLU" + of, {x, y}, [&] {
    norm->run(b.context(), kernels::Norm{x, stats, 1e-5, gamma, beta, {}, true, y});
  });
  b.measure("batch norm: forward, + residual, ReLU" + of, {x, z, y}, [&] {
    norm->run(b.context(), kernels::Norm{x, stats, 1e-5, gamma, beta, z, true, y});
  });
  b.measure("batch norm: backward stats, ReLU" + of, {dy, x, y}, [&] {
    norm->run(b.context(), kernels::NormBackwardStats{dy, x, y, stats, 1e-5, gamma, beta});
  });
  b.measure("batch norm: backward, ReLU" + of, {dy, x, y, dx}, [&] {
    norm->run(b.context(), kernels::NormBackwardData{dy, x, y, stats, 1e-5, gamma, gamma, beta, dx, {}});
  });
  b.measure("batch norm: backward, ReLU, residual" + of, {dy, x, y, dx, z}, [&] {
    norm->run(b.context(), kernels::NormBackwardData{dy, x, y, stats, 1e-5, gamma, gamma, beta, dx, z});
  });
}

void measure_images(Bench& b, std::int64_t batch) {
  auto elementwise = make_cuda_elementwise();
  auto copy = make_cuda_copy();
  auto pool = make_cuda_pool();
  auto random = make_cuda_random();
  const Shape shape{batch, 64, 28, 28};
  const View x = b.tensor(shape), y = b.tensor(shape), z = b.tensor(shape);
  b.measure("add", {x, y, z}, [&] { elementwise->run(b.context(), kernels::Binary{BinaryOp::add, x, y, z}); });
  b.measure("relu", {x, z}, [&] { elementwise->run(b.context(), kernels::Unary{UnaryOp::relu, x, z}); });
  b.measure("gelu", {x, z}, [&] { elementwise->run(b.context(), kernels::Unary{UnaryOp::gelu, x, z}); });
  b.measure("dropout", {x, z}, [&] { random->run(b.context(), kernels::Dropout{{1, 2}, {}, 0.9, x, z}); });
  const View plain = b.tensor(shape, DType::bf16, Layout::plain), wide = b.tensor(shape, DType::f32);
  b.measure("f32 to bf16", {wide, x}, [&] { copy->run(b.context(), kernels::Copy{wide, x}); });
  b.measure("plain to channels-last", {plain, x}, [&] { copy->run(b.context(), kernels::Copy{plain, x}); });
  const View pooled = b.tensor({batch, 64, 14, 14}), where = b.tensor({batch, 64, 14, 14}, DType::i64);
  const Pool2dOptions options{.kernel_size = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  b.measure("max pool 3x3", {x, pooled, where}, [&] {
    pool->run(b.context(), kernels::MaxPool{options, x, pooled, where});
  });
  b.measure("max pool 3x3, backward", {x, pooled, where}, [&] {
    pool->run(b.context(), kernels::MaxPoolBackward{options, pooled, where, x});
  });
  const View last = b.tensor({batch, 512, 4, 4}), mean = b.tensor({batch, 512, 1, 1}, DType::bf16, Layout::plain);
  b.measure("global average pool", {last, mean}, [&] { pool->run(b.context(), kernels::GlobalAvgPool{last, mean}); });
}

void measure_training(Bench& b, std::int64_t batch) {
  auto reduce = make_cuda_reduce();
  auto softmax = make_cuda_softmax();
  auto optimizer = make_cuda_optimizer();
  std::vector<Update<View>> items;
  std::vector<View> grads;
  double bytes = 0;
  for (int i = 0; i < 62; ++i) {  // like ResNet-18: 11 million weights, a third of the tensors large
    const Shape shape{i % 3 == 0 ? std::int64_t{530000} : std::int64_t{256}};
    items.push_back({b.tensor(shape, DType::f32),
                     b.tensor(shape, DType::f32),
                     {b.tensor(shape, DType::f32), b.tensor(shape, DType::f32)},
                     {},
                     b.tensor({1}, DType::i64)});
    grads.push_back(items.back().grad);
    bytes += static_cast<double>(grads.back().bytes());
  }
  const View squared = b.tensor({1}, DType::f64);
  b.measure("SGD with momentum", 5 * bytes, [&] {
    optimizer->run(b.context(), kernels::Update<SgdRule>{{.lr = 0, .momentum = 0.9}, items, {}});
  });
  b.measure("Adam", 7 * bytes, [&] { optimizer->run(b.context(), kernels::Update<AdamRule>{{.lr = 0}, items, {}}); });
  b.measure("squared norm", bytes, [&] { reduce->run(b.context(), kernels::SquaredNorm{grads, {}, squared}); });
  std::vector<View> leaves;
  for (int i = 0; i < 8; ++i) leaves.push_back(b.tensor({11000000}, DType::f32));
  b.measure("sum of 8 shards", 9.0 * static_cast<double>(leaves[0].bytes()), [&] {
    reduce->run(b.context(), kernels::TreeSum{leaves, leaves[0]});
  });
  const View wide = b.tensor({batch * 49, 512}, DType::bf16), bias = b.tensor({512}, DType::bf16);
  b.measure("sum of columns", {wide}, [&] { reduce->run(b.context(), kernels::SumTo{wide, bias}); });
  const View logits = b.tensor({batch, 10}), labels = b.tensor({batch}, DType::i64), loss = b.tensor({1}, DType::f32),
             sums = b.tensor({3}, DType::f32);
  b.measure("cross entropy", {logits, labels}, [&] {
    softmax->run(b.context(), kernels::CrossEntropy{logits, labels, {}, sums});
  });
  b.measure("cross entropy, backward", {logits, logits, labels}, [&] {
    softmax->run(b.context(), kernels::CrossEntropyBackward{logits, labels, {}, sums, loss, logits});
  });
}

}  // namespace

void measure_kernels(std::int64_t batch) {
  for (const Shape& shape : std::vector<Shape>{{batch, 64, 28, 28}, {batch, 128, 14, 14}, {batch, 512, 4, 4}}) {
    Bench bench;
    measure_norm(bench, shape);
  }
  Bench images, training;
  measure_images(images, batch);
  measure_training(training, batch);
}

}  // namespace lockstep::testing

int main(int argc, char** argv) {
  if (!lockstep::testing::has_gpu()) {
    fmt::print("{}\n", lockstep::testing::kNoGpu);
    return 0;
  }
  try {
    lockstep::testing::measure_kernels(argc > 1 ? std::atoll(argv[1]) : 1024);
  } catch (const lockstep::Error& e) {
    fmt::print("{}\n", e.what());
    return 1;
  }
}
