// A batch that fails on the devices: the program catches the error and trains on as if the batch had not been there.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/weight_average.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

constexpr std::int64_t kLabelCount = 3, kBatchRows = 16, kWords = 5;

using Map = Tensor (*)(const Tensor&);
Tensor identity(const Tensor& x) { return x; }

// An embedding, so that indices can be wrong, batch norm, and dropout, whose masks depend on the number of steps.
class WordModel {
 public:
  explicit WordModel(int devices, int lanes = 1)
      : runtime_({.cpu_devices = devices, .cores_per_device = lanes, .threads_per_shard = 1}) {
    net_.append<Linear>(LinearOptions{.in_features = 4, .out_features = 8});
    net_.append<BatchNorm1d>().append<ReLU>().append<Dropout>(0.3);
    net_.append<Linear>(LinearOptions{.in_features = 8, .out_features = kLabelCount});
    words_.initialize(Normal{1}, runtime_.devices());
    net_.initialize(Kaiming{}, runtime_.devices(), {.seed = 2});
    std::vector<Parameter> all = net_.parameters();
    for (const Parameter& p : words_.parameters()) all.push_back(p);
    optimizer_ = std::make_unique<Adam>(all, AdamOptions{.lr = 0.05});
  }

  // One number a row, over eight shards.
  Tensor cut(const std::vector<std::int64_t>& rows) {
    std::vector<Slot> slots;
    const auto& devices = runtime_.devices();
    for (int s = 0; s < 8; ++s) slots.push_back({s, devices[static_cast<std::size_t>(s) * devices.size() / 8]});
    return scatter(Tensor::from(rows, {kBatchRows}),
                   std::make_shared<Placement>(std::vector<std::int64_t>(8, kBatchRows / 8), slots));
  }
  Tensor loss(const std::vector<std::int64_t>& words, const std::vector<std::int64_t>& labels, Map map = identity) {
    return cross_entropy(net_(map(words_(cut(words)))), cut(labels));
  }
  Tensor good_loss(std::int64_t seed) {
    std::vector<std::int64_t> words, labels;
    for (std::int64_t i = 0; i < kBatchRows; ++i) {
      words.push_back((i * i + seed) % kWords);
      labels.push_back((i + seed) % kLabelCount);
    }
    return loss(words, labels);
  }
  Tensor bad_labels(Map map = identity) {
    std::vector<std::int64_t> words(kBatchRows, 1), labels(kBatchRows, 1);
    labels[3] = labels[13] = 99;
    return loss(words, labels, map);
  }
  Tensor bad_words() {
    std::vector<std::int64_t> words(kBatchRows, 1), labels(kBatchRows, 1);
    words[6] = kWords;
    return loss(words, labels);
  }
  void step(const Tensor& loss) {
    loss.backward();
    optimizer_->clip_grad_norm(1);
    optimizer_->step();
  }

  // Every replica of everything that lasts.
  std::vector<std::vector<double>> state() {
    std::vector<std::vector<double>> all;
    for (const Module* m : {static_cast<const Module*>(&net_), static_cast<const Module*>(&words_)}) {
      for (const auto& [name, p] : m->named_parameters()) {
        for (Device d : p.devices()) all.push_back(values(p.data(d)));
      }
      for (const auto& [name, tensor] : state_dict(*m)) all.push_back(values(tensor.to(runtime_.devices()[0])));
    }
    for (const auto& [name, tensor] : optimizer_->state_dict()) all.push_back(values(tensor.to(runtime_.devices()[0])));
    return all;
  }

  Runtime runtime_;
  Embedding words_{{.num_embeddings = kWords, .embedding_dim = 4}};
  Sequential net_;
  std::unique_ptr<Adam> optimizer_;
};

class FailedStep : public ::testing::TestWithParam<int> {
 protected:
  WordModel model_{GetParam()}, same_{GetParam()};
};

