// Decoders beside whole passes: the same bits, and so the same texts.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/autograd/autocast.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/base/random.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/nn/module_tree.h"
#include "lockstep/optim/adam.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using Texts = std::vector<std::vector<std::int64_t>>;

constexpr std::int64_t kTokens = 17;

Texts random_texts(std::int64_t count, std::int64_t length) {
  const RandomKey key = random_key(3, {});
  Texts texts(static_cast<std::size_t>(count));
  std::uint64_t draw = 0;
  for (auto& text : texts) {
    for (std::int64_t i = 0; i < length; ++i) {
      text.push_back(static_cast<std::int64_t>(random_below(key, draw++, static_cast<std::uint64_t>(kTokens))));
    }
  }
  return texts;
}

// Tokens [begin, end) of the texts.
Tensor part(const Texts& texts, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> ids;
  for (const auto& text : texts) ids.insert(ids.end(), text.begin() + begin, text.begin() + end);
  return Tensor::from(ids, {std::ssize(texts), end - begin});
}

std::vector<std::uint32_t> bits_of(const Tensor& x) {
  std::vector<std::uint32_t> bits;
  for (const float value : x.to_vector<float>()) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

// Gives the decoder `prompt` tokens, and then `step` at a time. All logits must have the bits of whole passes.
void expect_bits_of_whole_passes(LanguageModel& model, const Texts& texts, std::int64_t prompt, std::int64_t step = 1) {
  const auto decoder = model.decoder();
  ASSERT_NE(decoder, nullptr);
  const auto all = std::ssize(texts[0]);
  for (std::int64_t seen = 0, end = prompt; seen < all; seen = end, end = std::min(end + step, all)) {
    const Tensor logits = decoder->next(part(texts, seen, end));
    ASSERT_EQ(logits.shape(), (Shape{std::ssize(texts), end - seen, kTokens}));
    const NoGradGuard no_grad;
    const EvalGuard evaluation(model);
    ASSERT_EQ(bits_of(logits), bits_of(narrow(model(part(texts, 0, end)), 1, seen, end - seen)))
        << "tokens " << seen << " to " << end;
  }
}

GPTOptions small_gpt(std::int64_t block_size, std::int64_t layers = 2, std::int64_t width = 24) {
  return {.vocab_size = kTokens, .block_size = block_size, .n_layer = layers, .n_head = 2, .n_embd = width};
}

LstmLanguageModelOptions small_lstm() { return {.vocab_size = kTokens, .embedding_dim = 8, .hidden_size = 12}; }

TEST(TokenDecoder, OfAGPTHasTheBitsOfWholePasses) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  const Texts text = random_texts(1, 140);
  for (const std::int64_t layers : {1, 3}) {
    for (const std::int64_t width : {24, 64}) {
      GPT gpt(small_gpt(140, layers, width));
      for (const std::int64_t prompt : {1, 127, 128, 129, 140}) {
        SCOPED_TRACE(::testing::Message() << layers << " layers of " << width << ", prompt " << prompt);
        expect_bits_of_whole_passes(gpt, text, prompt);
      }
      expect_bits_of_whole_passes(gpt, text, 3, 45);  // several tokens after others
    }
  }
}

TEST(TokenDecoder, OfAnLstmHasTheBitsOfWholePasses) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  LstmLanguageModel lstm(small_lstm());
  for (const std::int64_t prompt : {1, 7}) expect_bits_of_whole_passes(lstm, random_texts(1, 20), prompt);
  expect_bits_of_whole_passes(lstm, random_texts(3, 20), 2, 5);
}

TEST(TokenDecoder, HasTheBitsOfWholePassesOnAModelOfSeveralDevices) {
  const Runtime runtime({.cpu_devices = 2, .seed = 1});
  GPT gpt(small_gpt(20));
  gpt.initialize(Normal{0.3}, runtime.devices());
  expect_bits_of_whole_passes(gpt, random_texts(2, 20), 5);
}

