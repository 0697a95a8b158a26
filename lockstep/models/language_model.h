// Base class of models of sequences of tokens, which can continue a text.
//
//   GPT gpt({.vocab_size = characters.size()});
//   ...
//   const auto ids = gpt.generate(characters.encode("In "), {.new_tokens = 200, .temperature = 0.8});
//   fmt::print("{}\n", characters.decode(ids));
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct GenerateOptions {
  // Number of tokens to add.
  std::int64_t new_tokens = 100;
  // Divides the logits: below 1, likely tokens become likelier.
  double temperature = 1;
  // Draws only among this many tokens with the largest logits. 0: among all. 1: always takes the likeliest.
  std::int64_t top_k = 0;
  // The model sees at most this many of the last tokens. 0: as many as it takes.
  std::int64_t context = 0;
  // The same seed draws the same tokens. Not set: the random numbers go on from call to call, as with rand().
  std::optional<std::uint64_t> seed = {};
};

// A model whose forward() computes the logits of each next token: i64 [N, T] -> [N, T, vocabulary].
class LanguageModel : public Module {
 public:
  // The longest sequence that forward() takes. 0: it takes any.
  virtual std::int64_t longest() const { return 0; }

  // Continues these tokens. Returns them, followed by the new tokens. Each is drawn from softmax(logits / temperature)
  // after at most longest() tokens before it. Runs in evaluation mode and keeps no history. Throws if there is no token
  // to continue, and for a temperature that is not above 0.
  std::vector<std::int64_t> generate(std::vector<std::int64_t> ids, const GenerateOptions& options = {});
  // The same for a tensor i64 [T] or [1, T]. Returns a tensor in host memory with the same axes.
  template <std::same_as<Tensor> Ids>
  Tensor generate(const Ids& ids, const GenerateOptions& options = {}) {
    return generate_tensor(ids, options);
  }

 private:
  Tensor generate_tensor(const Tensor& ids, const GenerateOptions& options);
};

}  // namespace lockstep
