// PyTorch's names for initial values: of one parameter, before and after it has values, and of a model.
#include "lockstep/nn/init.h"

#include "lockstep/autograd/no_grad.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/linear.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

struct TwoParts : Module {
  Linear& a = make<Linear>("a", 4, 3);
  Linear& lazy = make<Linear>("lazy", {.out_features = 3});
  Tensor forward(const Tensor& x) override { return lazy(a(x)); }
};

std::vector<float> first_values(const Parameter& p) { return p.host_data().to_vector<float>(); }

// The values of all parameters of the first model of a Runtime.
template <typename Change>
std::vector<std::vector<float>> values_after(const Change& change) {
  Runtime runtime(small_devices(2));
  TwoParts net;
  net.to(runtime.devices());
  change(net);
  const NoGradGuard no_grad;
  net(ones({1, 4}));
  std::vector<std::vector<float>> all;
  for (const Parameter& p : net.parameters()) {
    all.push_back(first_values(p));
    EXPECT_EQ(p.data(runtime.devices()[1]).to_vector<float>(), all.back());
  }
  return all;
}
void use(TwoParts& net) {
  const NoGradGuard no_grad;
  net(ones({1, 4}));
}

TEST(Init, GivesTheSameValuesBeforeAndAfterTheFirstUse) {
  const auto change = [](TwoParts& net) {
    init::normal_(net.a.weight, 1, 0.5);
    init::kaiming_normal_(net.lazy.weight);  // its shape is not known before the first use
    init::constant_(net.a.bias, 0.25);
  };
  const auto by_default = values_after([](TwoParts&) {}), found = values_after(change);
  EXPECT_EQ(values_after([&](TwoParts& net) {
              use(net);
              change(net);
            }),
            found);
  EXPECT_NE(found[0], by_default[0]);
  EXPECT_EQ(found[1], std::vector<float>(3, 0.25F));
  EXPECT_NE(found[2], by_default[2]);
  EXPECT_EQ(found[3], by_default[3]);
  // Also after others, and after loaded ones.
  EXPECT_EQ(values_after([&](TwoParts& net) {
              init::ones_(net.a.weight);
              use(net);
              net.a.weight.set_data(zeros({3, 4}));
              change(net);
            }),
            found);
}

TEST(Init, AModelOfOneSeedHasTheValuesOfInitialize) {
  const auto expected = values_after([](TwoParts& net) { net.initialize(XavierUniform(2)); });
  EXPECT_EQ(values_after([](TwoParts& net) { init::xavier_uniform_(net, 2); }), expected);
  // Also of one that has values.
  EXPECT_EQ(values_after([](TwoParts& net) {
              use(net);
              init::xavier_uniform_(net, 2);
            }),
            expected);
  // The weights alone, one after the other, with PyTorch's biases. Module::apply() reaches all layers.
  const auto weights = values_after([](TwoParts& net) {
    net.apply([](Module& m) {
      if (auto* linear = dynamic_cast<Linear*>(&m)) init::xavier_uniform_(linear->weight, 2);
    });
  });
  EXPECT_EQ(weights[0], expected[0]);
  EXPECT_EQ(weights[2], expected[2]);
  EXPECT_NE(weights[1], expected[1]);
}

TEST(Init, IsNamedUntilOtherValuesTakeItsPlace) {
  Runtime runtime(small_devices(1));
  TwoParts net;
  EXPECT_EQ(net.a.weight.reset_text(), "");
  init::kaiming_uniform_(net.a.weight, {.a = 1, .mode = FanMode::fan_out});
  EXPECT_EQ(net.a.weight.reset_text(), "kaiming_uniform_(a=1, mode=fan_out)");
  net.initialize(Constant{3}, runtime.devices());
  EXPECT_EQ(net.a.weight.reset_text(), "");
  EXPECT_EQ(first_values(net.a.weight), std::vector<float>(12, 3));
  init::orthogonal_(net.a.weight);
  EXPECT_EQ(net.a.weight.reset_text(), "orthogonal_(1)");
  net.a.weight.set_data(zeros({3, 4}));
  EXPECT_EQ(net.a.weight.reset_text(), "");
  EXPECT_ERROR(init::xavier_uniform_(net.a.bias), "initialize: parameter a.bias: xavier");
  EXPECT_EQ(net.a.bias.reset_text(), "") << "an error changes nothing";
}

TEST(Init, PaddingStaysZero) {
  Runtime runtime(small_devices(1));
  Embedding table(3, 2, {.padding_idx = 1});
  init::ones_(table.weight);
  EXPECT_EQ(first_values(table.weight), (std::vector<float>{1, 1, 0, 0, 1, 1}));
}

}  // namespace
}  // namespace lockstep::testing