TEST_P(FailedStep, CountsForNothing) {
  model_.step(model_.good_loss(1));
  const Tensor bad = model_.bad_words();
  model_.step(bad);
  EXPECT_THROW(bad.item(), TaskError);
  model_.step(model_.good_loss(2));
  model_.step(model_.good_loss(3));
  for (int seed = 1; seed <= 3; ++seed) same_.step(same_.good_loss(seed));
  EXPECT_EQ(model_.state(), same_.state());
  EXPECT_EQ(model_.optimizer_->steps(), 3);
  model_.runtime_.synchronize();
}

// Batch norm has seen the inputs of the batch before the labels turn out to be wrong, as in PyTorch.
TEST_P(FailedStep, OfBadLabelsLeavesTheWeights) {
  model_.net_.eval();
  same_.net_.eval();
  model_.step(model_.good_loss(1));
  const Tensor bad = model_.bad_labels();
  model_.step(bad);
  EXPECT_THROW(bad.item(), TaskError);
  model_.step(model_.good_loss(2));
  for (int seed = 1; seed <= 2; ++seed) same_.step(same_.good_loss(seed));
  EXPECT_EQ(model_.state(), same_.state());
  // Two shards failed; one error was enough.
  model_.runtime_.synchronize();
}

TEST_P(FailedStep, LeavesNoGradientToTheNextOne) {
  model_.step(model_.good_loss(1));
  const Tensor bad = model_.bad_words();
  bad.backward();
  EXPECT_THROW(bad.item(), TaskError);
  // The next batch has other masks in dropout, because the failed one has drawn some.
  model_.net_.eval();
  model_.step(model_.good_loss(2));
  same_.step(same_.good_loss(1));
  same_.net_.eval();
  same_.step(same_.good_loss(2));
  EXPECT_EQ(model_.state(), same_.state());
}

// A program that never reads its losses learns of it where it reads the weights, once.
TEST_P(FailedStep, IsReportedWhereTheWeightsAreRead) {
  model_.step(model_.bad_words());
  EXPECT_THROW(state_dict(model_.net_), TaskError);
  state_dict(model_.net_);
  model_.state();
}

// The gradient of the penalty is good, and the only one. Its loss is not.
TEST_P(FailedStep, LeavesWeightsWhoseOwnGradientIsGood) {
  const auto weights = [&] { return values(model_.words_.weight.data(model_.runtime_.devices().back())); };
  const auto before = weights();
  const Tensor bad = model_.bad_words().detach() + sum(square(model_.words_.weight));
  bad.backward();
  model_.optimizer_->step();
  EXPECT_THROW(bad.item(), TaskError);
  EXPECT_EQ(weights(), before);
}

TEST_P(FailedStep, OfMicroBatchesLeavesTheGoodOnes) {
  model_.net_.eval();
  same_.net_.eval();
  model_.good_loss(1).backward({.share = 0.5});
  const Tensor bad = model_.bad_labels();
  bad.backward({.share = 0.5});
  EXPECT_THROW(bad.item(), TaskError);
  model_.good_loss(2).backward({.share = 0.5});
  model_.optimizer_->step();
  same_.good_loss(1).backward({.share = 0.5});
  same_.good_loss(2).backward({.share = 0.5});
  same_.optimizer_->step();
  EXPECT_EQ(model_.state(), same_.state());
}

// The gradients of the bad batch wait for a step, changed or with factors, when the program catches the error.
TEST_P(FailedStep, LeavesNoClippedGradientToTheNextOne) {
  using Clip = std::function<void(Optimizer&)>;
  const std::array<Clip, 3> clips{[](Optimizer& o) { o.clip_grad_norm(1); }, [](Optimizer& o) { o.clip_grad_value(1); },
                                  [](Optimizer& o) {
                                    for (const Parameter& p : o.parameters())
                                      p.map_gradient([](const Tensor& g) { return g * 2; });
                                  }};
  for (WordModel* m : {&model_, &same_}) m->net_.eval();
  for (const Clip& clip : clips) {
    const Tensor bad = model_.bad_words();
    bad.backward();
    clip(*model_.optimizer_);
    EXPECT_THROW(bad.item(), TaskError);
    for (WordModel* m : {&model_, &same_}) {
      m->good_loss(1).backward();
      clip(*m->optimizer_);
      m->optimizer_->step();
    }
    EXPECT_EQ(model_.state(), same_.state());
  }
}

