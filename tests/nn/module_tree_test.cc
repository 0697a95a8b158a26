#include "lockstep/nn/module_tree.h"

#include <gtest/gtest.h>

#include <memory>

#include "lockstep/autograd/creation.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"

namespace lockstep {
namespace {

TEST(ModuleTreeTest, ABufferThatAnotherOneReplacesKeepsItsValue) {
  for (const bool placed : {false, true}) {
    Module net;
    const ModuleTree tree(net);
    tree.set_buffer("shift", Parameter({.shape = {2}, .default_initializer = Constant(1), .trainable = false}));
    const Parameter member = net.buffer("shift");
    const Parameter old = ModuleTree::own_handle(member);
    if (placed) {
      EXPECT_EQ(old.host_data().to_vector<float>(), (std::vector<float>{1, 1}));
    }
    tree.set_buffer("shift", ModuleTree::successor(old, ones({2}) * 4.0));
    EXPECT_EQ(member.host_data().to_vector<float>(), (std::vector<float>{4, 4}));
    EXPECT_EQ(member.name(), "shift");
    if (placed) {
      EXPECT_EQ(old.host_data().to_vector<float>(), (std::vector<float>{1, 1}));
      EXPECT_EQ(member.devices(), old.devices());
    }
    member.reset();
    EXPECT_EQ(member.host_data().to_vector<float>(), (std::vector<float>{1, 1}));
    EXPECT_THROW(ModuleTree::successor(member, Tensor()), Error);
  }
}

TEST(ModuleTreeTest, PartsAreNamedReplacedAndRemoved) {
  Module net;
  const ModuleTree tree(net);
  tree.set_kind("Net");
  tree.set_child("fc", std::make_shared<Linear>(2, 3));
  tree.set_parameter("scale", Parameter({.shape = {3}, .default_initializer = Constant(2)}));
  tree.set_buffer("shift", Parameter({.shape = {3}, .default_initializer = Constant(1), .trainable = false}));
  tree.set_call([&](const Tensor& x) {
    return net.module("fc")(x) * net.parameter("scale") * 0.0 + net.parameter("scale") + net.buffer("shift");
  });
  EXPECT_EQ(net.kind(), "Net");
  EXPECT_EQ(net(ones({1, 2})).to_vector<float>(), (std::vector<float>{3, 3, 3}));
  EXPECT_EQ(net.parameter("fc.weight").name(), "fc.weight");
  tree.set_child("fc", std::make_shared<Linear>(2, 3, LinearOptions{.bias = false}));
  EXPECT_EQ(net.named_parameters().size(), 2U);
  EXPECT_EQ(tree.find("shift"), ModuleTree::Entry::buffer);
  tree.erase("shift");
  EXPECT_EQ(tree.find("shift"), ModuleTree::Entry::none);
  EXPECT_THROW(tree.erase("shift"), Error);
  EXPECT_THROW(tree.set_child("scale", std::make_shared<ReLU>()), Error);
}

TEST(ModuleTreeTest, ALayerComputesWithItsNewParameter) {
  Sequential net(Embedding(5, 2), Linear(2, 5, {.bias = false}));
  const Parameter old = ModuleTree::own_handle(net.at<Linear>(1).weight);
  ModuleTree(net[1]).set_parameter("weight", net.at<Embedding>(0).weight);
  EXPECT_EQ(net.parameters().size(), 1U);
  EXPECT_NE(net.at<Linear>(1).weight, old);
  net.at<Embedding>(0).weight.set_data(ones({5, 2}));
  EXPECT_EQ(net(tensor({1})).to_vector<float>(), (std::vector<float>{2, 2, 2, 2, 2}));
  EXPECT_THROW(ModuleTree(net[1]).set_parameter("weight", Parameter({.shape = {4, 2}})), Error);
  EXPECT_THROW(ModuleTree(net[1]).erase("weight"), Error);
}

TEST(ModuleTreeTest, ACalledModuleIsNotFused) {
  Sequential net(BatchNorm1d(2), ReLU());
  ModuleTree(net[1]).set_call([](const Tensor& x) { return x * 0.0 + 7.0; });
  EXPECT_EQ(net(rand({4, 2})).to_vector<float>(), std::vector<float>(8, 7));
}

}  // namespace
}  // namespace lockstep