TEST(TokenDecoder, ATextDoesNotDependOnTheTextsBesideIt) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  GPT gpt(small_gpt(40));
  LstmLanguageModel lstm(small_lstm());
  const Texts texts = random_texts(5, 40);
  for (LanguageModel* model : {static_cast<LanguageModel*>(&gpt), static_cast<LanguageModel*>(&lstm)}) {
    expect_bits_of_whole_passes(*model, texts, 7);
    const auto together = model->decoder();
    together->next(part(texts, 0, 39));
    const Tensor logits = together->next(part(texts, 39, 40));
    for (std::size_t row = 0; row < texts.size(); ++row) {
      const auto alone = model->decoder();
      alone->next(part({texts[row]}, 0, 39));
      EXPECT_EQ(bits_of(alone->next(part({texts[row]}, 39, 40))),
                bits_of(select(logits, 0, static_cast<std::int64_t>(row))))
          << row;
    }
  }
}

TEST(TokenDecoder, HasTheBitsOfWholePassesAfterTraining) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  GPT gpt(small_gpt(16));
  AdamW optimizer(gpt.parameters(), {.lr = 0.01});
  const Texts texts = random_texts(4, 17);
  for (int step = 0; step < 5; ++step) {
    cross_entropy(flatten(gpt(part(texts, 0, 16)), 0, 1), flatten(part(texts, 1, 17), 0, 1)).backward();
    optimizer.step();
    expect_bits_of_whole_passes(gpt, random_texts(1, 16), 3);
  }
  EXPECT_TRUE(gpt.training());
}

// The texts that generate() makes with and without a decoder.
TEST(TokenDecoder, GeneratesTheTextOfWholePasses) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  GPT gpt(small_gpt(20));
  gpt.initialize(Normal{0.5});
  LstmLanguageModel lstm(small_lstm());
  lstm.initialize(Normal{0.5});
  for (LanguageModel* model : {static_cast<LanguageModel*>(&gpt), static_cast<LanguageModel*>(&lstm)}) {
    for (const std::int64_t prompt : {1, 5, 19, 20, 30}) {
      const std::vector<std::int64_t> ids = random_texts(1, prompt)[0];
      for (const std::uint64_t seed : {1U, 2U}) {
        for (GenerateOptions o :
             std::vector<GenerateOptions>{{}, {.temperature = 0.5}, {.top_k = 1}, {.top_k = 4}, {.context = 9}}) {
          o.new_tokens = 25;
          o.seed = seed;
          const std::vector<std::int64_t> with = model->generate(ids, o);
          o.use_cache = false;
          EXPECT_EQ(with, model->generate(ids, o))
              << model->kind() << ", prompt " << prompt << ", top_k " << o.top_k << ", context " << o.context;
        }
      }
    }
  }
}

// Counts the tokens that a decoder gets, and those of whole passes.
struct Counting : TokenDecoder {
  Counting(std::unique_ptr<TokenDecoder> decoder, std::int64_t& tokens) : inner(std::move(decoder)), count(tokens) {}
  Tensor next(const Tensor& ids) override {
    count += ids.numel();
    return inner->next(ids);
  }
  std::unique_ptr<TokenDecoder> inner;
  std::int64_t& count;
};
struct CountingLstm : LanguageModel {
  LstmLanguageModel& model = make<LstmLanguageModel>("model", small_lstm());
  std::int64_t decoded = 0, whole = 0;
  Tensor forward(const Tensor& ids) override {
    whole += ids.numel();
    return model(ids);
  }
  std::unique_ptr<TokenDecoder> decoder() override { return std::make_unique<Counting>(model.decoder(), decoded); }
};

TEST(TokenDecoder, GenerateGivesItEachTokenOnce) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  CountingLstm counting;
  counting.generate({1, 2, 3}, {.new_tokens = 10, .seed = 1});
  EXPECT_EQ(counting.decoded, 12);  // nobody needs the logits of the last one
  EXPECT_EQ(counting.whole, 0);
  counting.decoded = 0;
  counting.generate({1, 2, 3}, {.new_tokens = 3, .seed = 1, .use_cache = false});
  EXPECT_EQ(counting.decoded, 0);
  EXPECT_EQ(counting.whole, 3 + 4 + 5);
  counting.whole = 0;
  counting.generate({1, 2, 3}, {.new_tokens = 4, .context = 4, .seed = 1});
  EXPECT_EQ(counting.decoded, 4);
  EXPECT_EQ(counting.whole, 4 + 4);
}

