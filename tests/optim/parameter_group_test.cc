// Groups of parameters with their own options: each group trains as with a separate optimizer with these options.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "lockstep/autograd/functions.h"
#include "lockstep/engine/engine.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

constexpr std::int64_t kElements = 21;

class ParameterGroupTest : public ::testing::Test {
 protected:
  Parameter parameter(const std::string& name) {
    Parameter p(ParameterOptions{.shape = {kElements}});
    p.initialize(name, runtime_.devices(), Uniform{1}, 7);
    return p;
  }
  // Three parameters that start alike in each call.
  std::vector<Parameter> parameters() { return {parameter("a"), parameter("b"), parameter("c")}; }
  void give_gradients(const std::vector<Parameter>& all, int step) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Numbers g = Random(static_cast<std::uint64_t>(10 * step) + i).uniforms(kElements);
      sum(all[i] * make_tensor(g, {kElements}, runtime_.devices()[1])).backward();
    }
  }
  Numbers weights(const Parameter& p, std::size_t device = 0) { return values(p.data(runtime_.devices()[device])); }

  // a has a rate of its own, b is as the optimizer, c has a decay of its own.
  template <typename O, typename Options>
  void expect_as_optimizers_of_their_own(Options options) {
    options.lr = 0.125;
    options.weight_decay = 0.25;
    const std::vector<Parameter> grouped = parameters(), alone = parameters();
    O together({{.parameters = {grouped[0]}, .lr = 0.5},
                {.parameters = {grouped[1]}},
                {.parameters = {grouped[2]}, .weight_decay = 0}},
               options);
    Options own_rate = options, own_decay = options;
    own_rate.lr = 0.5;
    own_decay.weight_decay = 0;
    O a({alone[0]}, own_rate), b({alone[1]}, options), c({alone[2]}, own_decay);
    for (int step = 1; step <= 4; ++step) {
      // A schedule scales all rates.
      const double factor = 1.0 / step;
      together.set_learning_rate(0.125 * factor);
      a.set_learning_rate(0.5 * factor), b.set_learning_rate(0.125 * factor), c.set_learning_rate(0.125 * factor);
      give_gradients(grouped, step);
      give_gradients(alone, step);
      together.step();
      for (Optimizer* o : {static_cast<Optimizer*>(&a), static_cast<Optimizer*>(&b), static_cast<Optimizer*>(&c)}) {
        o->step();
      }
    }
    for (std::size_t i = 0; i < grouped.size(); ++i) {
      for (std::size_t device : {0U, 1U}) EXPECT_EQ(weights(grouped[i], device), weights(alone[i], device)) << i;
    }
    EXPECT_NE(weights(grouped[0]), weights(grouped[1]));
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
};

TEST_F(ParameterGroupTest, EachGroupIsTrainedWithItsOwnOptions) {
  expect_as_optimizers_of_their_own<Sgd>(SgdOptions{});
  expect_as_optimizers_of_their_own<Sgd>(SgdOptions{.momentum = 0.9, .nesterov = true});
  expect_as_optimizers_of_their_own<Adam>(AdamOptions{});
  expect_as_optimizers_of_their_own<AdamW>(AdamWOptions{});
}

// The number of tasks does not grow with that of groups.
TEST_F(ParameterGroupTest, AStepIsOneTaskForEachDevice) {
  const auto tasks = [&](auto groups) {
    const std::vector<Parameter> all = parameters();
    Adam adam(groups(all), {.weight_decay = 0.1});
    give_gradients(all, 1);
    adam.step();
    give_gradients(all, 2);
    const std::int64_t before = runtime_.engine().counters().pushed;
    adam.step();
    return runtime_.engine().counters().pushed - before;
  };
  const std::int64_t one = tasks([](const auto& all) { return ParameterGroups(all); });
  EXPECT_EQ(tasks([](const auto& all) {
              return ParameterGroups{{.parameters = {all[0]}, .lr = 1},
                                     {.parameters = {all[1]}},
                                     {.parameters = {all[2]}, .weight_decay = 0}};
            }),
            one);
}

