#include "lockstep/models/language_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ranges>
#include <utility>

#include "lockstep/autograd/autocast.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/base/random.h"
#include "lockstep/nn/module_tree.h"

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
  for (const float x : logits) {
    // Excluded tokens have no weight at an infinite temperature either.
    const float score = x - largest;
    total += weights.emplace_back(std::isinf(score) ? 0 : std::exp(double{score} / temperature));
  }
  std::size_t number = 0;
  for (random *= total; number + 1 < weights.size() && random >= weights[number]; ++number) random -= weights[number];
  return static_cast<std::int64_t>(number);
}

using Texts = std::vector<std::vector<std::int64_t>>;

// Tokens [begin, end) of each text, i64 [texts, end - begin].
Tensor tokens_of(const Texts& texts, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all;
  for (const auto& text : texts) all.insert(all.end(), text.begin() + begin, text.begin() + end);
  return Tensor::from(all, {std::ssize(texts), end - begin});
}

}  // namespace

bool LanguageModel::computes_rows(const std::type_info& type, DType dtype) {
  // A class that derives from the model, or a program in Python, may replace forward() or see each pass.
  if (typeid(*this) != type || ModuleTree::has_call(*this)) return false;
  for (const auto& [path, module] : named_modules()) {
    if (ModuleTree::has_call(*module)) return false;
  }
  // Products of other types, and those of GPUs, may take another order of sums for another number of rows.
  return dtype == DType::f32 && !autocast_dtype() &&
         std::ranges::all_of(parameters(), [](const Parameter& p) { return p.dtype() == DType::f32; }) &&
         std::ranges::all_of(devices(), [](Device d) { return d.kind() == DeviceKind::cpu; });
}

Texts LanguageModel::continue_texts(Texts texts, const GenerateOptions& options) {
  check(!texts.empty() && !texts[0].empty(), "generate: no tokens, expected at least one to continue");
  check(options.new_tokens >= 0, "generate: new_tokens is {}, expected at least 0", options.new_tokens);
  check(options.temperature > 0, "generate: the temperature is {}, expected more than 0", options.temperature);
  check(options.top_k >= 0, "generate: top_k is {}, expected at least 0", options.top_k);
  check(options.context >= 0, "generate: context is {}, expected at least 0", options.context);
  const NoGradGuard no_grad;
  const EvalGuard evaluation(*this);
  const auto new_tokens = static_cast<std::size_t>(options.new_tokens);
  std::vector<float> draws;
  std::vector<RandomKey> keys;
  if (!options.seed) draws = rand({std::ssize(texts), options.new_tokens}).to_vector<float>();
  for (std::uint64_t row = 0; options.seed && row < texts.size(); ++row) {
    keys.push_back(row == 0 ? random_key(*options.seed, {1}) : random_key(*options.seed, {1, row}));
  }
  std::unique_ptr<TokenDecoder> decoder = options.use_cache ? this->decoder() : nullptr;
  std::int64_t decoded = 0;  // tokens of each text that the decoder has seen
  for (std::size_t i = 0; i < new_tokens; ++i) {
    const std::int64_t all = std::ssize(texts[0]);
    std::int64_t length = all;
    for (const std::int64_t limit : {longest(), options.context}) {
      if (limit > 0) length = std::min(length, limit);
    }
    // Without the first tokens, the others have other positions, and all of them are computed again.
    if (length < all) decoder.reset();
    const Tensor ids = tokens_of(texts, decoder ? decoded : all - length, all);
    const Tensor next = (decoder ? decoder->next(ids) : (*this)(ids)).select(1, ids.size(1) - 1);
    decoded = all;
    const std::vector<float> every = next.to_vector<float>();
    const std::int64_t vocabulary = next.size(1);
    for (std::size_t row = 0; row < texts.size(); ++row) {
      const auto begin = every.begin() + static_cast<std::int64_t>(row) * vocabulary;
      std::vector<float> logits(begin, begin + vocabulary);
      check(std::ranges::none_of(logits, [](float x) { return std::isnan(x); }),
            "generate: the logits of token {} have nan, expected numbers", all);
      keep_largest(logits, options.top_k);
      const double random = options.seed ? random_uniform(keys[row], i) : double{draws[row * new_tokens + i]};
      texts[row].push_back(draw_token(logits, options.temperature, random));
    }
  }
  return texts;
}

std::vector<std::int64_t> LanguageModel::generate(std::vector<std::int64_t> ids, const GenerateOptions& options) {
  Texts texts;
  texts.push_back(std::move(ids));
  return std::move(continue_texts(std::move(texts), options)[0]);
}

Tensor LanguageModel::generate_tensor(const Tensor& ids, const GenerateOptions& options) {
  const int dims = ids.defined() ? ids.dim() : 0;
  check((dims == 1 || dims == 2) && ids.dtype() == DType::i64, "generate: tokens are {}, expected i64 [T] or [N, T]",
        ids);
  const std::vector<std::int64_t> given = ids.to_vector<std::int64_t>();
  const std::int64_t count = dims == 1 ? 1 : ids.size(0), length = ids.size(dims - 1);
  Texts texts;
  for (std::int64_t row = 0; row < count; ++row) {
    texts.emplace_back(given.begin() + row * length, given.begin() + (row + 1) * length);
  }
  texts = continue_texts(std::move(texts), options);
  const Tensor found = tokens_of(texts, 0, std::ssize(texts[0]));
  return dims == 2 ? found : found.squeeze(0);
}

}  // namespace lockstep