TEST_P(FailedStep, LeavesNoUnscaledGradientToTheNextOne) {
  LossScaler scaler(model_.runtime_.devices(), {.initial_scale = 8});
  const auto prepare = [&](const Tensor& loss) {
    loss.backward({.scales = scaler.scales()});
    model_.optimizer_->unscale(scaler, 1);
  };
  for (WordModel* m : {&model_, &same_}) m->net_.eval();
  const Tensor bad = model_.bad_words();
  prepare(bad);
  EXPECT_THROW(bad.item(), TaskError);
  prepare(model_.good_loss(1));
  model_.optimizer_->step();
  same_.step(same_.good_loss(1));
  EXPECT_EQ(model_.state(), same_.state());
}

// As for the gradients themselves.
TEST_P(FailedStep, LeavesWeightsWhoseMappedGradientIsGood) {
  const auto weights = [&] { return values(model_.words_.weight.data(model_.runtime_.devices().back())); };
  const auto before = weights();
  const Tensor bad = model_.bad_words().detach() + sum(square(model_.words_.weight));
  bad.backward();
  model_.optimizer_->clip_grad_value(1);
  model_.words_.weight.map_gradient([](const Tensor& g) { return g * 2; });
  model_.optimizer_->step();
  EXPECT_THROW(bad.item(), TaskError);
  EXPECT_EQ(weights(), before);
}

TEST_P(FailedStep, IsNotTakenFromALoadedNumberOfSteps) {
  model_.step(model_.good_loss(1));
  const StateDict state = model_.optimizer_->state_dict();
  const Tensor bad = model_.bad_words();
  model_.step(bad);
  model_.optimizer_->load_state_dict(state);
  EXPECT_THROW(bad.item(), TaskError);
  EXPECT_EQ(model_.optimizer_->steps(), 1);
  EXPECT_EQ(state_of(model_.runtime_.devices()[0], "test").random()->step(), 1U);
}

// A hook that draws random numbers would clip by the norm of other gradients than the step's.
TEST_P(FailedStep, OfAnotherModelLeavesMappedGradients) {
  int calls = 0;
  model_.words_.weight.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 1;
  });
  model_.good_loss(1).backward();
  EXPECT_THROW(model_.bad_words().item(), TaskError);
  model_.optimizer_->clip_grad_norm(1);
  model_.optimizer_->step();
  EXPECT_EQ(calls, 1);
}

TEST_P(FailedStep, LeavesTheLossScale) {
  LossScaler scaler(model_.runtime_.devices(), {.initial_scale = 8});
  const Tensor bad = model_.bad_labels();
  bad.backward({.scales = scaler.scales()});
  model_.optimizer_->unscale(scaler);
  model_.optimizer_->step();
  EXPECT_THROW(bad.item(), TaskError);
  EXPECT_EQ(scaler.state().scale, 8);
  EXPECT_EQ(scaler.state().good_steps, 0);
}

// As if the program had called step() before it read the error: nothing is left to step with.
TEST_P(FailedStep, WhoseErrorIsReadFirstDoesNotCount) {
  model_.step(model_.good_loss(1));
  const Tensor bad = model_.bad_words();
  bad.backward();
  EXPECT_THROW(bad.item(), TaskError);
  EXPECT_ERROR(model_.optimizer_->clip_grad_norm(1), "the gradients were dropped, because their batch failed");
  model_.optimizer_->step();
  EXPECT_EQ(model_.optimizer_->steps(), 1);
  EXPECT_EQ(state_of(model_.runtime_.devices()[0], "test").random()->step(), 1U);
  for (int seed = 2; seed <= 3; ++seed) model_.step(model_.good_loss(seed));
  for (int seed = 1; seed <= 3; ++seed) same_.step(same_.good_loss(seed));
  EXPECT_EQ(model_.state(), same_.state());
}

