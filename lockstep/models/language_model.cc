#include "lockstep/models/language_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ranges>
#include <span>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

// Sets logits that are not among the k largest to -infinity. Keeps all that equal the k-th largest.
void keep_largest(std::vector<float>& logits, std::int64_t k) {
  if (k == 0 || k >= std::ssize(logits)) return;
  std::vector<float> sorted = logits;
  std::ranges::nth_element(sorted, sorted.begin() + k - 1, std::greater<>());
  const float least = sorted[static_cast<std::size_t>(k - 1)];
  std::ranges::replace_if(
      logits, [&](float x) { return x < least; }, -std::numeric_limits<float>::infinity());
}

// Returns the token that softmax(logits / temperature) assigns to `random`, from [0, 1).
std::int64_t draw_token(const std::vector<float>& logits, double temperature, double random) {
  const float largest = std::ranges::max(logits);
  check(std::isfinite(largest), "generate: the largest logit is {}, expected a finite number", largest);
  std::vector<double> weights;
  double total = 0;
  for (const float x : logits) total += weights.emplace_back(std::exp(double{x - largest} / temperature));
  std::size_t number = 0;
  for (random *= total; number + 1 < weights.size() && random >= weights[number]; ++number) random -= weights[number];
  return static_cast<std::int64_t>(number);
}

}  // namespace

std::vector<std::int64_t> LanguageModel::generate(std::vector<std::int64_t> ids, const GenerateOptions& options) {
  check(!ids.empty(), "generate: no tokens, expected at least one to continue");
  check(options.new_tokens >= 0, "generate: new_tokens is {}, expected at least 0", options.new_tokens);
  check(options.temperature > 0, "generate: the temperature is {}, expected more than 0", options.temperature);
  check(options.top_k >= 0, "generate: top_k is {}, expected at least 0", options.top_k);
  check(options.context >= 0, "generate: context is {}, expected at least 0", options.context);
  const NoGradGuard no_grad;
  const EvalGuard evaluation(*this);
  std::vector<float> draws;
  if (!options.seed) draws = rand({options.new_tokens}).to_vector<float>();
  const RandomKey key = random_key(options.seed.value_or(0), {1});
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.new_tokens); ++i) {
    std::int64_t length = std::ssize(ids);
    for (const std::int64_t limit : {longest(), options.context}) {
      if (limit > 0) length = std::min(length, limit);
    }
    const auto last = std::span<const std::int64_t>(ids).last(static_cast<std::size_t>(length));
    std::vector<float> logits = (*this)(Tensor::from(last, {1, length})).select(1, length - 1).to_vector<float>();
    check(std::ranges::none_of(logits, [](float x) { return std::isnan(x); }),
          "generate: the logits of token {} have nan, expected numbers", ids.size());
    keep_largest(logits, options.top_k);
    const double random = options.seed ? random_uniform(key, i) : double{draws[i]};
    ids.push_back(draw_token(logits, options.temperature, random));
  }
  return ids;
}

Tensor LanguageModel::generate_tensor(const Tensor& ids, const GenerateOptions& options) {
  const int dims = ids.defined() ? ids.dim() : 0;
  check((dims == 1 || (dims == 2 && ids.size(0) == 1)) && ids.dtype() == DType::i64,
        "generate: tokens are {}, expected i64 [T] or [1, T]", ids);
  const std::vector<std::int64_t> all = generate(ids.to_vector<std::int64_t>(), options);
  const Tensor found = Tensor::from(all, {std::ssize(all)});
  return dims == 2 ? found.unsqueeze(0) : found;
}

}  // namespace lockstep
