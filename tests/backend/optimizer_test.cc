#include <limits>

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

// Several tensors in one call: inputs are (weight, grad, state0, state1, steps) of each and last the scale, outputs
// are (weight, state0, state1, steps) of each.
class OptimizerTest : public KernelTest {
 protected:
  using Step = std::function<void(Backend&, KernelContext&, std::span<const Update<View>>, const View& scale)>;

  // With the second state, tensor i has taken steps_before + i steps.
  void expect_steps(bool state0, bool state1, bool scale, const Step& step, int steps_before = 0) {
    const std::vector<Shape> shapes{{3, 5}, {1}, {10007}, {0}};
    Tensors inputs, outputs;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Shape& shape = shapes[i];
      const double steps = steps_before + static_cast<double>(i);
      inputs.push_back(input(shape));
      inputs.push_back(input(shape));
      inputs.push_back(state0 ? input(shape) : TestTensor());
      inputs.push_back(state1 ? random_.tensor_between(0, 1, shape, dtype()) : TestTensor());
      inputs.push_back(state1 ? TestTensor({1}, DType::i64, {steps}) : TestTensor());
      outputs.push_back(output(shape));
      outputs.push_back(state0 ? output(shape) : TestTensor());
      outputs.push_back(state1 ? output(shape) : TestTensor());
      outputs.push_back(state1 ? TestTensor({1}, DType::i64) : TestTensor());
    }
    inputs.push_back(scale ? TestTensor({1}, DType::f64, {0.37}) : TestTensor());
    expect_matches_reference(inputs, outputs, [&](Backend& b, KernelContext& c, Views in, Views out) {
      std::vector<Update<View>> items;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const View *from = &in[5 * i], *to = &out[4 * i];
        b.run(c, kernels::Copy{from[0], to[0]});
        if (state0) b.run(c, kernels::Copy{from[2], to[1]});
        if (state1) b.run(c, kernels::Copy{from[3], to[2]});
        if (state1) b.run(c, kernels::Copy{from[4], to[3]});
        items.push_back({to[0], from[1], {to[1], to[2]}, {}, to[3]});
      }
      step(b, c, items, in.back());
    });
  }
};

TEST_P(OptimizerTest, Sgd) {
  for (const SgdRule& args : {SgdRule{.lr = 0.1}, SgdRule{.lr = 0.1, .weight_decay = 0.01}}) {
    expect_steps(false, false, false, [&](Backend& b, KernelContext& c, auto items, const View& scale) {
      b.run(c, kernels::Update<SgdRule>{args, items, scale});
    });
  }
}

TEST_P(OptimizerTest, SgdWithMomentum) {
  for (bool nesterov : {false, true}) {
    for (bool scale : {false, true}) {
      SgdRule args{.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-2, .nesterov = nesterov};
      expect_steps(true, false, scale, [&](Backend& b, KernelContext& c, auto items, const View& factor) {
        b.run(c, kernels::Update<SgdRule>{args, items, factor});
      });
    }
  }
}

TEST_P(OptimizerTest, Adam) {
  for (bool decoupled : {false, true}) {
    for (int steps_before : {0, 1, 999}) {
      AdamRule args{.lr = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = decoupled};
      expect_steps(
          true, true, steps_before == 1,
          [&](Backend& b, KernelContext& c, auto items, const View& scale) {
            b.run(c, kernels::Update<AdamRule>{args, items, scale});
          },
          steps_before);
    }
  }
}

TEST_P(OptimizerTest, RMSprop) {
  const Shape shape{10007};
  for (const RMSpropRule& rule :
       {RMSpropRule{.weight_decay = 0.1}, RMSpropRule{.eps = 1e-3, .momentum = 0.9},
        RMSpropRule{.alpha = 0.9, .centered = true}, RMSpropRule{.momentum = 0.5, .centered = true}}) {
    const std::size_t states = 1 + (rule.centered ? 1U : 0U) + (rule.momentum != 0 ? 1U : 0U);
    // The mean square is above the square of the mean.
    Tensors inputs{input(shape), input(shape), random_.tensor_between(1, 2, shape, dtype())}, outputs{output(shape)};
    for (std::size_t k = 1; k < states; ++k) inputs.push_back(random_.tensor_between(-1, 1, shape, dtype()));
    outputs.resize(1 + states, output(shape));
    expect_matches_reference(inputs, outputs, [&](Backend& b, KernelContext& c, Views in, Views out) {
      Update<View> update{.weight = out[0], .grad = in[1]};
      b.run(c, kernels::Copy{in[0], out[0]});
      for (std::size_t k = 0; k < states; ++k) {
        b.run(c, kernels::Copy{in[2 + k], out[1 + k]});
        update.states[k] = out[1 + k];
      }
      b.run(c, kernels::Update<RMSpropRule>{rule, {&update, 1}, {}});
    });
  }
}

