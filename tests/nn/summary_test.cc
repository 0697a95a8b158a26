
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/summary.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Shapes are settled by the pass; a norm and the ReLU after it run as one and have rows of their own.
TEST(Summary, IsATableOfLayers) {
  Runtime runtime;
  Sequential net;
  net.append(Conv2d({.out_channels = 1200, .kernel_size = 3, .padding = 1})).append(BatchNorm2d()).append(ReLU());
  net.append("body", std::make_shared<Residual>(ResidualOptions{.channels = 4, .stride = 2, .project = true}));
  net.append(GlobalAvgPool2d()).append(Flatten()).append(Linear({.out_features = 3, .bias = false}));
  net.initialize(Xavier{}, runtime.devices());
  net.at<Conv2d>(0).freeze();
  net.at<BatchNorm2d>(1).bias.set_trainable(false);
  EXPECT_EQ(summary(net, {2, 1, 8, 6}),
            R"(Layer       Kind             Output shape     Parameters
------------------------------------------------------------------------
            Sequential       [2, 3]                    0
0           Conv2d           [2, 1200, 8, 6]      12,000  frozen
1           BatchNorm2d      [2, 1200, 8, 6]       2,400  frozen in part
2           ReLU             [2, 1200, 8, 6]           0
body        Residual         [2, 4, 4, 3]              0
body.conv1  Conv2d           [2, 4, 4, 3]         43,204  trainable
body.conv2  Conv2d           [2, 4, 4, 3]            148  trainable
body.conv3  Conv2d           [2, 4, 4, 3]          4,804  trainable
body.bn1    BatchNorm2d      [2, 4, 4, 3]              8  trainable
body.bn2    BatchNorm2d      [2, 4, 4, 3]              8  trainable
4           GlobalAvgPool2d  [2, 4, 1, 1]              0
5           Flatten          [2, 4]                    0
6           Linear           [2, 3]                   12  trainable
------------------------------------------------------------------------
62,584 parameters, 49,384 trainable, 13,200 frozen
250,336 bytes of parameters, 9,688 of buffers
)");
}

// Tokens, layers that are called by more than forward(x), and parameters that two layers share.
TEST(Summary, ShowsModelsOfTokens) {
  struct Model : Module {
    Embedding words{{.num_embeddings = 10, .embedding_dim = 4}};
    LSTM rnn{{.input_size = 4, .hidden_size = 6, .batch_first = true}};
    Linear unused{{.out_features = 2}};
    Model() { add("words", words), add("rnn", rnn), add("again", words), add("unused", unused); }
    Tensor forward(const Tensor& x) override { return rnn(words(x)).output; }
  };
  Runtime runtime;
  Model model;
  model.initialize(Xavier{}, runtime.devices());
  const std::string table = summary(model, {2, 5}, DType::i64);
  EXPECT_THAT(table, HasSubstr("\nwords   Embedding  [2, 5, 4]             40  trainable\n"));
  EXPECT_THAT(table, HasSubstr("\nrnn     LSTM       [2, 5, 6]            288  trainable\n"));
  EXPECT_THAT(table, HasSubstr("\nagain   Embedding  [2, 5, 4]              0\n"));
  // Its shape is not known: nobody called it.
  EXPECT_THAT(table, HasSubstr("\nunused  Linear                            ?  trainable\n"));
  EXPECT_THAT(table, HasSubstr("0 frozen; without those marked ?, whose shapes are not known\n"));
  EXPECT_EQ(summary(model, Tensor::host({2, 5}, DType::i64)), table);
}

// A wrapper has the model's names, but the parameters stay the model's.
TEST(Summary, AWrapperOwnsNothing) {
  struct Wrapper : Module {
    explicit Wrapper(Module& inner) : inner(inner) { pass_on(inner); }
    Tensor forward(const Tensor& x) override { return inner(x); }
    Module& inner;
  };
  Runtime runtime;
  BatchNorm2d norm({.channels = 5});
  Wrapper wrapper(norm);
  Wrapper twice(static_cast<Module&>(wrapper));
  norm.initialize(Xavier{}, runtime.devices());
  EXPECT_EQ(summary(twice, {2, 5, 3, 3}),
            R"(Layer  Kind         Output shape  Parameters
-------------------------------------------------------
       Wrapper      [2, 5, 3, 3]           0
       Wrapper      [2, 5, 3, 3]           0
       BatchNorm2d  [2, 5, 3, 3]          10  trainable
-------------------------------------------------------
10 parameters, 10 trainable, 0 frozen
40 bytes of parameters, 48 of buffers
)");
  EXPECT_TRUE(twice.named_parameters(false).empty());
  EXPECT_EQ(norm.named_parameters(false).size(), 2U);
  EXPECT_EQ(norm.named_buffers(false).size(), 3U);
}

