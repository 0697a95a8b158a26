// A language model of LSTM layers.
//
//   LstmLanguageModel model({.vocab_size = 65});
//   model.initialize(Uniform(0.1), devices);
//   auto [logits, state] = model(ids, {});  // i64 [N, T] -> [N, T, 65]
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/models/language_model.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/recurrent.h"

namespace LOCKSTEP_API lockstep {

struct LstmLanguageModelOptions {
  std::int64_t vocab_size = 0;
  std::int64_t embedding_dim = 128;
  std::int64_t hidden_size = 256;
  std::int64_t num_layers = 2;
  double dropout = 0.2;
  // Embeddings are cast to this type, and all later layers compute in it: f32, or bf16 or f16 with f32 weights.
  DType dtype = DType::f32;
};

// A language model of LSTM layers: i64 [N, T] -> logits [N, T, vocab_size]. Parameters are named as in PyTorch's
// example word_language_model: encoder.weight, rnn.weight_ih_l0, ..., decoder.weight, decoder.bias.
class LstmLanguageModel : public LanguageModel {
 public:
  explicit LstmLanguageModel(const LstmLanguageModelOptions& options);
  // Starts from `state`. Returns the logits and the state for the next call.
  std::pair<Tensor, LstmState> forward(const Tensor& ids, const LstmState& state);
  // Starts from zeros. Returns only the logits.
  Tensor forward(const Tensor& ids) override { return forward(ids, LstmState{}).first; }
  using Module::operator();
  std::pair<Tensor, LstmState> operator()(const Tensor& ids, const LstmState& state) { return forward(ids, state); }
  std::unique_ptr<TokenDecoder> decoder() override;

 private:
  DType dtype_;
  Embedding encoder_;
  Dropout drop_;
  LSTM rnn_;
  Linear decoder_;
};

}  // namespace lockstep
