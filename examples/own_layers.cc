// Three layers of a user's own, as docs/models.md shows them beside PyTorch's, in a net that is trained on two devices.
#include <fmt/core.h>
#include <lockstep/nn/layers.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/split.h>
#include <lockstep/runtime/runtime.h>

using namespace lockstep;

// The feed-forward block of many transformers (Shazeer 2020).
struct SwiGLU : Module {
  Linear &w1, &w2, &w3;
  SwiGLU(std::int64_t dim, std::int64_t hidden)
      : w1(make<Linear>("w1", {.in_features = dim, .out_features = hidden, .bias = false})),
        w2(make<Linear>("w2", {.in_features = hidden, .out_features = dim, .bias = false})),
        w3(make<Linear>("w3", {.in_features = dim, .out_features = hidden, .bias = false})) {}
  Tensor forward(const Tensor& x) override { return w2(silu(w1(x)) * w3(x)); }
};

// A gate blends a layer's output with its input (Srivastava et al. 2015).
struct Highway : Module {
  Linear &plain, &gate;
  Parameter gate_bias;
  explicit Highway(std::int64_t dim)
      : plain(make<Linear>("plain", {.in_features = dim, .out_features = dim})),
        gate(make<Linear>("gate", {.in_features = dim, .out_features = dim, .bias = false})),
        gate_bias(add_parameter("gate_bias", {.shape = {dim}, .initializer = Constant{-2}})) {}
  Tensor forward(const Tensor& x) override {
    Tensor t = sigmoid(gate(x) + gate_bias);
    return t * relu(plain(x)) + (1 - t) * x;
  }
};

// Scales the channels of an image by weights computed from the whole image (Hu et al. 2018).
struct SqueezeExcite : Module {
  Linear &fc1, &fc2;
  SqueezeExcite(std::int64_t channels, std::int64_t reduction)
      : fc1(make<Linear>("fc1", {.in_features = channels, .out_features = channels / reduction})),
        fc2(make<Linear>("fc2", {.in_features = channels / reduction, .out_features = channels})) {}
  Tensor forward(const Tensor& x) override {
    Tensor s = mean(x, {2, 3});
    s = sigmoid(fc2(relu(fc1(s))));
    return x * unflatten(s, 1, {-1, 1, 1});
  }
};

// [N, 8, 4, 4] -> [N, 8]
struct Net : Module {
  SqueezeExcite& squeeze = make<SqueezeExcite>("squeeze", 8, 2);
  Highway& highway = make<Highway>("highway", 8);
  SwiGLU& feed_forward = make<SwiGLU>("feed_forward", 8, 16);
  Tensor forward(const Tensor& x) override { return feed_forward(highway(mean(squeeze(x), {2, 3}))); }
};

// The losses of the same training on any devices.
std::vector<float> train(const std::vector<Device>& devices) {
  const Tensor x = rand({24, 8, 4, 4}, {.device = devices[0], .seed = 1}), y = select(flatten(x, 2), 2, -1);
  Net net;
  net.initialize(Xavier{}, devices);
  Adam adam(net.parameters(), {.lr = 0.02});
  std::vector<float> losses;
  for (int step = 0; step < 60; ++step) {
    const Tensor inputs = split_and_load(x, devices, {.shards = 4});
    const Tensor targets = split_and_load(y, devices, {.shards = 4});
    const Tensor loss = mse_loss(net(inputs), targets);
    loss.backward();
    adam.step();
    losses.push_back(loss.item());
  }
  return losses;
}

int main() {
  Runtime runtime({.devices = 2});
  const std::vector<Device>& devices = runtime.devices();
  const std::vector<float> one = train({devices[0]}), two = train(devices);
  for (const auto& [name, parameter] : Net().named_parameters()) fmt::print("{} {}\n", name, parameter.shape().str());
  fmt::print("loss {:.3f}, then {:.3f} on {}; {} on one device\n", two.front(), two.back(), str(devices),
             one == two ? "the same" : "another");
  return one == two && two.back() < two.front() / 2 ? 0 : 1;
}