// Its gradient adds up for ever, and nobody reads it.
TEST_P(FailedStep, OfAParameterWithoutAnOptimizerIsReportedOnce) {
  Sgd head(std::vector<Parameter>{model_.net_.parameters().back()}, {.lr = 0.1});
  std::vector<Tensor> losses;
  int thrown = 0;
  for (int step = 0; step < 12; ++step) {
    losses.push_back(step == 3 ? model_.bad_labels() : model_.good_loss(step));
    losses.back().backward();
    head.step();
    if (step < 2) continue;
    try {
      losses[static_cast<std::size_t>(step) - 2].item();
    } catch (const TaskError&) {
      ++thrown;
      EXPECT_EQ(step, 5);
    }
  }
  EXPECT_EQ(thrown, 1);
  model_.runtime_.synchronize();
}

// A label that is none fails the gradient, and a task beside it, apart from the loss.
struct FailsBackward : Function {
  Tensor forward(const Tensor& x) { return x * 1; }
  Tensor backward(const Tensor& dy) {
    const Tensor zeros = full_like(dy.detach(), 0);
    const auto fail = [&] { return cross_entropy(zeros, sum(zeros + 99, 1).to(DType::i64)); };
    fail();
    return dy * fail();
  }
};

Tensor fail_backward(const Tensor& x) { return apply<FailsBackward>(x); }

// Its loss and its gradients fail apart from one another. The program reads the loss and does not step.
TEST_P(FailedStep, ThatIsSkippedIsReportedOnce) {
  for (const bool clears : {false, true}) {
    const Tensor bad = model_.bad_labels(fail_backward);
    bad.backward();
    EXPECT_THROW(bad.item(), TaskError);
    if (clears) model_.optimizer_->zero_grad();
    model_.step(model_.good_loss(1));
    model_.runtime_.synchronize();
  }
}

TEST_P(FailedStep, WhoseGradientIsReadIsReportedOnce) {
  model_.bad_labels(fail_backward).backward();
  EXPECT_THROW(values(model_.words_.weight.gradient(model_.runtime_.devices()[0])), TaskError);
  model_.step(model_.good_loss(1));
  model_.runtime_.synchronize();
}

// The gradients of the parameters above the failure are good, but they are of a part of the batch.
TEST_P(FailedStep, OfABackwardPassLeavesNoGradientToTheNextOne) {
  for (WordModel* m : {&model_, &same_}) m->net_.eval();
  const std::vector<std::int64_t> words(kBatchRows, 1);
  const Tensor bad = mean(square(model_.net_(fail_backward(model_.words_(model_.cut(words))))));
  bad.backward();
  EXPECT_THROW(values(model_.words_.weight.gradient(model_.runtime_.devices()[0])), TaskError);
  bad.item();
  model_.step(model_.good_loss(1));
  same_.step(same_.good_loss(1));
  EXPECT_EQ(model_.state(), same_.state());
}

// The program knows of one of two failures. The gradients of the other batch stay, so that the step reports it.
TEST_P(FailedStep, OfMicroBatchesReportsThatOfEachBatch) {
  for (WordModel* m : {&model_, &same_}) m->step(m->good_loss(0));
  for (WordModel* m : {&model_, &same_}) m->net_.eval();
  const Tensor bad = model_.bad_labels();
  bad.backward({.share = 0.5});
  model_.bad_words().backward({.share = 0.5});
  EXPECT_THROW(bad.item(), TaskError);
  model_.step(model_.good_loss(1));
  EXPECT_THROW(state_dict(model_.net_), TaskError);
  EXPECT_EQ(model_.state(), same_.state());
  model_.step(model_.good_loss(2));
  same_.step(same_.good_loss(2));
  EXPECT_EQ(model_.state(), same_.state());
  model_.runtime_.synchronize();
}

