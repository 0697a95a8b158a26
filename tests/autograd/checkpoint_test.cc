// Checkpoints of functions: the graph is that of a plain call, and backward() calls the function again.
#include "lockstep/autograd/checkpoint.h"

#include <gtest/gtest.h>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/grad.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/tensor_hooks.h"
#include "lockstep/runtime/random_state.h"
#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

class CheckpointOfFunction : public ::testing::Test {
 protected:
  Tensor constant(const std::vector<double>& v) {
    return make_tensor(v, {static_cast<std::int64_t>(v.size())}, runtime_.devices()[0]);
  }
  Tensor leaf(const std::vector<double>& v) { return constant(v).set_requires_grad(true); }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1}};
};

using Lists = std::vector<std::vector<double>>;

TEST_F(CheckpointOfFunction, SeveralInputsAndResults) {
  const auto f = [](const Tensor& a, const Tensor& b) { return std::pair(exp(a) * b, sin(b)); };
  const auto pass = [&](bool keeps) -> Lists {
    Tensor x = leaf({1, 2}), y = leaf({3, 4});
    const Tensor a = x * y;
    const auto [p, q] = keeps ? checkpoint(f, a, y) : f(a, y);
    sum(p * q + a).backward();
    return {values(p), values(q), values(x.grad()), values(y.grad())};
  };
  EXPECT_EQ(pass(true), pass(false));
}

TEST_F(CheckpointOfFunction, TensorsThatTheFunctionCapturesHaveGradients) {
  const auto pass = [&](bool keeps) -> Lists {
    Tensor x = leaf({1, 2}), w = leaf({3, 4});
    const Tensor h = exp(w);
    const auto f = [&](const Tensor& a) { return a * h * w; };
    const Tensor data = constant({5, 6});
    sum((keeps ? checkpoint(f, data) : f(data)) * h + x).backward();
    return {values(w.grad()), values(x.grad())};
  };
  EXPECT_EQ(pass(true), pass(false));
}

TEST_F(CheckpointOfFunction, CallsTheFunctionOnceInEachPass) {
  int calls = 0;
  Tensor x = leaf({1, 2});
  const auto f = [&](const Tensor& a) {
    ++calls;
    EXPECT_TRUE(grad_enabled());
    return exp(a) * a;
  };
  const Tensor y = sum(checkpoint(f, x)), seed;
  EXPECT_EQ(calls, 1);
  backward(std::span(&y, 1), std::span(&seed, 1), {}, true);
  const auto once = values(x.grad());
  x.zero_grad();
  y.backward();
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(values(x.grad()), once);
  EXPECT_ERROR(y.backward(), "was used by an earlier backward()");
  EXPECT_EQ(calls, 3);
}

