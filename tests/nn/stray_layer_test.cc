// A layer that a module computes with, but does not have as a child, is never trained: an error if nobody else has it.
#include <memory>
#include <vector>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_of.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/runtime/runtime.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

struct ByValue : Module {
  Linear a{4, 8};
  Linear& b = make<Linear>("b", 8, 2);
  Tensor forward(const Tensor& x) override { return b(relu(a(x))); }
};

struct InAVector : Module {
  InAVector() {
    for (int i = 0; i < 2; ++i) layers.emplace_back(4, 4);
  }
  std::vector<Linear> layers;
  Tensor forward(const Tensor& x) override { return layers[1](layers[0](x)); }
};

struct OfTwo : ModuleOf<OfTwo> {
  Sequential body{Linear(4, 4), ReLU()};
  Tensor forward(const Tensor& x, const Tensor& y) { return body(x) + y; }
};

struct Shared : Module {
  explicit Shared(Linear& layer) : layer(layer) {}
  Linear& layer;
  Linear& own = make<Linear>("own", 4, 4);
  Tensor forward(const Tensor& x) override { return layer(own(x)); }
};

struct WithTeacher : Module {
  std::unique_ptr<Linear> teacher = std::make_unique<Linear>(4, 4);
  Linear& own = make<Linear>("own", 4, 4);
  Tensor forward(const Tensor& x) override { return own(x) - (*teacher)(x); }
};

class StrayLayer : public ::testing::Test {
 protected:
  Runtime runtime_{{.cpu_devices = 1, .threads_per_shard = 1}};
  const Tensor x_ = ones({2, 4});
};

TEST_F(StrayLayer, IsAnError) {
  ByValue by_value;
  EXPECT_ERROR(by_value(x_),
               "module: Linear is called in forward() of ByValue, but is no child of ByValue, whose "
               "parameters() lack its own: expected a reference that ByValue makes, make<Linear>(");
  InAVector in_a_vector;
  EXPECT_ERROR(in_a_vector(x_), "Linear is called in forward() of InAVector");
  OfTwo of_two;
  EXPECT_ERROR(of_two(x_, x_), "Sequential is called in forward() of OfTwo");
  // After the error, the thread computes no module.
  Linear alone(4, 2);
  EXPECT_EQ(alone(x_).shape(), (Shape{2, 2}));
  // Also where it was evaluated before.
  ByValue evaluated;
  {
    const NoGradGuard no_grad;
    EXPECT_EQ(evaluated(x_).shape(), (Shape{2, 2}));
  }
  EXPECT_ERROR(evaluated(x_), "Linear is called in forward() of ByValue");
}

struct Unregistered : Module {
  Linear a{4, 4};
  Sequential b{Linear(4, 4), ReLU()};
  Linear& c = make<Linear>("c", 4, 2);
  bool second = false;
  Tensor forward(const Tensor& x) override { return c(second ? b.forward(x) : a.forward(x)); }
};

// A call of forward() is no call of the module, but uses its parameters.
TEST_F(StrayLayer, WhoseForwardIsCalledIsAnError) {
  Unregistered net;
  EXPECT_ERROR(net(x_), "Linear is called in forward() of Unregistered, but is no child of Unregistered");
  {
    const NoGradGuard no_grad;
    EXPECT_EQ(net(x_).shape(), (Shape{2, 2}));
  }
  EXPECT_ERROR(net(x_), "Linear is called in forward() of Unregistered");
  net.second = true;
  EXPECT_ERROR(net(x_), "Sequential is called in forward() of Unregistered");
  Unregistered known;
  const auto claim = known.a.weight.claim(), other = known.a.bias.claim();
  EXPECT_EQ(known(x_).shape(), (Shape{2, 2}));
}

struct Later : Module {
  Linear& layer = make<Linear>("layer", 4, 4);
};

struct Earlier : Module {
  Linear* layer = nullptr;
  void take(Linear& other) { add("layer", *(layer = &other)); }
  Tensor forward(const Tensor& x) override { return (*layer)(x); }
};

// A child of two modules is known to both.
TEST_F(StrayLayer, ThatIsSharedIsNone) {
  Earlier earlier;
  Later later;
  earlier.take(later.layer);
  EXPECT_EQ(earlier(x_).shape(), (Shape{2, 4}));
}

