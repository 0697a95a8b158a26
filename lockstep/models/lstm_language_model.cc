#include "lockstep/models/lstm_language_model.h"

#include "lockstep/autograd/no_grad.h"

namespace lockstep {
namespace {

class LstmDecoder : public TokenDecoder {
 public:
  explicit LstmDecoder(LstmLanguageModel& model) : model_(model) {}
  Tensor next(const Tensor& ids) override {
    const NoGradGuard no_grad;
    const EvalGuard evaluation(model_);
    const ForwardScope scope(model_);
    auto [logits, state] = model_.forward(model_.placed(ids), state_);
    state_ = std::move(state);
    return logits;
  }

 private:
  LstmLanguageModel& model_;
  LstmState state_;
};

}  // namespace

LstmLanguageModel::LstmLanguageModel(const LstmLanguageModelOptions& options)
    : dtype_(options.dtype), encoder_({.num_embeddings = options.vocab_size, .embedding_dim = options.embedding_dim}),
      drop_(options.dropout), rnn_({.input_size = options.embedding_dim,
                                    .hidden_size = options.hidden_size,
                                    .num_layers = options.num_layers,
                                    .batch_first = true,
                                    .dropout = options.dropout}),
      decoder_({.in_features = options.hidden_size, .out_features = options.vocab_size}) {
  add("drop", drop_);
  add("encoder", encoder_);
  add("rnn", rnn_);
  add("decoder", decoder_);
}

std::pair<Tensor, LstmState> LstmLanguageModel::forward(const Tensor& ids, const LstmState& state) {
  check(ids.defined() && ids.shape().dim() == 2, "lstm language model: input is {}, expected 2 axes (N, T)",
        ids.describe());
  auto [output, last] = rnn_(drop_(encoder_(ids).to(dtype_)), state);
  return {decoder_(drop_(output)), std::move(last)};
}

std::unique_ptr<TokenDecoder> LstmLanguageModel::decoder() {
  if (!computes_rows(typeid(LstmLanguageModel), dtype_)) return nullptr;
  return std::make_unique<LstmDecoder>(*this);
}

}  // namespace lockstep
