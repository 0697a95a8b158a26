// A capsule network (Sabour, Frosst, Hinton 2017): vectors in place of single features, routing by agreement in a loop,
// and two losses. One loss needs the labels inside the model. The net learns to tell strokes of three directions apart.
// Two devices give the weights of one.
#include <fmt/core.h>
#include <lockstep/autograd/creation.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/nn/conv.h>
#include <lockstep/nn/initializers.h>
#include <lockstep/nn/linear.h>
#include <lockstep/nn/module.h>
#include <lockstep/nn/parameter.h>
#include <lockstep/optim/adam.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/train/trainer.h>

#include <algorithm>

using namespace lockstep;

// Pictures of 8 x 8: a stroke across, down, or aslant, somewhere, with noise.
struct Strokes : Dataset {
  std::uint64_t seed;
  std::int64_t count;
  Strokes(std::uint64_t seed, std::int64_t count) : seed(seed), count(count) {}
  std::int64_t size() const override { return count; }
  Example get(std::int64_t i) const override {
    const RandomKey key = random_key(seed, {static_cast<std::uint64_t>(i)});
    const auto direction = static_cast<std::int64_t>(random_below(key, 0, 3));
    const std::size_t row = random_below(key, 1, 4), column = random_below(key, 2, 4);
    std::vector<float> picture(64);
    for (std::size_t p = 0; p < 64; ++p) picture[p] = static_cast<float>(0.2 * random_uniform(key, p + 8));
    for (std::size_t s = 0; s < 5; ++s) {
      const std::size_t y = row + (direction == 0 ? 2 : s), x = column + (direction == 1 ? 2 : s);
      picture[std::min<std::size_t>(y, 7) * 8 + std::min<std::size_t>(x, 7)] = 1;
    }
    return {Tensor::from(picture, {1, 8, 8}), tensor(direction)};
  }
};

Tensor squared_length(const Tensor& v) { return sum(square(v), -1, true); }

// Keeps the direction, and brings the length below 1.
Tensor squash(const Tensor& v) {
  const Tensor n = squared_length(v);
  return v * (n / ((1 + n) * sqrt(n + 1e-8)));
}

// Each capsule below predicts those above, and sends its prediction to those that agree with it: [N, from, in] ->
// [N, to, out].
struct Routing : Module {
  Parameter weight;
  std::int64_t to;
  Routing(std::int64_t from, std::int64_t in, std::int64_t to, std::int64_t out) : to(to) {
    weight = add_parameter("weight", {.shape = {from, in, to * out}, .initializer = Normal{0.1}});
  }
  Tensor forward(const Tensor& x) override {
    const Tensor predictions =
        unflatten(squeeze(matmul(unsqueeze(x, 2), weight), 2), 2, {to, -1});  // [N, from, to, out]
    const Tensor fixed = predictions.detach();  // gradients flow through the last round alone
    Tensor agreement = zeros_like(sum(fixed, 3));
    constexpr int kRounds = 3;
    for (int round = 1;; ++round) {
      const Tensor share = unsqueeze(softmax(agreement, 2), 3);
      if (round == kRounds) return squash(sum(share * predictions, 1));
      const Tensor v = squash(sum(share * fixed, 1));
      agreement = agreement + sum(fixed * unsqueeze(v, 1), 3);
    }
  }
};

struct CapsuleNet : Module {
  Conv2d conv{{.in_channels = 1, .out_channels = 16, .kernel_size = 3}};
  Conv2d primary{{.in_channels = 16, .out_channels = 16, .kernel_size = 3, .stride = 2}};
  Routing routing{2 * 2 * 4, 4, 3, 8};
  Linear hidden{{.in_features = 24, .out_features = 48}}, picture{{.in_features = 48, .out_features = 64}};
  CapsuleNet() {
    add("conv", conv), add("primary", primary), add("routing", routing), add("hidden", hidden), add("picture", picture);
  }
  Tensor capsules(const Tensor& x) {
    const Tensor features = flatten(primary(relu(conv(x))), 2);  // [N, 4 * 4, 2 * 2]
    return routing(squash(flatten(permute(unflatten(features, 1, {4, 4}), {0, 1, 3, 2}), 1, 2)));
  }
  static Tensor lengths(const Tensor& v) { return squeeze(sqrt(squared_length(v) + 1e-8), 2); }
  // The lengths are the scores of the classes.
  Tensor forward(const Tensor& x) override { return lengths(capsules(x)); }

  // The margin loss of the lengths, and how well the right capsule tells what the picture is.
  BatchOutputs learn(const Tensor& x, const Tensor& labels) {
    const Tensor v = capsules(x), length = lengths(v);
    const Tensor right = one_hot(labels, 3).to(DType::f32);
    const Tensor margin = right * square(relu(0.9 - length)) + 0.5 * (1 - right) * square(relu(length - 0.1));
    const Tensor drawn = sigmoid(picture(relu(hidden(flatten(v * unsqueeze(right, 2), 1)))));
    return {.loss = mean(sum(margin, 1)) + 0.5 * mse_loss(drawn, flatten(x, 1)), .outputs = length};
  }
};

std::string train(int count, bool speaks) {
  Runtime runtime({.cpu_devices = count});
  CapsuleNet net;
  net.initialize(Xavier{});
  Adam adam(net.parameters(), {.lr = 0.01});
  TrainerOptions options{.split = {.shards = 2}, .batch_size = 32, .epochs = 10};
  options.forward = [&](const Example& batch) { return net.learn(batch[0], batch[1]); };
  Trainer trainer(net, adam, Strokes(1, 512), Strokes(2, 256), options);
  trainer.on_epoch = [&](const EpochReport& e) {
    if (speaks) fmt::print("epoch {}, loss {:.3f}, accuracy {:.3f}\n", e.epoch, e.train_loss, e.test.value());
  };
  trainer.train();
  return weights_sha256(net);
}

int main() {
  const std::string weights = train(2, true);
  fmt::print("{} as on one device\n", weights == train(1, false) ? "the same weights" : "OTHER WEIGHTS");
}