TEST_F(StrayLayer, OfSomebodyElseIsNone) {
  Linear elsewhere(4, 4);
  Shared net(elsewhere);
  EXPECT_EQ(net(x_).shape(), (Shape{2, 4}));
  Sequential owner(Linear(4, 4));
  Shared tied(dynamic_cast<Linear&>(owner.module("0")));
  EXPECT_EQ(tied(x_).shape(), (Shape{2, 4}));
}

struct WithDropout : Module {
  Linear& a = make<Linear>("a", 4, 4);
  Dropout drop{0.5};
  ReLU relu;
  bool calls_forward = false;
  Tensor forward(const Tensor& x) override { return relu(calls_forward ? drop.forward(a(x)) : drop(a(x))); }
};

struct WithBatchNorm : Module {
  Linear& a = make<Linear>("a", 4, 4);
  BatchNorm1d norm{4, {.affine = false}};
  Tensor forward(const Tensor& x) override { return norm(a(x)); }
};

struct WithTail : Module {
  Linear& a = make<Linear>("a", 4, 4);
  Sequential tail{ReLU(), Dropout(0.5)};
  bool calls_forward = false;
  Tensor forward(const Tensor& x) override { return calls_forward ? tail.forward(a(x)) : tail(a(x)); }
};

// The mode of these makes no difference.
struct WithoutMode : Module {
  Linear& a = make<Linear>("a", 4, 4);
  Dropout drop{0.0};
  BatchNorm1d norm{4, {.affine = false, .track_running_stats = false}};
  Tensor forward(const Tensor& x) override { return norm(drop(a(x))); }
};

TEST_F(StrayLayer, OfOtherLayersInTrainingModeIsAnErrorInAnEvaluatedModule) {
  WithTail net;
  EXPECT_EQ(net(x_).shape(), (Shape{2, 4}));
  net.eval();
  for (const bool calls_forward : {false, true}) {
    net.calls_forward = calls_forward;
    EXPECT_ERROR(net(x_), "computes in training mode in WithTail");
  }
  net.tail.eval();
  EXPECT_EQ(net(x_).shape(), (Shape{2, 4}));
  WithoutMode free;
  free.eval();
  EXPECT_EQ(free(x_).shape(), (Shape{2, 4}));
  // After the error, the thread computes no module.
  Dropout alone(0.5);
  EXPECT_EQ(alone(x_).shape(), (Shape{2, 4}));
}

// It has no parameters, but eval() does not reach it.
TEST_F(StrayLayer, InTrainingModeIsAnErrorInAnEvaluatedModule) {
  WithDropout net;
  EXPECT_EQ(net(x_).shape(), (Shape{2, 4}));
  net.eval();
  for (const bool calls_forward : {false, true}) {
    net.calls_forward = calls_forward;
    EXPECT_ERROR(
        net(x_),
        "module: Dropout computes in training mode in WithDropout, which is in evaluation mode, but Dropout is "
        "no child of WithDropout");
  }
  const NoGradGuard no_grad;
  EXPECT_ERROR(net(x_), "make<Dropout>(");
  net.drop.eval();
  EXPECT_EQ(net(x_).shape(), (Shape{2, 4}));
  WithBatchNorm normalized;
  EXPECT_EQ(normalized(x_).shape(), (Shape{2, 4}));
  normalized.eval();
  EXPECT_ERROR(normalized(x_), "BatchNorm1d computes in training mode in WithBatchNorm");
}

TEST_F(StrayLayer, ThatIsFrozenInitializedOrOptimizedIsNone) {
  WithTeacher frozen, initialized, optimized;
  frozen.teacher->freeze();
  EXPECT_EQ(frozen(x_).shape(), (Shape{2, 4}));
  initialized.teacher->initialize(Xavier{});
  EXPECT_EQ(initialized(x_).shape(), (Shape{2, 4}));
  const auto claim = optimized.teacher->weight.claim();  // as an optimizer does
  EXPECT_EQ(optimized(x_).shape(), (Shape{2, 4}));
  WithTeacher plain;
  EXPECT_ERROR(plain(x_), "for one that is not trained, freeze() or a NoGradGuard");
}

}  // namespace
}  // namespace lockstep::testing