TEST(Summary, TakesSeveralInputs) {
  struct Model : Module {
    MultiheadAttention attention{{.embed_dim = 4, .num_heads = 2}};
    TransformerEncoderLayer layer{{.d_model = 4, .nhead = 2, .dim_feedforward = 8}};
    Model() { add("attention", attention), add("layer", layer); }
    Tensor operator()(const Tensor& q, const Tensor& k) { return layer(attention(q, k, k).first, {.is_causal = true}); }
  };
  Runtime runtime;
  Model model;
  model.initialize(Xavier{}, runtime.devices());
  const Tensor q = Tensor::host({3, 1, 4}), k = Tensor::host({5, 1, 4});
  const Device device = runtime.devices()[0];
  for (const std::string& table : {summary(model, q, k), summary(model, [&] { model(q.to(device), k.to(device)); })}) {
    EXPECT_THAT(table,
                HasSubstr("\nattention                 MultiheadAttention       [3, 1, 4]             60  train"));
    EXPECT_THAT(table, HasSubstr("\nlayer                     TransformerEncoderLayer  [3, 1, 4]              0\n"));
    EXPECT_THAT(table,
                HasSubstr("\nlayer.linear1             Linear                   [3, 1, 8]             40  train"));
  }
}

// Draws random numbers in evaluation, too.
struct AlwaysDrops : Module {
  Tensor forward(const Tensor& x) override {
    EXPECT_FALSE(training());
    EXPECT_FALSE(x.requires_grad());
    return dropout(x, 0.5);
  }
};

TEST(Summary, LeavesNoTrace) {
  Runtime runtime({.cpu_devices = 2, .seed = 4});
  Sequential net;
  net.append(Conv2d({.out_channels = 3, .kernel_size = 3})).append(BatchNorm2d()).append<AlwaysDrops>();
  net.append<Dropout>(0.5);
  net.initialize(Xavier{}, runtime.devices());
  net.at<Dropout>(3).eval();
  const Tensor x = Tensor(Random(1).floats({2, 1, 5, 5})).to(runtime.devices()[0]);
  {
    NoGradGuard no_grad;
    EvalGuard mode(net);
    net(x);
  }
  runtime.random().next(-1);
  const RandomState::Position before = runtime.random().position();
  summary(net, {2, 1, 5, 5});
  EXPECT_EQ(runtime.random().position().step, before.step);
  EXPECT_EQ(runtime.random().position().draws, before.draws);
  EXPECT_TRUE(net.training());
  EXPECT_TRUE(net.at<BatchNorm2d>(1).training());
  EXPECT_FALSE(net.at<Dropout>(3).training());
  EXPECT_EQ(net.buffer("1.num_batches_tracked").host_data().item<std::int64_t>(), 0);
  EXPECT_EQ(net.buffer("1.running_mean").host_data().to_vector<float>(), (std::vector<float>{0, 0, 0}));
  for (const Parameter& p : net.parameters()) EXPECT_FALSE(p.gradient_state().present());
}

TEST(Summary, ErrorsLeaveNoTraceEither) {
  Runtime runtime;
  Sequential net;
  net.append(Linear({.in_features = 3, .out_features = 2}));
  net.initialize(Xavier{}, runtime.devices());
  EXPECT_ERROR(summary(net, {2, 4}), "linear: input has 4 features, weight expects 3");
  EXPECT_TRUE(net.training());
  EXPECT_THAT(summary(net, {7, 3}), HasSubstr("[7, 2]"));
  EXPECT_THAT(summary(net, {7, 3}), Not(HasSubstr("?")));
}

}  // namespace
}  // namespace lockstep::testing