TEST_F(CheckpointOfFunction, ADrawIsMadeOnce) {
  const auto f = [](const Tensor& a) { return exp(dropout(a, 0.5) + rand_like(a)); };
  const auto pass = [&](bool keeps) {
    runtime_.random().restart(4);
    Tensor x = leaf({1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor y = keeps ? checkpoint(f, x) : f(x);
    sum(y).backward();
    return std::tuple(values(y), values(x.grad()), runtime_.random().next(-1), runtime_.random().next(0));
  };
  EXPECT_EQ(pass(true), pass(false));
}

TEST_F(CheckpointOfFunction, WhatLastsChangesOnceAndOwnKeysStay) {
  int changes = 0, calls = 0;
  std::uint64_t number = 0;
  std::vector<RandomKey> keys;
  Tensor x = leaf({1, 2}), statistics = constant({0, 0});
  const auto f = [&](const Tensor& a) {
    ++calls;
    checkpoint_once([&] {
      ++changes;
      statistics.copy_(statistics + a.detach());
    });
    keys.push_back(checkpoint_key([&] { return random_key(++number, {1}); }));
    return exp(a);
  };
  sum(checkpoint(f, x)).backward();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(values(statistics), std::vector<double>({1, 2}));
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_EQ(number, 1u);
}

TEST_F(CheckpointOfFunction, CheckpointsMayContainCheckpoints) {
  const auto call = [](bool keeps, const auto& f, const Tensor& x) { return keeps ? checkpoint(f, x) : f(x); };
  const auto pass = [&](bool keeps) {
    runtime_.random().restart(4);
    Tensor x = leaf({1, 2, 3, 4}), w = leaf({5, 6, 7, 8});
    const auto inner = [&](const Tensor& a) { return dropout(sin(a * w), 0.3); };
    const auto middle = [&](const Tensor& a) { return call(keeps, inner, a) + call(keeps, inner, exp(a)); };
    const auto outer = [&](const Tensor& a) { return call(keeps, middle, a * w) * dropout(w, 0.2); };
    const Tensor loss = sum(call(keeps, outer, cos(x)) * w), seed;
    // The graph is kept once, so that the inner checkpoints are there again.
    backward(std::span(&loss, 1), std::span(&seed, 1), {}, true);
    const auto first = values(w.grad());
    loss.backward();
    return std::tuple(loss.item(), first, values(x.grad()), values(w.grad()), runtime_.random().next(-1));
  };
  EXPECT_EQ(pass(true), pass(false));
}

TEST_F(CheckpointOfFunction, HooksAndGradientsOfResultsInside) {
  const auto pass = [&](bool keeps) -> Lists {
    Tensor x = leaf({1, 2});
    int hooks = 0;
    Tensor inside;
    const auto f = [&](const Tensor& a) {
      const Tensor h = exp(a);
      if (!inside.defined()) {
        inside = h;
        register_hook(h, [&hooks](const Tensor& g) {
          ++hooks;
          return g * 3;
        });
      }
      return h * h;
    };
    const Tensor y = sum(keeps ? checkpoint(f, x) : f(x));
    const Tensor outputs[] = {y}, inputs[] = {inside, x}, seeds[] = {Tensor()};
    const auto found = grad(outputs, inputs, seeds, true);
    y.backward();
    EXPECT_EQ(hooks, 2);
    return {values(found[0]), values(found[1]), values(x.grad())};
  };
  EXPECT_EQ(pass(true), pass(false));
}

TEST_F(CheckpointOfFunction, ChangesInPlaceAreErrors) {
  Tensor x = leaf({1, 2});
  const Tensor w = constant({3, 4}), h = x * 2;
  const auto f = [&](const Tensor& a) { return exp(a) + w; };
  const Tensor of_captured = sum(checkpoint(f, x)), of_input = sum(checkpoint(f, h));
  {
    const NoGradGuard no_grad;
    h.copy_from(constant({0, 0}));
  }
  EXPECT_ERROR(of_input.backward(),
               "checkpoint: a tensor, which the function read, was changed in place after forward");
  w.copy_from(constant({0, 0}));
  EXPECT_ERROR(of_captured.backward(), "was changed in place after forward: version");
  EXPECT_FALSE(x.grad().defined());
  sum(checkpoint(f, x)).backward();
  EXPECT_EQ(values(x.grad()), values(exp(x)));
}

TEST_F(CheckpointOfFunction, AnotherFunctionIsAnError) {
  Tensor x = leaf({1, 2});
  int calls = 0;
  const auto backward_of = [&](const std::function<Tensor(const Tensor&)>& first,
                               const std::function<Tensor(const Tensor&)>& second) {
    calls = 0;
    sum(checkpoint([&](const Tensor& a) { return calls++ == 0 ? first(a) : second(a); }, x)).backward();
  };
  const auto e = [](const Tensor& a) { return exp(a); };
  EXPECT_ERROR(backward_of(e, [](const Tensor& a) { return sin(a); }), "checkpoint: operation 0 of the function is");
  EXPECT_ERROR(backward_of(e, [](const Tensor& a) { return exp(exp(a)); }),
               "checkpoint: the function has 2 operations with a gradient in backward(), expected 1 as in forward");
  EXPECT_ERROR(backward_of(e, [](const Tensor& a) { return unsqueeze(exp(a), 0); }),
               "checkpoint: result 0 of the function is [1, 2] f32");
  EXPECT_ERROR(backward_of(e, [](const Tensor& a) { return exp(dropout(a, 0.5)); }), "random numbers more than the 0");
  EXPECT_ERROR(backward_of([](const Tensor& a) { return exp(dropout(a, 0.5)); }, e), "checkpoint: operation 0");
  EXPECT_TRUE(grad_enabled());
  EXPECT_FALSE(x.grad().defined());
  backward_of(e, e);
  EXPECT_EQ(values(x.grad()), values(exp(x)));
  EXPECT_ERROR(checkpoint(CheckpointFunction(), std::vector{x}), "checkpoint: no function");
}

TEST_F(CheckpointOfFunction, OtherOperandsAreAnError) {
  Tensor x = leaf({1, 2}), v = leaf({3, 4}), w = leaf({5, 6});
  Tensor h = x * 2;
  const auto other_operands = "has other operands in backward() than in forward";
  // As an operation in place in Python replaces a tensor.
  const Tensor of_captured = sum(checkpoint([&](const Tensor& a) { return sin(a * h); }, x));
  const Tensor before = h;
  h = h * 5;
  EXPECT_ERROR(of_captured.backward(), other_operands);
  h = before;
  const Tensor of_leaves = sum(checkpoint([&](const Tensor& a) { return sin(a * v) * w; }, x));
  std::swap(v, w);
  EXPECT_ERROR(of_leaves.backward(), other_operands);
  std::swap(v, w);
  Tensor total = constant({0, 0});
  const Tensor of_written = sum(checkpoint([&](const Tensor& a) { return total = total + a * w; }, x));
  EXPECT_ERROR(of_written.backward(), other_operands);
  EXPECT_FALSE(x.grad().defined());
  // The inputs may be captured, and one may be given twice.
  const auto pass = [&](bool keeps) {
    const Tensor y = x * 3;
    const auto f = [&](const Tensor& a, const Tensor& b) { return exp(a) * y + b; };
    x.zero_grad();
    sum(keeps ? checkpoint(f, y, y) : f(y, y)).backward();
    return values(x.grad());
  };
  EXPECT_EQ(pass(true), pass(false));
}

TEST_F(CheckpointOfFunction, WhatTheHostReadsIsRead) {
  Tensor x = leaf({1, 2});
  const Tensor s = constant({2}), mask = constant({0, 1});
  const Tensor of_item = sum(checkpoint([&](const Tensor& a) { return exp(a * s.item()); }, x));
  const Tensor of_places = sum(checkpoint([&](const Tensor& a) { return masked_select(exp(a), gt(mask, 0)); }, x));
  s.copy_from(constant({3}));
  EXPECT_ERROR(of_item.backward(), "was changed in place after forward");
  mask.copy_from(constant({1, 0}));
  EXPECT_ERROR(of_places.backward(), "was changed in place after forward");
}

TEST_F(CheckpointOfFunction, HooksInsideRunOnceAndBackwardInsideIsAnError) {
  Tensor x = leaf({1, 2});
  int runs = 0;
  const auto f = [&](const Tensor& a) {
    register_hook(x, [&](const Tensor& g) {
      ++runs;
      return g * 2;
    });
    return exp(a);
  };
  sum(checkpoint(f, x)).backward();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(values(x.grad()), values(exp(x) * 2));
  const auto passes = [](const Tensor& a) {
    sum(exp(a)).backward();
    return exp(a);
  };
  EXPECT_ERROR(checkpoint(passes, x), "would add its gradients twice");
}

// Notes the names of operations.
class NamesOfOperations : public ForwardTrace {
 public:
  void operation(std::string_view name, std::span<const Tensor>, std::span<const Tensor>, OpTraits) override {
    names.emplace_back(name);
  }
  void same(const Tensor&, const Tensor&) override {}
  void function(std::string_view name, std::span<const Tensor>, std::span<const Tensor>) override {
    names.emplace_back(name);
  }
  void read(std::string_view, const Tensor&) override {}
  void write(const Tensor&, const Tensor&) override {}
  void enter(const void*) override {}
  void leave() override {}
  std::vector<std::string> names;
};

TEST_F(CheckpointOfFunction, IsAPlainCallInATraceAndWithoutRecording) {
  int calls = 0;
  Tensor x = leaf({1, 2});
  const auto f = [&](const Tensor& a) {
    ++calls;
    return exp(a) * a;
  };
  Tensor y;
  std::vector<std::string> traced, plain;
  {
    NamesOfOperations trace;
    y = checkpoint(f, x);
    traced = trace.names;
  }
  {
    NamesOfOperations trace;
    exp(x) * x;
    plain = trace.names;
  }
  EXPECT_EQ(traced, plain);
  EXPECT_EQ(traced.size(), 2U);
  sum(y).backward();
  EXPECT_EQ(calls, 1);
  const NoGradGuard no_grad;
  EXPECT_FALSE(checkpoint(f, x).requires_grad());
}

TEST_F(CheckpointOfFunction, LongChainsNeedNoDeepRecursion) {
  Tensor x = leaf({1});
  for (bool backward : {true, false}) {
    Tensor y = x;
    for (int i = 0; i < 20'000; ++i) y = checkpoint([](const Tensor& a) { return a + 1; }, y);
    if (backward) y.backward();
  }
  EXPECT_EQ(values(x.grad()), std::vector<double>{1});
}

}  // namespace
}  // namespace lockstep::testing
