// Layers with several inputs or outputs: recurrent layers, attention, transformers, bags of embeddings. Their forward()
// has PyTorch's arguments and results.
#include "callbacks.h"
#include "layers.h"

namespace lockstep::python {
namespace {

using Pair = std::pair<Tensor, Tensor>;
using Maybe = std::optional<Tensor>;

Tensor or_none(const Maybe& x) { return x.value_or(Tensor()); }
LstmState state_of(const std::optional<Pair>& hx) { return hx ? LstmState{hx->first, hx->second} : LstmState{}; }

Nonlinearity nonlinearity_of(const std::string& name) {
  return value_of<Nonlinearity>("rnn: nonlinearity", name,
                                {{"tanh", Nonlinearity::tanh}, {"relu", Nonlinearity::relu}});
}

template <typename M>
ModuleClass<M> add_cell(py::module_& m, const char* name) {
  return add_layer<M>(
      m, name,
      [](std::int64_t input_size, std::int64_t hidden_size, bool bias) {
        return RecurrentCellOptions{input_size, hidden_size, bias};
      },
      "input_size"_a, "hidden_size"_a, "bias"_a = true);
}

// `activation` is a name, a function of the library, or a function of the program.
std::function<Tensor(const Tensor&)> activation_of(const py::object& activation) {
  const auto is = [&](const char* name) {
    if (py::isinstance<py::str>(activation)) return activation.equal(py::str(name));
    // Those of lockstep and lockstep.nn.functional. A function of the program may have the same name.
    const auto core = py::module_::import("lockstep._core");
    return activation.is(py::getattr(core, name, py::none())) || activation.is(core.attr("functional").attr(name));
  };
  if (is("relu")) return [](const Tensor& x) { return relu(x); };
  if (is("gelu")) return [](const Tensor& x) { return gelu(x); };
  check(PyCallable_Check(activation.ptr()) == 1, "transformer: activation '{}', expected 'relu', 'gelu', or a function",
        std::string(py::str(activation)));
  return function_of<Tensor(const Tensor&)>("activation", activation);
}

template <typename M>
ModuleClass<M> add_transformer_layer(py::module_& m, const char* name) {
  return add_layer<M>(
      m, name,
      [](std::int64_t d_model, std::int64_t nhead, std::int64_t dim_feedforward, double dropout,
         const py::object& activation, double layer_norm_eps, bool batch_first, bool norm_first, bool bias) {
        check(bias, "transformer: bias=False, expected True");
        return TransformerEncoderLayerOptions{.d_model = d_model,
                                              .nhead = nhead,
                                              .dim_feedforward = dim_feedforward,
                                              .dropout = dropout,
                                              .activation = activation_of(activation),
                                              .layer_norm_eps = layer_norm_eps,
                                              .batch_first = batch_first,
                                              .norm_first = norm_first};
      },
      "d_model"_a, "nhead"_a, "dim_feedforward"_a = 2048, "dropout"_a = 0.1, "activation"_a = "relu",
      "layer_norm_eps"_a = 1e-5, "batch_first"_a = false, "norm_first"_a = false, "bias"_a = true);
}

template <typename M>
ModuleClass<M, RecurrentModule> add_gated(py::module_& m, const char* name) {
  return add_layer<M, RecurrentModule>(
      m, name,
      [](std::int64_t input_size, std::int64_t hidden_size, std::int64_t num_layers, bool bias, bool batch_first,
         double dropout, bool bidirectional, std::int64_t proj_size) {
        return RecurrentOptions{input_size,  hidden_size, num_layers,    bias,
                                batch_first, dropout,     bidirectional, proj_size};
      },
      "input_size"_a, "hidden_size"_a, "num_layers"_a = 1, "bias"_a = true, "batch_first"_a = false, "dropout"_a = 0.0,
      "bidirectional"_a = false, "proj_size"_a = 0);
}

}  // namespace

void add_recurrent_layers(py::module_& m) {
  ModuleClass<RecurrentModule>(m, "RNNBase", "The base of RNN, LSTM, and GRU.");
  auto lstm = add_gated<LSTM>(m, "LSTM");
  lstm.def(
      "forward",
      [](LSTM& self, const Tensor& x, const std::optional<Pair>& hx) {
        LstmOutput y = self.forward(x, state_of(hx));
        return std::pair(y.output, Pair(y.state.h, y.state.c));
      },
      "input"_a, "hx"_a = py::none(), released(), "Returns the outputs and (h, c) after the last step.");
  auto gru = add_gated<GRU>(m, "GRU");
  gru.def(
      "forward",
      [](GRU& self, const Tensor& x, const Maybe& hx) {
        GruOutput y = self.forward(x, or_none(hx));
        return Pair(y.output, y.h);
      },
      "input"_a, "hx"_a = py::none(), released(), "Returns the outputs and h after the last step.");
  auto rnn = add_layer<RNN, RecurrentModule>(
      m, "RNN",
      [](std::int64_t input_size, std::int64_t hidden_size, std::int64_t num_layers, const std::string& nonlinearity,
         bool bias, bool batch_first, double dropout, bool bidirectional) {
        return RNNOptions{input_size, hidden_size, num_layers, nonlinearity_of(nonlinearity),
                          bias,       batch_first, dropout,    bidirectional};
      },
      "input_size"_a, "hidden_size"_a, "num_layers"_a = 1, "nonlinearity"_a = "tanh", "bias"_a = true,
      "batch_first"_a = false, "dropout"_a = 0.0, "bidirectional"_a = false);
  rnn.def(
      "forward",
      [](RNN& self, const Tensor& x, const Maybe& hx) {
        RnnOutput y = self.forward(x, or_none(hx));
        return Pair(y.output, y.h);
      },
      "input"_a, "hx"_a = py::none(), released(), "Returns the outputs and h after the last step.");

  auto lstm_cell = add_cell<LSTMCell>(m, "LSTMCell");
  lstm_cell.def(
      "forward",
      [](LSTMCell& self, const Tensor& x, const std::optional<Pair>& hx) {
        LstmState next = self.forward(x, state_of(hx));
        return Pair(next.h, next.c);
      },
      "input"_a, "hx"_a = py::none(), released());
  auto gru_cell = add_cell<GRUCell>(m, "GRUCell");
  gru_cell.def(
      "forward", [](GRUCell& self, const Tensor& x, const Maybe& hx) { return self.forward(x, or_none(hx)); },
      "input"_a, "hx"_a = py::none(), released());
  auto rnn_cell = add_layer<RNNCell>(
      m, "RNNCell",
      [](std::int64_t input_size, std::int64_t hidden_size, bool bias, const std::string& nonlinearity) {
        return RNNCellOptions{input_size, hidden_size, bias, nonlinearity_of(nonlinearity)};
      },
      "input_size"_a, "hidden_size"_a, "bias"_a = true, "nonlinearity"_a = "tanh");
  rnn_cell.def(
      "forward", [](RNNCell& self, const Tensor& x, const Maybe& hx) { return self.forward(x, or_none(hx)); },
      "input"_a, "hx"_a = py::none(), released());

  auto attention = add_layer<MultiheadAttention>(
      m, "MultiheadAttention",
      [](std::int64_t embed_dim, std::int64_t num_heads, double dropout, bool bias, bool add_bias_kv,
         bool add_zero_attn, std::optional<std::int64_t> kdim, std::optional<std::int64_t> vdim, bool batch_first) {
        check(!add_bias_kv && !add_zero_attn, "multihead attention: add_bias_kv or add_zero_attn, expected False");
        return MultiheadAttentionOptions{embed_dim,   num_heads,        dropout,         bias,
                                         batch_first, kdim.value_or(0), vdim.value_or(0)};
      },
      "embed_dim"_a, "num_heads"_a, "dropout"_a = 0.0, "bias"_a = true, "add_bias_kv"_a = false,
      "add_zero_attn"_a = false, "kdim"_a = py::none(), "vdim"_a = py::none(), "batch_first"_a = false);
  attention.def(
      "forward",
      [](MultiheadAttention& self, const Tensor& query, const Tensor& key, const Tensor& value, const Maybe& padding,
         bool need_weights, const Maybe& mask, bool average, bool is_causal) -> std::pair<Tensor, Maybe> {
        const MultiheadMasks masks{or_none(padding), or_none(mask), is_causal};
        if (!need_weights) return {self.attend(query, key, value, masks), std::nullopt};
        check(average, "multihead attention: average_attn_weights=False, expected True, or need_weights=False");
        auto [y, weights] = self.forward(query, key, value, masks);
        return {y, weights};
      },
      "query"_a, "key"_a, "value"_a, "key_padding_mask"_a = py::none(), "need_weights"_a = true,
      "attn_mask"_a = py::none(), "average_attn_weights"_a = true, "is_causal"_a = false, released(),
      "Returns the output, and the weights averaged over heads or None. Masks hide where they are 1.");

  auto encoder = add_transformer_layer<TransformerEncoderLayer>(m, "TransformerEncoderLayer");
  encoder.def(
      "forward",
      [](TransformerEncoderLayer& self, const Tensor& src, const Maybe& mask, const Maybe& padding, bool is_causal) {
        return self.forward(src, {or_none(mask), or_none(padding), is_causal});
      },
      "src"_a, "src_mask"_a = py::none(), "src_key_padding_mask"_a = py::none(), "is_causal"_a = false, released());
  auto decoder = add_transformer_layer<TransformerDecoderLayer>(m, "TransformerDecoderLayer");
  decoder.def(
      "forward",
      [](TransformerDecoderLayer& self, const Tensor& tgt, const Tensor& memory, const Maybe& tgt_mask,
         const Maybe& memory_mask, const Maybe& tgt_padding, const Maybe& memory_padding, bool tgt_causal,
         bool memory_causal) {
        return self.forward(tgt, memory,
                            {or_none(tgt_mask), or_none(memory_mask), or_none(tgt_padding), or_none(memory_padding),
                             tgt_causal, memory_causal});
      },
      "tgt"_a, "memory"_a, "tgt_mask"_a = py::none(), "memory_mask"_a = py::none(),
      "tgt_key_padding_mask"_a = py::none(), "memory_key_padding_mask"_a = py::none(), "tgt_is_causal"_a = false,
      "memory_is_causal"_a = false, released());

  auto bag = add_layer<EmbeddingBag>(
      m, "EmbeddingBag",
      [](std::int64_t rows, std::int64_t columns, const std::optional<double>& max_norm, double, bool by_frequency,
         const std::string& mode, bool, const Maybe& weight, bool include_last_offset,
         std::optional<std::int64_t> padding_idx) {
        check(!max_norm && !by_frequency && !weight,
              "embedding bag: max_norm, scale_grad_by_freq, or _weight, expected none of them");
        return EmbeddingBagLayerOptions{
            .num_embeddings = rows,
            .embedding_dim = columns,
            .mode = value_of<BagMode>("embedding bag: mode", mode,
                                      {{"sum", BagMode::sum}, {"mean", BagMode::mean}, {"max", BagMode::max}}),
            .padding_idx = padding_idx && *padding_idx < 0 ? *padding_idx + rows : padding_idx,
            .include_last_offset = include_last_offset};
      },
      "num_embeddings"_a, "embedding_dim"_a, "max_norm"_a = py::none(), "norm_type"_a = 2.0,
      "scale_grad_by_freq"_a = false, "mode"_a = "mean", "sparse"_a = false, "_weight"_a = py::none(),
      "include_last_offset"_a = false, "padding_idx"_a = py::none());
  bag.def(
      "forward",
      [](EmbeddingBag& self, const Tensor& x, const Maybe& offsets, const Maybe& weights) {
        return self.forward(x, or_none(offsets), or_none(weights));
      },
      "input"_a, "offsets"_a = py::none(), "per_sample_weights"_a = py::none(), released());
  add_layer<Embedding>(
      m, "Embedding",
      [](std::int64_t rows, std::int64_t columns, std::optional<std::int64_t> padding_idx,
         const std::optional<double>& max_norm, double, bool by_frequency, bool, const Maybe& weight) {
        check(!max_norm && !by_frequency && !weight,
              "embedding: max_norm, scale_grad_by_freq, or _weight, expected none of them (from_pretrained() takes "
              "weights)");
        return EmbeddingOptions{rows, columns, padding_idx && *padding_idx < 0 ? *padding_idx + rows : padding_idx};
      },
      "num_embeddings"_a, "embedding_dim"_a, "padding_idx"_a = py::none(), "max_norm"_a = py::none(),
      "norm_type"_a = 2.0, "scale_grad_by_freq"_a = false, "sparse"_a = false, "_weight"_a = py::none());
}

}  // namespace lockstep::python
