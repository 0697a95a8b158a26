// The number of threads of a lane changes no bit of any kernel that is a loop of our own. The sizes make
// several chunks everywhere.
#include "tests/backend/kernel_testing.h"

#include "lockstep/runtime/random_state.h"

namespace lockstep::testing {
namespace {

struct ThreadsCase {
  std::string name;
  Tensors in;
  Tensors out;
  Kernel kernel;
};

std::vector<ThreadsCase> threads_cases() {
  Random random{11};
  auto f32 = [&](const Shape& shape) { return random.tensor(shape, DType::f32); };
  auto bf16 = [&](const Shape& shape) { return random.tensor(shape, DType::bf16); };
  auto f16 = [&](const Shape& shape) { return random.tensor(shape, DType::f16); };
  auto out = [](const Shape& shape, DType dtype = DType::f32) { return TestTensor(shape, dtype); };
  const Shape large{500, 411}, row{411}, column{500, 1};
  const RandomKey key{3, 4};
  const TestTensor labels = random.integers(0, 410, {500}), dloss({1}, DType::f32, {0.25});
  // Updates work in place, so the test copies the input and computes the expected result from the copy.
  auto adam = [](Backend& b, KernelContext& c, Views in, Views out) {
    for (int i = 0; i < 3; ++i) b.run(c, kernels::Copy{in[i], out[i]});
    b.run(c, kernels::Fill{0, out[3]});
    Update<View> item{out[0], in[3], {out[1], out[2]}, {}, out[3]};
    b.run(c, kernels::Update<AdamRule>{{.weight_decay = 0.1}, {&item, 1}, {}});
  };
  auto sgd = [](Backend& b, KernelContext& c, Views in, Views out) {
    for (int i = 0; i < 2; ++i) b.run(c, kernels::Copy{in[i], out[i]});
    Update<View> item{out[0], in[2], {out[1]}};
    b.run(c, kernels::Update<SgdRule>{{.momentum = 0.9}, {&item, 1}, {}});
  };
  const TestTensor positive = random.tensor_between(0, 1, large, DType::f32);
  return {
      {"gelu",
       {f32(large)},
       {out(large)},
       [](Backend& b, KernelContext& c, Views in, Views out) {
         b.run(c, kernels::Unary{UnaryOp::gelu, in[0], out[0]});
       }},
      {"add_row",
       {f32(large), f32(row)},
       {out(large)},
       [](Backend& b, KernelContext& c, Views in, Views out) {
         b.run(c, kernels::Binary{BinaryOp::add, in[0], in[1], out[0]});
       }},
      {"sum_to",
       {f32(large), bf16(large), f16(large)},
       {out(row), out(column), out({}), out(row, DType::bf16), out(row, DType::f16)},
       [](Backend& b, KernelContext& c, Views in, Views out) {
         for (int i = 0; i < 5; ++i) b.run(c, kernels::SumTo{in[i < 3 ? 0 : i - 2], out[i]});
       }},
      {"squared_norm",
       {f32(large), f32(row), f32({9000})},
       {out({1}, DType::f64)},
       [](Backend& b, KernelContext& c, Views in, Views out) {
         b.run(c, kernels::SquaredNorm{in, {}, out[0]});
       }},
      {"tree_sum",
       {f32(large), f32(large), f32(large)},
       {out(large)},
       [](Backend& b, KernelContext& c, Views in, Views out) {
         b.run(c, kernels::TreeSum{in, out[0]});
       }},
      {"softmax",
       {f32(large)},
       {out(large), out(large)},
       [](Backend& b, KernelContext& c, Views in, Views out) {
         b.run(c, kernels::Softmax{in[0], out[0]});
         b.run(c, kernels::LogSoftmax{in[0], out[1]});
       }},
      {"cross_entropy",
       {f32(large), labels, dloss},
       {out({3}), out(large)},
       [](Backend& b, KernelContext& c, Views in, Views out) {
         b.run(c, kernels::CrossEntropy{in[0], in[1], {.smoothing = 0.1}, out[0]});
         b.run(c, kernels::CrossEntropyBackward{in[0], in[1], {.smoothing = 0.1}, out[0], in[2], out[1]});
       }},
      {"mse",
       {f32(large), f32(large)},
       {out({1})},
       [](Backend& b, KernelContext& c, Views in, Views out) {
         b.run(c, kernels::Mse{in[0], in[1], out[0]});
       }},
      {"random",
       {f32(large)},
       {out(large), out(large), out(large)},
       [=](Backend& b, KernelContext& c, Views in, Views out) {
         b.run(c, kernels::Uniform{key, -1, 1, out[0]});
         b.run(c, kernels::Normal{key, 0, 1, out[1]});
         b.run(c, kernels::Dropout{key, {}, 0.8, in[0], out[2]});
       }},
      {"sgd", {f32(large), f32(large), f32(large)}, {out(large), out(large)}, sgd},
      {"adam",
       {f32(large), f32(large), positive, f32(large)},
       {out(large), out(large), out(large), out({1}, DType::i64)},
       adam},
  };
}

TEST(CpuThreads, ChangeNoBit) {
  std::unique_ptr<Backend> cpu = make_cpu_backend();
  for (const ThreadsCase& test : threads_cases()) {
    SCOPED_TRACE(test.name);
    auto run = [&](int threads) {
      KernelContext context{threads};
      Tensors out = test.out;
      std::vector<View> in_views, out_views;
      for (const TestTensor& tensor : test.in) in_views.push_back(tensor.view());
      for (const TestTensor& tensor : out) out_views.push_back(tensor.view());
      test.kernel(*cpu, context, in_views, out_views);
      return out;
    };
    Tensors alone = run(1);
    for (int threads : {2, 3}) {
      Tensors together = run(threads);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(together[i].same_bits(alone[i])) << "output " << i << " on " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