// The gradients of a good batch were added to those of the bad one before the program read the latter's loss.
TEST_P(FailedStep, ThatTakesAGoodMicroBatchAlongIsReportedAgain) {
  for (WordModel* m : {&model_, &same_}) m->step(m->good_loss(0));
  for (WordModel* m : {&model_, &same_}) m->net_.eval();
  const Tensor bad = model_.bad_labels();
  bad.backward({.share = 0.5});
  model_.good_loss(1).backward({.share = 0.5});
  model_.good_loss(2).backward({.share = 0.5});
  EXPECT_THROW(bad.item(), TaskError);
  model_.step(model_.good_loss(3));
  EXPECT_THROW(state_dict(model_.net_), TaskError);
  EXPECT_EQ(model_.state(), same_.state());
  EXPECT_EQ(model_.optimizer_->steps(), 1);
  model_.step(model_.good_loss(4));
  same_.step(same_.good_loss(4));
  EXPECT_EQ(model_.state(), same_.state());
  model_.runtime_.synchronize();
}

// A task outside the backward passes reads both losses before the program knows of either failure, and before the
// second step: reading the total reports both. An earlier batch makes the optimizer look for known failures.
TEST_P(FailedStep, OfTwoBatchesThatATotalJoinsCountsForNothing) {
  for (WordModel* m : {&model_, &same_}) m->step(m->good_loss(0));
  for (WordModel* m : {&model_, &same_}) m->net_.eval();
  for (const bool knows_of_another : {false, true}) {
    Tensor another;
    if (knows_of_another) model_.step(another = model_.bad_words());
    const Tensor first = model_.bad_labels();
    model_.step(first);
    const Tensor second = model_.bad_words();
    second.backward();
    const Tensor total = first.detach() + second.detach();
    state_of(model_.runtime_.devices()[0], "test").engine->wait_unused(total->resource());
    if (knows_of_another) {
      EXPECT_THROW(another.item(), TaskError);
    }
    model_.optimizer_->clip_grad_norm(1);
    model_.optimizer_->step();
    EXPECT_THROW(total.item(), TaskError);
    EXPECT_EQ(model_.optimizer_->steps(), 1 + knows_of_another);
    for (WordModel* m : {&model_, &same_}) m->step(m->good_loss(1));
    EXPECT_EQ(model_.state(), same_.state());
    model_.runtime_.synchronize();
  }
}

// Whether the program calls update() before or after it learns of the error, also at the first step.
TEST_P(FailedStep, IsNotAveraged) {
  for (WordModel* m : {&model_, &same_}) m->net_.eval();
  WeightAverage average(model_.net_, 0.75), same(same_.net_, 0.75);
  const auto good_step = [&](std::int64_t seed) {
    model_.step(model_.good_loss(seed));
    average.update();
    same_.step(same_.good_loss(seed));
    same.update();
  };
  const auto bad_step = [&] {
    Tensor bad = model_.bad_words();
    model_.step(bad);
    average.update();
    EXPECT_THROW(bad.item(), TaskError);
    bad = model_.bad_words();
    model_.step(bad);
    EXPECT_THROW(bad.item(), TaskError);
    average.update();
  };
  const auto values_of = [](const WeightAverage& a) {
    std::vector<std::vector<float>> all;
    for (const auto& [name, value] : a.state_dict()) all.push_back(value.to_vector<float>());
    return all;
  };
  bad_step();
  EXPECT_TRUE(average.state_dict().empty());
  good_step(1);
  bad_step();
  EXPECT_EQ(values_of(average), values_of(same));
  good_step(2);
  good_step(3);
  EXPECT_EQ(values_of(average), values_of(same));
}

INSTANTIATE_TEST_SUITE_P(Devices, FailedStep, ::testing::Values(1, 8),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace lockstep::testing
