// Base class of models of sequences of tokens, which can continue a text.
//
//   GPT gpt({.vocab_size = characters.size()});
//   ...
//   const auto ids = gpt.generate(characters.encode("In "), {.new_tokens = 200, .temperature = 0.8});
//   fmt::print("{}\n", characters.decode(ids));
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <typeinfo>
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
  // Computes only the new token in each pass where the model has a decoder(), as long as the model sees all tokens; the
  // result is the same. False: every pass computes all tokens.
  bool use_cache = true;
};

// Computes the logits of texts that grow, a pass for the new tokens alone. It needs its model, whose weights must not
// change, as long as it is used. Calls are for one thread at a time.
//
//   const auto decoder = gpt.decoder();
//   Tensor logits = decoder->next(prompt);  // i64 [N, T] -> [N, T, vocabulary]
//   logits = decoder->next(tokens);         // the next token of each text, i64 [N, 1] -> [N, 1, vocabulary]
class TokenDecoder {
 public:
  TokenDecoder() = default;
  virtual ~TokenDecoder() = default;
  TokenDecoder(const TokenDecoder&) = delete;
  TokenDecoder& operator=(const TokenDecoder&) = delete;

  // Takes the next tokens of each text, i64 [N, L], and returns their logits, [N, L, vocabulary]. They have the bits
  // that the model's forward() gives them in a pass over all tokens so far, whatever the other texts are. Runs in
  // evaluation mode and keeps no history. Throws if the texts become longer than LanguageModel::longest(), and for
  // another N than before.
  virtual Tensor next(const Tensor& ids) = 0;
};

// A model whose forward() computes the logits of each next token: i64 [N, T] -> [N, T, vocabulary].
class LanguageModel : public Module {
 public:
  // The longest sequence that forward() takes. 0: it takes any.
  virtual std::int64_t longest() const { return 0; }

  // A decoder for new texts; null if the model has none whose logits have the bits of forward(). GPT and
  // LstmLanguageModel have one in f32 on CPUs, outside autocast, unless their class is derived from, or a forward() or
  // a hook of Python takes part. Places the model.
  virtual std::unique_ptr<TokenDecoder> decoder() { return nullptr; }

  // Continues these tokens. Returns them, followed by the new tokens. Each is drawn from softmax(logits / temperature)
  // after at most longest() tokens before it. Runs in evaluation mode and keeps no history. Throws if there is no token
  // to continue, and for a temperature that is not above 0.
  std::vector<std::int64_t> generate(std::vector<std::int64_t> ids, const GenerateOptions& options = {});
  // The same for a tensor i64 [T], or [N, T] for N texts. Returns a tensor in host memory with the same axes. With a
  // seed, a text's draws follow from the seed and its row, and row 0 draws as a single text does: in f32 on CPUs, the
  // other texts do not change it.
  template <std::same_as<Tensor> Ids>
  Tensor generate(const Ids& ids, const GenerateOptions& options = {}) {
    return generate_tensor(ids, options);
  }

 protected:
  // Whether rows of the model's results do not depend on the rows beside them, and code of this class alone computes
  // them: for decoder(). `dtype`: in which the model computes.
  bool computes_rows(const std::type_info& type, DType dtype);

 private:
  std::vector<std::vector<std::int64_t>> continue_texts(std::vector<std::vector<std::int64_t>> texts,
                                                        const GenerateOptions& options);
  Tensor generate_tensor(const Tensor& ids, const GenerateOptions& options);
};

}  // namespace lockstep
