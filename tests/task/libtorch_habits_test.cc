// What programs for libtorch write first, and that means the same here. tests/package/libtorch/texts.cc has what they
// write and Lockstep does not have.
#include <gtest/gtest.h>

#include "lockstep/lockstep.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

std::vector<float> numbers(const Tensor& x) { return x.to_vector<float>(); }

TEST(LibtorchHabits, WindowsOfPooling) {
  const Tensor x = randn({1, 1, 6, 6}, {.seed = 1});
  EXPECT_TRUE(equal(max_pool2d(x, 2), max_pool2d(x, {.kernel_size = 2})));
  EXPECT_TRUE(equal(max_pool2d(x, 3, 2, 1), max_pool2d(x, {.kernel_size = 3, .stride = 2, .padding = 1})));
  EXPECT_TRUE(equal(avg_pool2d(x, 2, 1), avg_pool2d(x, {.kernel_size = 2, .stride = 1})));
  EXPECT_TRUE(equal(MaxPool2d(3, {.stride = 2, .padding = 1})(x), max_pool2d(x, 3, 2, 1)));
  EXPECT_EQ(AvgPool2d(2, {.padding = 1})(x).shape(), (Shape{1, 1, 4, 4}));
  EXPECT_EQ(MaxPool2d(2, {2, 1})(x).shape(), (Shape{1, 1, 3, 5}));  // a stride
  const Tensor sequence = randn({1, 1, 6}, {.seed = 1});
  EXPECT_EQ(max_pool1d(sequence, 2).shape(), (Shape{1, 1, 3}));
  EXPECT_EQ(avg_pool3d(randn({1, 2, 4, 4, 4}), 2).shape(), (Shape{1, 2, 2, 2, 2}));
}

TEST(LibtorchHabits, Optimizers) {
  Linear net(2, 1);
  const std::vector<Parameter> p = net.parameters();
  EXPECT_EQ(Adam(p).learning_rate(), 1e-3);
  EXPECT_EQ(Adam(p, 1e-2).learning_rate(), 1e-2);
  EXPECT_EQ(AdamW(p, 1).learning_rate(), 1);
  EXPECT_EQ(RMSprop(p).learning_rate(), 0.01);
  EXPECT_EQ(Adagrad(p).group_count() + Adadelta(p).group_count(), 2u);
  EXPECT_EQ(SGD(p, 0.5).learning_rate(), 0.5);
  EXPECT_EQ(SGD(p, {.lr = 0.25, .momentum = 0.9}).learning_rate(), 0.25);
  EXPECT_EQ(SGD(net.parameters(), SGDOptions{.lr = 0.25}).learning_rate(), 0.25);
}

TEST(LibtorchHabits, TensorsAndTheirTypes) {
  EXPECT_EQ(zeros({2, 3}, kFloat64).dtype(), DType::f64);
  EXPECT_EQ(ones({2}, kLong).dtype(), DType::i64);
  EXPECT_EQ(randn({2}, kDouble).dtype(), DType::f64);
  EXPECT_EQ(full({2}, 1, kHost).device(), kHost);
  EXPECT_EQ(empty({2}, kCPU).device(), kHost);
  EXPECT_TRUE(equal(empty({2, 3}, kLong), zeros({2, 3}, kLong)));
  EXPECT_EQ(tensor({1, 2}, kFloat32).dtype(), DType::f32);
  const Tensor x = arange(6.0);
  EXPECT_EQ(x.reshape(-1, 3).sizes(), (Shape{2, 3}));
  EXPECT_EQ(x.view(3, 2).shape(), (Shape{3, 2}));
  EXPECT_TRUE(equal(x.reshape({2, 3}).std(1, true), std(x.reshape({2, 3}), 1)));
  EXPECT_TRUE(equal(x.reshape(2, 3).var(1, false, true), var(x.reshape(2, 3), 1, {.correction = 0, .keepdim = true})));
  EXPECT_TRUE(equal(x, arange(6.0)));
  EXPECT_FALSE(equal(x, x + 1));
  EXPECT_FALSE(equal(x, x.reshape(2, 3)));
  EXPECT_EQ(full({}, 2.5, {.dtype = DType::f32}).item<double>(), 2.5);
  EXPECT_EQ(full({}, -2.5).item<std::int64_t>(), -2);
  EXPECT_EQ(tensor(7).item<float>(), 7);
  EXPECT_ERROR(full({}, 300).item<std::uint8_t>(), "item: 300 does not fit into u8");
  EXPECT_ERROR(tensor(std::int64_t{9007199254740993}).item<double>(), "is no double");
  EXPECT_EQ(tensor(std::int64_t{9007199254740993}).item<std::int64_t>(), 9007199254740993);
}

