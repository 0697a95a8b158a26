// Language models continue a text.
#include "lockstep/models/language_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using Ids = std::vector<std::int64_t>;

// Knows no context: its logits are always the same.
struct Unigram : LanguageModel {
  Parameter logits = add_parameter("logits", {.shape = {4}, .initializer = Constant{0}});
  std::int64_t most = 0, longest_seen = 0;
  Tensor forward(const Tensor& ids) override {
    EXPECT_FALSE(training());
    longest_seen = std::max(longest_seen, ids.size(1));
    return unsqueeze(unsqueeze(logits, 0), 0) + zeros_like(ids).to(DType::f32).unsqueeze(2);
  }
  std::int64_t longest() const override { return most; }
};

struct Generate : ::testing::Test {
  Generate() {
    model.initialize(Constant{0});
    model.logits.set_data(tensor({0.0, 1.0, 2.0, -1e9}));
  }
  Runtime runtime{{.cpu_devices = 2}};
  Unigram model;
};

TEST_F(Generate, DrawsBySoftmaxOfTheLogits) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    const Ids ids = model.generate({3}, {.new_tokens = 1000, .temperature = temperature, .seed = 1});
    ASSERT_EQ(ids.size(), 1001U);
    const std::vector<float> p = softmax(tensor({0.0, 1.0, 2.0}) / temperature).to_vector<float>();
    for (std::int64_t token = 0; token < 3; ++token) {
      EXPECT_NEAR(static_cast<double>(std::ranges::count(ids, token)) / 1000, p[static_cast<std::size_t>(token)], 0.06)
          << token << " at " << temperature;
    }
    EXPECT_EQ(std::ranges::count(ids, 3), 1);
  }
  EXPECT_TRUE(model.training());
}

TEST_F(Generate, DrawsAmongTheLargestLogits) {
  EXPECT_EQ(model.generate({0, 1}, {.new_tokens = 3, .top_k = 1}), (Ids{0, 1, 2, 2, 2}));
  const Ids ids = model.generate({3}, {.new_tokens = 500, .top_k = 2, .seed = 2});
  EXPECT_EQ(std::ranges::count(ids, 0), 0);
  EXPECT_GT(std::ranges::count(ids, 1), 50);
  EXPECT_EQ(model.generate({3}, {.new_tokens = 50, .top_k = 9, .seed = 2}),
            model.generate({3}, {.new_tokens = 50, .seed = 2}));
}

TEST_F(Generate, ASeedRepeatsTheDraws) {
  const auto draw = [&](std::optional<std::uint64_t> seed) {
    return model.generate({0}, {.new_tokens = 40, .seed = seed});
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_NE(draw({}), draw({}));
}

TEST_F(Generate, SeesTheLastTokensThatTheModelTakes) {
  model.generate(Ids(5), {.new_tokens = 4});
  EXPECT_EQ(model.longest_seen, 8);
  model.most = 6;
  for (const std::int64_t context : {0, 4, 7}) {
    model.longest_seen = 0;
    model.generate(Ids(9), {.new_tokens = 4, .context = context});
    EXPECT_EQ(model.longest_seen, context == 4 ? 4 : 6) << context;
  }
}

TEST_F(Generate, ErrorsNameWhatWasFound) {
  EXPECT_ERROR(model.generate({}), "generate: no tokens, expected at least one to continue");
  EXPECT_ERROR(model.generate({0}, {.temperature = 0}), "generate: the temperature is 0, expected more than 0");
  EXPECT_ERROR(model.generate({0}, {.new_tokens = -1}), "generate: new_tokens is -1, expected at least 0");
  EXPECT_ERROR(model.generate({0}, {.top_k = -1}), "generate: top_k is -1, expected at least 0");
  EXPECT_ERROR(model.generate({0}, {.context = -1}), "generate: context is -1, expected at least 0");
  model.logits.set_data(full({4}, -std::numeric_limits<double>::infinity()));
  EXPECT_ERROR(model.generate({0}), "generate: the largest logit is -inf, expected a finite number");
  model.logits.set_data(tensor({0.0, 1.0, static_cast<double>(NAN), 2.0}));
  EXPECT_ERROR(model.generate({0}), "generate: the logits of token 1 have nan, expected numbers");
}

// The likeliest token of each position, as a loop finds it.
template <typename Model>
Ids likeliest(Model& model, Ids ids, int count, std::int64_t longest) {
  const NoGradGuard no_grad;
  const EvalGuard evaluation(model);
  for (int i = 0; i < count; ++i) {
    const Ids last(ids.end() - std::min<std::int64_t>(std::ssize(ids), longest), ids.end());
    ids.push_back(model(unsqueeze(tensor(last), 0))[0][std::ssize(last) - 1].argmax().template item<std::int64_t>());
  }
  return ids;
}

TEST(GenerateWith, ModelsOfTheLibrary) {
  Runtime runtime({.cpu_devices = 2, .seed = 5});
  GPT gpt({.vocab_size = 11, .block_size = 6, .n_layer = 1, .n_head = 2, .n_embd = 8});
  EXPECT_EQ(gpt.generate({1, 2, 3}, {.new_tokens = 8, .top_k = 1}), likeliest(gpt, {1, 2, 3}, 8, 6));
  LstmLanguageModel lstm({.vocab_size = 11, .embedding_dim = 8, .hidden_size = 8});
  EXPECT_EQ(lstm.generate({1, 2, 3}, {.new_tokens = 8, .top_k = 1}), likeliest(lstm, {1, 2, 3}, 8, 100));
}

}  // namespace
}  // namespace lockstep
