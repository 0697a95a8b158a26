// Rotary position embeddings (Su et al. 2021).
//
//   RotaryPositionalEmbeddings& rope = make<RotaryPositionalEmbeddings>("rope", 64);
//   Tensor q = rope(unflatten(q_proj(x), 2, {heads, 64}));  // [N, L, heads, 64]
//   Tensor next = rope(q_of_one_token, 17);                 // position 17: keys 0 to 16 are in a cache
#pragma once

#include <concepts>
#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct RotaryPositionalEmbeddingsOptions {
  std::int64_t dim = 0;             // features of a head; even
  std::int64_t max_seq_len = 4096;  // positions
  double base = 10000;              // Llama 3 has 500000
  // Pairs of adjacent features, as in torchtune; weights of Hugging Face's Llama need false: see RotaryOptions.
  bool interleaved = true;
};

// Turns each pair of features of x [.., L, heads, dim] by the angle p base^(-2 i / dim) of its position p. Has no
// parameters; rotary_tables() makes its tables. Name, arguments, and layout are torchtune's. Throws if x does not end
// in these axes, and for a position from max_seq_len on.
class RotaryPositionalEmbeddings : public Module {
 public:
  using Options = RotaryPositionalEmbeddingsOptions;
  explicit RotaryPositionalEmbeddings(RotaryPositionalEmbeddingsOptions options);
  // A template, so that braces are options.
  template <std::integral N>
  explicit RotaryPositionalEmbeddings(N dim, RotaryPositionalEmbeddingsOptions more = {})
      : RotaryPositionalEmbeddings(with_dim(static_cast<std::int64_t>(dim), more)) {}
  // Positions 0 to L - 1.
  Tensor forward(const Tensor& x) override { return forward(x, std::int64_t{0}); }
  // Positions offset to offset + L - 1.
  Tensor forward(const Tensor& x, std::int64_t offset);
  // The position of each token: i64 [L] or [.., L], which broadcasts to x without its last two axes. One that is not in
  // [0, max_seq_len) fails the task, so the error appears where the result is read.
  Tensor forward(const Tensor& x, const Tensor& input_pos);
  using Module::operator();
  Tensor operator()(const Tensor& x, std::int64_t offset) { return forward(x, offset); }
  Tensor operator()(const Tensor& x, const Tensor& input_pos) { return forward(x, input_pos); }

 protected:
  std::string extra_repr() const override;

 private:
  static RotaryPositionalEmbeddingsOptions with_dim(std::int64_t dim, RotaryPositionalEmbeddingsOptions more);
  void check_input(const Tensor& x) const;

  RotaryPositionalEmbeddingsOptions options_;
  RotaryTables tables_;
};

}  // namespace lockstep