TEST(LibtorchHabits, Gradients) {
  Tensor w = ones({3});
  (w.requires_grad_() * 2).sum().backward();
  EXPECT_EQ(numbers(w.grad()), (std::vector<float>{2, 2, 2}));
  EXPECT_FALSE(w.requires_grad_(false).requires_grad());

  Linear net(2, 1);
  net(ones({1, 2})).sum().backward();
  net.zero_grad();
  for (const Parameter& p : net.parameters()) EXPECT_FALSE(p.gradient().defined());
}

TEST(LibtorchHabits, Modules) {
  Sequential net({Linear(2, 4), ReLU(), Sequential(Linear(4, 4), Flatten())});
  net.append(Linear(4, 2), relu).append([](const Tensor& x) { return x * 2; });
  EXPECT_EQ(net.size(), 6u);
  net.to("cpu:0");
  net.to(devices()[0]);
  EXPECT_EQ(device("cpu:0"), devices()[0]);
  const Tensor x = randn({3, 2}, {.device = device("cpu:0"), .seed = 1});
  const Tensor before = Sequential(relu)(net.module("3")(net.module("2")(net.module("1")(net.module("0")(x)))));
  EXPECT_TRUE(equal(net(x), before * 2));
  net(x).sum().backward();
  const Parameter weight = net["0.weight"];
  EXPECT_TRUE(equal(weight.grad(), weight.gradient()));
  EXPECT_EQ(numbers(weight.norm()), numbers(norm(weight)));
  LeNet lenet;
  EXPECT_EQ(lenet(randn({1, 1, 28, 28})).shape(), (Shape{1, 10}));
  GPT gpt({.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 4});
  const std::vector<std::int64_t> ids{1, 2};
  const Tensor more = gpt.generate(Tensor::from(ids, {1, 2}), {.new_tokens = 3, .seed = 1});
  EXPECT_EQ(more.shape(), (Shape{1, 5}));
  EXPECT_EQ(more.to_vector<std::int64_t>(), gpt.generate(ids, {.new_tokens = 3, .seed = 1}));
  EXPECT_ERROR(gpt.generate(randn({2}), {}), "generate: tokens are [2] f32 on host, expected i64 [T] or [N, T]");
}

TEST(LibtorchHabits, LossesAreObjects) {
  const Tensor x = randn({4, 3}, {.seed = 1}), labels = tensor({0, 2, 1, 1}), y = rand({4, 3}, {.seed = 2});
  EXPECT_TRUE(equal(CrossEntropyLoss()(x, labels), cross_entropy(x, labels)));
  const CrossEntropyLoss smooth{{.label_smoothing = 0.1}};
  EXPECT_TRUE(equal(smooth(x, labels), cross_entropy(x, labels, {.label_smoothing = 0.1})));
  EXPECT_TRUE(equal(NLLLoss()(log_softmax(x), labels), nll_loss(log_softmax(x), labels)));
  EXPECT_TRUE(equal(MSELoss()(x, y), mse_loss(x, y)));
  EXPECT_TRUE(equal(L1Loss()(x, y), l1_loss(x, y)));
  EXPECT_TRUE(equal(SmoothL1Loss()(x, y), smooth_l1_loss(x, y)));
  EXPECT_TRUE(equal(HuberLoss()(x, y), huber_loss(x, y)));
  EXPECT_TRUE(equal(BCELoss()(y, y), binary_cross_entropy(y, y)));
  EXPECT_TRUE(equal(BCEWithLogitsLoss()(x, y), binary_cross_entropy_with_logits(x, y)));
  EXPECT_EQ(cuda::is_available(), cuda_is_available());
}

// What the messages of save() and load() name, optim/libtorch_names.h.
TEST(LibtorchHabits, FilesOfTensorsAndOfOptimizers) {
  const TemporaryFolder folder;
  Linear net(2, 1);
  Adam adam(net.parameters());
  net(ones({1, 2})).sum().backward();
  adam.step();
  write_safetensors(folder / "adam", as_bytes(adam.state_dict()));
  Adam other(net.parameters());
  other.load_state_dict(as_tensors(read_safetensors(folder / "adam")));
  const StateDict state = adam.state_dict(), loaded = other.state_dict();
  ASSERT_EQ(state.size(), loaded.size());
  for (std::size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(equal(state[i].second, loaded[i].second));
  const Tensor x = arange(3.0);
  write_safetensors(folder / "x", as_bytes({{"x", x}}));
  EXPECT_TRUE(equal(as_tensors(read_safetensors(folder / "x"))[0].second, x));
}

}  // namespace
}  // namespace lockstep