TEST_P(OptimizerTest, OtherRules) {
  const Shape shape{10007};
  const auto expect = [&](const auto& rule, std::size_t states, double steps_before) {
    Tensors inputs{input(shape), input(shape), TestTensor({1}, DType::i64, {steps_before})};
    Tensors outputs{output(shape), TestTensor({1}, DType::i64)};
    for (std::size_t k = 0; k < states; ++k) inputs.push_back(random_.tensor_between(0, 1, shape, dtype()));
    outputs.resize(2 + states, output(shape));
    expect_matches_reference(inputs, outputs, [&](Backend& b, KernelContext& c, Views in, Views out) {
      Update<View> update{.weight = out[0], .grad = in[1], .steps = out[1]};
      b.run(c, kernels::Copy{in[0], out[0]});
      b.run(c, kernels::Copy{in[2], out[1]});
      for (std::size_t k = 0; k < states; ++k) {
        b.run(c, kernels::Copy{in[3 + k], out[2 + k]});
        update.states[k] = out[2 + k];
      }
      b.run(c, kernels::Update<std::remove_cvref_t<decltype(rule)>>{rule, {&update, 1}, {}});
    });
  };
  for (const double steps_before : {0., 3.}) {
    expect(DampenedSgdRule{.dampening = 0.4, .weight_decay = 0.1}, 1, steps_before);
    expect(AdamRule{.lr = 0.01, .weight_decay = 0.1, .amsgrad = true}, 3, steps_before);
    expect(AdagradRule{.lr_decay = 0.3, .weight_decay = 0.1}, 1, steps_before);
  }
  expect(AdadeltaRule{.weight_decay = 0.1}, 2, 0);
}

// As in a recorded step: the same bits as with the learning rate among the arguments.
TEST_P(OptimizerTest, FindsItsRateInMemory) {
  const AdamRule adam{.lr = 0.02, .weight_decay = 0.1, .decoupled_weight_decay = true};
  const TestTensor memory({1}, DType::f64, {adam.lr}), steps({1}, DType::i64, {6});
  const Shape shape{777};
  const Tensors inputs{input(shape), input(shape), random_.tensor_between(0, 1, shape, dtype()), memory, steps};
  const auto step = [&](bool with_adam, bool in_memory) {
    return run(inputs, {output(shape), output(shape), output(shape), TestTensor({1}, DType::i64)},
               [&](Backend& b, KernelContext& c, Views in, Views out) {
                 for (std::size_t i = 0; i < 3; ++i) b.run(c, kernels::Copy{in[i == 2 ? 2 : 0], out[i]});
                 b.run(c, kernels::Copy{in[4], out[3]});
                 const Update<View> item{out[0], in[1], {out[1], with_adam ? out[2] : View()}, {}, out[3]};
                 const double lr = in_memory ? 99 : adam.lr;
                 AdamRule with_moments = adam;
                 with_moments.lr = lr;
                 const SgdRule sgd{.lr = lr, .momentum = 0.9, .weight_decay = 0.1};
                 const View rate = in_memory ? in[3] : View();
                 with_adam ? b.run(c, kernels::Update<AdamRule>{with_moments, {&item, 1}, {}, rate})
                           : b.run(c, kernels::Update<SgdRule>{sgd, {&item, 1}, {}, rate});
               });
  };
  for (bool with_adam : {false, true}) {
    const Tensors there = step(with_adam, true), here = step(with_adam, false);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(there[i].values(), here[i].values()) << with_adam << i;
    EXPECT_EQ(here[3].values(), std::vector<double>{with_adam ? 7.0 : 6.0});
  }
}

TEST_P(OptimizerTest, ClipScale) {
  for (double squared : {0.0, 0.04, 1.0, 1e10, 1e70}) {
    expect_matches_reference({TestTensor({1}, DType::f64, {squared})}, {TestTensor({1}, DType::f64)},
                             [](Backend& b, KernelContext& c, Views in, Views out) {
                               b.run(c, kernels::ClipScale{0.5, in[0], out[0]});
                             });
  }
}

TEST_P(OptimizerTest, LossScale) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                   kNone = std::numeric_limits<double>::quiet_NaN();
  struct Step {
    double squared, max_norm, scale, good;
    double factor, next_scale, next_good;
  };
  for (const Step& s :
       {Step{0, 0, 1024, 7, 1.0 / 1024, 1024, 8}, Step{1e30, 0, 1024, 7, 1.0 / 1024, 1024, 8},
        Step{1e30, 0, 0.5, 9, 2, 1, 0},                   // the tenth good step
        Step{16, 0.5, 2, 0, 0.5 / (2 + 1e-6) / 2, 2, 1},  // a norm of 4 / 2
        Step{16, 4, 2, 0, 0.5, 2, 1}, Step{kInfinity, 0.5, 1024, 9, -1, 512, 0}, Step{kNone, 0, 1024, 9, -1, 512, 0},
        Step{1, 0, LossScaleArgs::kMost, 9, 1 / LossScaleArgs::kMost, LossScaleArgs::kMost, 0},
        Step{kNone, 0, LossScaleArgs::kLeast, 9, -1, LossScaleArgs::kLeast, 0}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", s.squared, s.max_norm, s.scale, s.good));
    Tensors out =
        run({TestTensor({1}, DType::f64, {s.squared}), TestTensor({2}, DType::f32, {s.scale, s.good})},
            {TestTensor({1}, DType::f64), TestTensor({2}, DType::f32)},
            [&](Backend& b, KernelContext& c, Views in, Views out) {
              b.run(c, kernels::Copy{in[1], out[1]});
              b.run(c, kernels::LossScale{{.max_norm = s.max_norm, .growth_interval = 10}, in[0], out[1], out[0]});
            });
    EXPECT_EQ(out[0].values(), std::vector{s.factor});
    EXPECT_EQ(out[1].values(), (std::vector{s.next_scale, s.next_good}));
  }
}

