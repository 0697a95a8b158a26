// A cache of keys and values beside attention to all tokens at once.
#include "lockstep/nn/key_value_cache.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

Tensor numbers(const Runtime& runtime, const Shape& shape, std::uint64_t seed) {
  return randn(shape, {.device = runtime.devices()[0], .seed = seed});
}

TEST(KeyValueCache, AttendsAsAllTokensDo) {
  const Runtime runtime({.cpu_devices = 1});
  const Tensor q = numbers(runtime, {2, 3, 150, 8}, 1), k = numbers(runtime, {2, 3, 150, 8}, 2),
               v = numbers(runtime, {2, 3, 150, 5}, 3);
  const Tensor all = scaled_dot_product_attention(q, k, v, {.is_causal = true});
  const NoGradGuard no_grad;
  KeyValueCache cache(2, 160);
  for (const std::int64_t tokens : {5, 1, 120, 1, 1, 1, 20, 1}) {
    const std::int64_t first = cache.length();
    const auto next = [&](const Tensor& x) { return narrow(x, 2, first, tokens); };
    EXPECT_TRUE(equal(cache.attend(0, next(q), next(k), next(v)), next(all))) << first;
    // Another layer has memory of its own.
    EXPECT_TRUE(equal(cache.attend(1, next(q), next(k), next(v)), next(all))) << first;
    cache.advance(tokens);
  }
  EXPECT_EQ(cache.length(), 150);
}

TEST(KeyValueCache, APassThatIsRepeatedTakesTheSamePlace) {
  const Runtime runtime({.cpu_devices = 1});
  const Tensor x = numbers(runtime, {1, 1, 3, 4}, 1), other = numbers(runtime, {1, 1, 3, 4}, 2);
  KeyValueCache cache(1, 3);
  cache.attend(0, other, other, other);
  EXPECT_TRUE(equal(cache.attend(0, x, x, x), scaled_dot_product_attention(x, x, x, {.is_causal = true})));
}

TEST(KeyValueCache, ErrorsNameWhatWasFound) {
  const Runtime runtime({.cpu_devices = 2});
  EXPECT_ERROR(KeyValueCache(0, 5), "key-value cache: 0 layers of 5 tokens, expected at least 1 of each");
  EXPECT_ERROR(KeyValueCache(1, 0), "key-value cache: 1 layers of 0 tokens, expected at least 1 of each");
  const Tensor x = numbers(runtime, {2, 1, 3, 4}, 1), y = numbers(runtime, {1, 1, 3, 4}, 2);
  KeyValueCache cache(2, 4);
  EXPECT_ERROR(cache.attend(2, x, x, x), "key-value cache: layer 2, expected 0 to 1");
  EXPECT_ERROR(cache.attend(0, x, Tensor(), x), "expected 4 axes (N, H, L, E), on one device");
  EXPECT_ERROR(cache.attend(0, squeeze(x, 1), x, x), "key-value cache: an operand is [2, 3, 4]");
  EXPECT_ERROR(cache.attend(0, y, x, x), "key-value cache: query [1, 1, 3, 4]");
  const Tensor cut = make_batch(x, {1, 1}, runtime.devices());
  EXPECT_ERROR(cache.attend(0, cut, cut, cut), "expected 4 axes (N, H, L, E), on one device");
  cache.attend(0, x, x, x);
  EXPECT_ERROR(cache.attend(0, y, y, y), "expected the same axes but the tokens");
  cache.advance(3);
  EXPECT_ERROR(cache.attend(0, x, x, x), "key-value cache: 3 more tokens after 3, expected at most 4 in all");
  EXPECT_ERROR(cache.advance(2), "key-value cache: 2 more tokens after 3, expected 0 to 1");
  KeyValueCache fresh(1, 4);
  Tensor leaf = x.clone();
  leaf.requires_grad_();
  EXPECT_ERROR(fresh.attend(0, leaf, leaf, leaf), "needs a gradient, but a write in place records none");
}

}  // namespace
}  // namespace lockstep::testing