TEST_F(ParameterGroupTest, GroupsWithoutOptionsAreAList) {
  const std::vector<Parameter> listed = parameters(), grouped = parameters();
  AdamW list(listed, {.lr = 0.1, .weight_decay = 0.1});
  AdamW groups({{.parameters = {grouped[0], grouped[1]}}, {.parameters = {grouped[2]}}},
               {.lr = 0.1, .weight_decay = 0.1});
  EXPECT_EQ(list.group_count(), 1U);
  EXPECT_EQ(groups.group_count(), 2U);
  EXPECT_EQ(list.describe_groups(), "");
  EXPECT_EQ(groups.describe_groups(), "lr 0.1, weight_decay 0.1: a, b; lr 0.1, weight_decay 0.1: c");
  for (auto [all, optimizer] : {std::pair(&listed, &list), std::pair(&grouped, &groups)}) {
    give_gradients(*all, 1);
    optimizer->clip_grad_norm(0.5);
    optimizer->step();
  }
  for (std::size_t i = 0; i < listed.size(); ++i) EXPECT_EQ(weights(grouped[i]), weights(listed[i]));
}

TEST_F(ParameterGroupTest, OneNormIsOverAllGroups) {
  const std::vector<Parameter> all = parameters();
  Sgd sgd({{.parameters = {all[0]}, .lr = 2}, {.parameters = {all[1], all[2]}}}, {.lr = 1});
  const Numbers before[] = {weights(all[0]), weights(all[1])};
  for (std::size_t i : {0U, 1U}) {
    sum(all[i] * make_tensor(Numbers(kElements, i == 0 ? 3.0 : 4.0), {kElements}, runtime_.devices()[0])).backward();
  }
  EXPECT_NEAR(sgd.clip_grad_norm(1).item<double>(), 5 * std::sqrt(1.0 * kElements), 1e-9);
  sgd.step();
  for (std::size_t i : {0U, 1U}) {
    const double change = (i == 0 ? 2 * 3.0 : 4.0) / (5 * std::sqrt(1.0 * kElements));
    EXPECT_NEAR(weights(all[i])[4], before[i][4] - change, 1e-6);
  }
}

TEST_F(ParameterGroupTest, RatesChangeTogetherOrAlone) {
  const std::vector<Parameter> all = parameters();
  Sgd sgd({{.parameters = {all[0]}, .lr = 0.3}, {.parameters = {all[1]}}, {.parameters = {all[2]}, .lr = 0}},
          {.lr = 0.1});
  const auto rates = [&] {
    return Numbers{sgd.learning_rate(), sgd.learning_rate(0), sgd.learning_rate(1), sgd.learning_rate(2)};
  };
  EXPECT_EQ(rates(), (Numbers{0.1, 0.3, 0.1, 0}));
  sgd.set_learning_rate(0.1);
  EXPECT_EQ(rates(), (Numbers{0.1, 0.3, 0.1, 0}));
  sgd.set_learning_rate(0.05);
  EXPECT_EQ(rates(), (Numbers{0.05, 0.15, 0.05, 0}));
  sgd.set_learning_rate(1, 7);
  EXPECT_EQ(rates(), (Numbers{0.05, 0.15, 7, 0}));
  EXPECT_THAT(sgd.describe_groups(), ::testing::HasSubstr("; lr 14, weight_decay 0: "));
  sgd.set_learning_rate(0);
  EXPECT_EQ(rates(), (Numbers{0, 0, 0, 0}));
  EXPECT_ERROR(sgd.set_learning_rate(1, 7), "optimizer: cannot set a group's learning rate while the optimizer's is 0");
  sgd.set_learning_rate(0.2);
  EXPECT_EQ(rates(), (Numbers{0.2, 0.6, 28, 0}));
  EXPECT_ERROR(sgd.set_learning_rate(3, 1), "optimizer: there is no group 3, expected a number below 3");
  EXPECT_ERROR(sgd.learning_rate(3), "there is no group 3");
  EXPECT_ERROR(sgd.set_learning_rate(0, -1), "learning rate -1, expected at least 0");
}

// A warm-up may begin at 0.
TEST_F(ParameterGroupTest, RatesFromZeroKeepTheirRatio) {
  const std::vector<Parameter> all = parameters();
  AdamW adam({{.parameters = {all[0]}}, {.parameters = {all[1]}, .weight_decay = 0.5}}, {.lr = 0});
  EXPECT_EQ(adam.describe_groups(), "lr 0, weight_decay 0.01: a; lr 0, weight_decay 0.5: b");
  EXPECT_ERROR(adam.set_learning_rate(1, 0.1), "cannot set a group's learning rate while the optimizer's is 0");
  adam.set_learning_rate(0.5);
  adam.set_learning_rate(1, 0.125);
  EXPECT_EQ(adam.describe_groups(), "lr 1, weight_decay 0.01: a; lr 0.25, weight_decay 0.5: b");
  for (const double lr : {0.25, 0.0, 1.0}) {
    adam.set_learning_rate(lr);
    EXPECT_EQ(adam.learning_rate(0), lr);
    EXPECT_EQ(adam.learning_rate(1), lr / 4);
  }
}