TEST(TokenDecoder, GeneratesSeveralTexts) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  GPT gpt(small_gpt(20));
  gpt.initialize(Normal{0.5});
  Texts texts = random_texts(3, 6);
  const GenerateOptions likeliest{.new_tokens = 20, .top_k = 1}, drawn{.new_tokens = 20, .seed = 7};
  const auto row = [](const Tensor& ids, std::int64_t i) { return select(ids, 0, i).to_vector<std::int64_t>(); };
  const Tensor all = gpt.generate(part(texts, 0, 6), likeliest);
  ASSERT_EQ(all.shape(), (Shape{3, 26}));
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(row(all, i), gpt.generate(texts[static_cast<std::size_t>(i)], likeliest)) << i;
  }
  const Tensor draws = gpt.generate(part(texts, 0, 6), drawn);
  EXPECT_EQ(row(draws, 0), gpt.generate(texts[0], drawn));
  // The texts beside a text do not change it, and equal texts go on differently.
  texts[0] = texts[1] = texts[2];
  const Tensor others = gpt.generate(part(texts, 0, 6), drawn);
  EXPECT_EQ(row(others, 2), row(draws, 2));
  EXPECT_NE(row(others, 2), row(others, 1));
  EXPECT_NE(row(others, 1), row(others, 0));
  EXPECT_ERROR(gpt.generate(Tensor::host({3, 0}, DType::i64), drawn), "generate: no tokens, expected at least one");
  EXPECT_ERROR(gpt.generate(Tensor::host({0, 3}, DType::i64), drawn), "generate: no tokens, expected at least one");
}

struct DerivedGPT : GPT {
  using GPT::GPT;
};

TEST(TokenDecoder, IsThereOnlyWhereBitsAreEqual) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    GPTOptions options = small_gpt(20);
    options.dtype = dtype;
    GPT gpt(options);
    EXPECT_EQ(gpt.decoder(), nullptr);
    const GenerateOptions with{.new_tokens = 25, .seed = 1}, without{.new_tokens = 25, .seed = 1, .use_cache = false};
    EXPECT_EQ(gpt.generate({1, 2}, with), gpt.generate({1, 2}, without));
    LstmLanguageModelOptions of_lstm = small_lstm();
    of_lstm.dtype = dtype;
    EXPECT_EQ(LstmLanguageModel(of_lstm).decoder(), nullptr);
  }
  GPT gpt(small_gpt(20));
  EXPECT_NE(gpt.decoder(), nullptr);
  {
    const AutocastGuard autocast(DType::bf16);
    EXPECT_EQ(gpt.decoder(), nullptr);
  }
  EXPECT_EQ(DerivedGPT(small_gpt(20)).decoder(), nullptr);
  // A hook of another language sees every pass of its module.
  Module& block = gpt.module("transformer.h.1");
  ModuleTree(block).set_call([&](const Tensor& x) { return block.forward(x); });
  EXPECT_EQ(gpt.decoder(), nullptr);
  ModuleTree(block).set_call({});
  EXPECT_NE(gpt.decoder(), nullptr);
  gpt.to(DType::f64);
  EXPECT_EQ(gpt.decoder(), nullptr);
}

TEST(TokenDecoder, ErrorsNameWhatWasFound) {
  const Runtime runtime({.cpu_devices = 1, .seed = 1});
  GPT gpt(small_gpt(5));
  const auto decoder = gpt.decoder();
  decoder->next(part(random_texts(2, 4), 0, 4));
  EXPECT_ERROR(decoder->next(part(random_texts(2, 2), 0, 2)),
               " after 4 steps, expected 2 axes (N, T), of 1 to 1 steps");
  EXPECT_ERROR(decoder->next(Tensor()), "expected 2 axes (N, T)");
  EXPECT_ERROR(decoder->next(part(random_texts(1, 1), 0, 1)), "expected the same axes but the tokens");
  decoder->next(part(random_texts(2, 1), 0, 1));  // an error leaves the decoder as it was
  KeyValueCache cache(2, 5);
  const NoGradGuard no_grad;
  EXPECT_ERROR(gpt.forward(part(random_texts(1, 1), 0, 1), cache),
               "gpt: a cache, which would ignore dropout 0.1, in training mode, expected evaluation mode");
}

}  // namespace
}  // namespace lockstep
