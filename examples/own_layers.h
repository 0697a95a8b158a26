// Three layers of a user's own, as docs/models.md shows them beside PyTorch's.
#pragma once

#include <lockstep/nn/initializers.h>
#include <lockstep/nn/linear.h>
#include <lockstep/nn/module.h>
#include <lockstep/nn/parameter.h>

namespace own_layers {

using namespace lockstep;

// The feed-forward block of many transformers (Shazeer 2020).
struct SwiGLU : Module {
  Linear &w1, &w2, &w3;
  SwiGLU(std::int64_t dim, std::int64_t hidden)
      : w1(make<Linear>("w1", dim, hidden, {.bias = false})), w2(make<Linear>("w2", hidden, dim, {.bias = false})),
        w3(make<Linear>("w3", dim, hidden, {.bias = false})) {}
  Tensor forward(const Tensor& x) override { return w2(silu(w1(x)) * w3(x)); }
};

// A gate chooses between what a layer computes and what it was given (Srivastava et al. 2015).
struct Highway : Module {
  Linear &plain, &gate;
  const Parameter gate_bias;
  explicit Highway(std::int64_t dim)
      : plain(make<Linear>("plain", dim, dim)), gate(make<Linear>("gate", dim, dim, {.bias = false})),
        gate_bias(add_parameter("gate_bias", {.shape = {dim}, .initializer = Constant{-2}})) {}
  Tensor forward(const Tensor& x) override {
    Tensor t = sigmoid(gate(x) + gate_bias);
    return t * relu(plain(x)) + (1 - t) * x;
  }
};

// Weighs the channels of an image by what all of it shows (Hu et al. 2018).
struct SqueezeExcite : Module {
  Linear &fc1, &fc2;
  SqueezeExcite(std::int64_t channels, std::int64_t reduction)
      : fc1(make<Linear>("fc1", channels, channels / reduction)),
        fc2(make<Linear>("fc2", channels / reduction, channels)) {}
  Tensor forward(const Tensor& x) override {
    Tensor s = mean(x, {2, 3});
    s = sigmoid(fc2(relu(fc1(s))));
    return x * unflatten(s, 1, {-1, 1, 1});
  }
};

}  // namespace own_layers