// Gradients are not numbers then. The step counts all the same.
TEST_P(OptimizerTest, AFactorBelowZeroLeavesAllAsItIs) {
  const Shape shape{10007};
  const TestTensor none({1}, DType::f64, {-1}), grad = output(shape);
  const Tensors before{input(shape), input(shape), random_.tensor_between(0, 1, shape, dtype())};
  for (bool adam : {false, true}) {
    Tensors in = before, out{output(shape), output(shape), output(shape), TestTensor({1}, DType::i64)};
    in.insert(in.end(), {grad, none, TestTensor({1}, DType::i64, {4})});
    out = run(in, out, [&](Backend& b, KernelContext& c, Views in, Views out) {
      for (int i = 0; i < 3; ++i) b.run(c, kernels::Copy{in[i], out[i]});
      b.run(c, kernels::Copy{in[5], out[3]});
      Update<View> item{out[0], in[3], {out[1], adam ? out[2] : View{}}, {}, out[3]};
      if (adam) {
        b.run(c, kernels::Update<AdamRule>{{.weight_decay = 0.1, .decoupled_weight_decay = true}, {&item, 1}, in[4]});
      } else {
        b.run(c, kernels::Update<SgdRule>{{.momentum = 0.9, .weight_decay = 0.1}, {&item, 1}, in[4]});
      }
    });
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(out[i].same_bits(before[i])) << adam << i;
    EXPECT_EQ(out[3].values(), std::vector<double>{adam ? 5.0 : 4.0});
  }
}

// More than one launch of a GPU takes, every third of them not present.
TEST_P(OptimizerTest, LeavesOutWhatIsNotPresent) {
  constexpr int kCount = 150;
  Tensors inputs, outputs;
  for (int i = 0; i < kCount; ++i) inputs.push_back(TestTensor({1}, DType::u8, {i % 3 == 1 ? 0.0 : 1.0}));
  for (int i = 0; i < kCount; ++i) outputs.push_back(TestTensor({1 + i % 5}, dtype()));
  Tensors out = run(inputs, outputs, [](Backend& b, KernelContext& c, Views in, Views out) {
    std::vector<Update<View>> items;
    for (int i = 0; i < kCount; ++i) {
      b.run(c, kernels::Fill{1, out[i]});
      items.push_back({.weight = out[i], .grad = out[i], .present = in[i]});
    }
    b.run(c, kernels::Update<SgdRule>{{.lr = 0.25}, items, {}});
  });
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(out[i].values(), std::vector<double>(1 + i % 5, i % 3 == 1 ? 1 : 0.75)) << i;
  }
}

// Each counts its own steps, and one that is not present counts none.
TEST_P(OptimizerTest, AdamCountsTheStepsOfEachTensor) {
  constexpr int kCount = 150;
  const Shape shape{3};
  Tensors inputs, outputs;
  for (int i = 0; i < kCount; ++i) inputs.push_back(TestTensor({1}, DType::u8, {i % 3 == 1 ? 0.0 : 1.0}));
  inputs.push_back(input(shape));
  for (int i = 0; i < kCount; ++i) {
    for (int k = 0; k < 3; ++k) outputs.push_back(output(shape));
    outputs.push_back(TestTensor({1}, DType::i64));
  }
  Tensors out = run(inputs, outputs, [](Backend& b, KernelContext& c, Views in, Views out) {
    std::vector<Update<View>> items;
    for (int i = 0; i < kCount; ++i) {
      for (int k = 0; k < 3; ++k) b.run(c, kernels::Fill{0, out[4 * i + k]});
      b.run(c, kernels::Fill{static_cast<double>(i), out[4 * i + 3]});
      items.push_back({out[4 * i], in[kCount], {out[4 * i + 1], out[4 * i + 2]}, in[i], out[4 * i + 3]});
    }
    b.run(c, kernels::Update<AdamRule>{{}, items, {}});
  });
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(out[4 * i + 3].values(), std::vector<double>{i % 3 == 1 ? 1.0 * i : i + 1.0}) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OptimizerTest,  // Parameters are never bf16.
                         ::testing::ValuesIn(kernel_cases({DType::f32, DType::f64})), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