// Behind a schedule that ended at 0, a group's rate is beside the base rate: the other groups train on.
TEST_F(ParameterGroupTest, ARateBehindAScheduleThatEndedAtZeroLeavesTheOthersAlone) {
  const std::vector<Parameter> all = parameters();
  Sgd sgd({{.parameters = {all[0]}, .lr = 0.2}, {.parameters = {all[1]}}}, {.lr = 0.1});
  const auto rates = [&] {
    Numbers now;
    for (std::size_t g = 0; g < sgd.group_count(); ++g) now.push_back(sgd.learning_rate(g));
    return now;
  };
  sgd.set_scheduled_learning_rate(0);
  EXPECT_EQ(rates(), (Numbers{0, 0}));
  sgd.set_options(1, {{"lr", 0.05}});
  sgd.add_group({.parameters = {all[2]}, .lr = 0.3});
  EXPECT_EQ(rates(), (Numbers{0, 0.05, 0.3}));
  sgd.set_scheduled_learning_rate(sgd.base_learning_rate());
  EXPECT_EQ(rates(), (Numbers{0.2, 0.05, 0.3}));
}

// A rate beside a scheduled one of 0 has no ratio to it, so that the schedule could not go on.
TEST_F(ParameterGroupTest, ARateInAScheduleAtZeroIsAnError) {
  const std::vector<Parameter> all = parameters();
  const auto expect_errors = [&](Sgd& sgd) {
    const std::string message =
        "while a schedule has set the optimizer's to 0, which has no ratio to it: expected a rate that is set before "
        "or after that step";
    EXPECT_ERROR(sgd.set_options(1, {{"momentum", 0.5}, {"lr", 0.05}}),
                 "optimizer: learning rate 0.05 of group 1 " + message);
    EXPECT_ERROR(sgd.add_group({.parameters = {all[2]}, .lr = 0.3}), "learning rate 0.3 of group 2 " + message);
    EXPECT_EQ(sgd.group_count(), 2);
    EXPECT_EQ(sgd.options(1), sgd.options(0));
    EXPECT_EQ(sgd.parameters().size(), 2);
  };
  {
    Sgd sgd({{.parameters = {all[0]}}, {.parameters = {all[1]}}}, {.lr = 0.1});
    sgd.set_schedule_runs(true);
    sgd.set_scheduled_learning_rate(0);
    expect_errors(sgd);
  }
  const auto from_zero = [](std::int64_t step) { return static_cast<double>(step); };
  Sgd sgd({{.parameters = {all[0]}}, {.parameters = {all[1]}}},
          {.lr = ScheduleOptions{.base_lr = 0.1, .lr_lambda = from_zero}});
  expect_errors(sgd);
  EXPECT_NE(sgd.schedule(), nullptr);
  // 0 has a ratio to all rates.
  sgd.set_options(1, {{"lr", 0}});
  for (const int step : {1, 2}) {
    give_gradients(all, step);
    sgd.step();
  }
  EXPECT_EQ(sgd.learning_rate(0), 0.1);
  EXPECT_EQ(sgd.learning_rate(1), 0);
}

// The state is the parameters', whatever group they are in.
TEST_F(ParameterGroupTest, StateRoundTrip) {
  const std::vector<Parameter> first = parameters(), second = parameters();
  const auto make = [](const std::vector<Parameter>& all) {
    return AdamW({{.parameters = {all[2]}, .lr = 0.2}, {.parameters = {all[0], all[1]}, .weight_decay = 0}},
                 {.lr = 0.1, .weight_decay = 0.1});
  };
  AdamW a = make(first), b = make(second);
  give_gradients(first, 1);
  a.step();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : a.state_dict()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"exp_avg.c", "exp_avg.a", "exp_avg.b", "exp_avg_sq.c", "exp_avg_sq.a",
                                             "exp_avg_sq.b", "step.c", "step.a", "step.b", "steps", "learning_rates"}));
  for (std::size_t i = 0; i < first.size(); ++i) Parameter(second[i]).set_data(first[i].host_data());
  b.load_state_dict(a.state_dict());
  for (auto [all, optimizer] : {std::pair(&first, &a), std::pair(&second, &b)}) {
    give_gradients(*all, 2);
    optimizer->step();
  }
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(weights(second[i]), weights(first[i]));
  EXPECT_EQ(a.describe_groups(), "lr 0.2, weight_decay 0.1: c; lr 0.1, weight_decay 0: a, b");
}

// Also while a schedule has set the rate to 0, and for groups that follow the optimizer's rate.
TEST_F(ParameterGroupTest, RatesAreInTheState) {
  const auto make = [](const std::vector<Parameter>& all) {
    return Sgd({{.parameters = {all[0]}}, {.parameters = {all[1]}, .lr = 0.3}, {.parameters = {all[2]}}}, {.lr = 0.1});
  };
  const auto rates = [](const Optimizer& optimizer) {
    std::vector<double> all{optimizer.learning_rate(), optimizer.base_learning_rate()};
    for (std::size_t g = 0; g < optimizer.group_count(); ++g) all.push_back(optimizer.learning_rate(g));
    return all;
  };
  const std::vector<Parameter> first = parameters(), second = parameters();
  Sgd a = make(first), b = make(second);
  a.set_learning_rate(0.07);
  a.set_learning_rate(2, 0.011);
  for (const double scheduled : {0.07, 1.0 / 3, 0.0, 0.2}) {
    a.set_scheduled_learning_rate(scheduled);
    b.load_state_dict(a.state_dict());
    EXPECT_EQ(rates(b), rates(a)) << scheduled;
    Sgd c = make(parameters());
    c.load_state_dict(a.state_dict());
    c.set_scheduled_learning_rate(0.05);
    b.set_scheduled_learning_rate(0.05);
    EXPECT_EQ(rates(c), rates(b));
  }
  Sgd plain(parameters(), {});
  EXPECT_ERROR(plain.load_state_dict(a.state_dict()),
               "learning_rates is [6] f64 on host, expected [4] f64 for 1 group");
}

TEST_F(ParameterGroupTest, WrongGroupsAreErrors) {
  const std::vector<Parameter> all = parameters();
  const Parameter &a = all[0], &b = all[1];
  EXPECT_ERROR(Sgd(std::vector<ParameterGroup>{}, {}), "optimizer: no parameters");
  EXPECT_ERROR(Sgd({{.parameters = {a}}, {.parameters = {}}}, {}), "optimizer: no parameters in group 1");
  EXPECT_ERROR(Sgd({{.parameters = {}, .lr = 1}}, {}), "optimizer: no parameters in group 0");
  EXPECT_ERROR(Sgd({{.parameters = {a}}, {.parameters = {b, a}}}, {}), "parameter a is in group 0 and in group 1");
  EXPECT_ERROR(Sgd({{.parameters = {b, b}, .lr = 1}}, {}), "parameter b is listed twice");
  EXPECT_ERROR(Sgd({{.parameters = {a}}, {.parameters = {b}, .lr = -1}}, {}), "learning rate of group 1 -1, expected");
  EXPECT_ERROR(Adam({{.parameters = {a}, .weight_decay = NAN}}, {}), "weight decay of group 0 nan, expected");
  EXPECT_ERROR(Sgd({{.parameters = {a}, .lr = 1}, {.parameters = {b}}}, {.lr = 0}),
               "group 0 has its own learning rate, which scales with the optimizer's, but the optimizer's is 0");
  EXPECT_FALSE(a.optimized());
}

TEST_F(ParameterGroupTest, NamesMakeGroups) {
  struct Net : Module {
    Linear& body = make<Linear>("body", 2, 2);
    Linear& fc = make<Linear>("fc", 2, 1);
    Linear& fc2 = make<Linear>("fc2", 2, 1);
  };
  Net net;
  net.to(runtime_.devices());
  const auto groups = groups_by_name(net, {{"fc.", {.lr = 0.5}}, {"fc", {.weight_decay = 0}}});
  const std::vector all(groups.begin(), groups.end());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].parameters, (std::vector<Parameter>{net.fc.weight, net.fc.bias}));
  EXPECT_EQ(all[0].lr, 0.5);
  EXPECT_EQ(all[1].parameters, (std::vector<Parameter>{net.fc2.weight, net.fc2.bias}));
  EXPECT_EQ(all[1].weight_decay, 0);
  EXPECT_EQ(all[2].parameters, (std::vector<Parameter>{net.body.weight, net.body.bias}));
  EXPECT_FALSE(all[2].lr);
  EXPECT_EQ(groups_by_name(net, {{"", {.lr = 0.5}}}).size(), 1U);
  EXPECT_ERROR(groups_by_name(net, {{"head.", {}}}), "groups_by_name: no further parameter's name begins with 'head.'");
  EXPECT_ERROR(groups_by_name(net, {{"fc", {}}, {"fc.", {}}}), "no further parameter's name begins with 'fc.'");
  EXPECT_ERROR(groups_by_name(net, {{"fc", {.parameters = {net.fc.bias}}}}),
               "lists parameters, expected options alone");
}

}  // namespace
}  // namespace lockstep::testing
