#include "lockstep/nn/rotary.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/nn/sizes.h"

namespace lockstep {

RotaryPositionalEmbeddings::RotaryPositionalEmbeddings(RotaryPositionalEmbeddingsOptions options)
    : options_(options), tables_(rotary_tables(options.dim, options.max_seq_len, options.base)) {}

RotaryPositionalEmbeddingsOptions RotaryPositionalEmbeddings::with_dim(std::int64_t dim,
                                                                       RotaryPositionalEmbeddingsOptions more) {
  set_size("rotary positional embeddings", "dim", more.dim, dim);
  return more;
}

void RotaryPositionalEmbeddings::check_input(const Tensor& x) const {
  check(x.defined() && x.dim() >= 3 && x.size(-1) == options_.dim,
        "rotary positional embeddings: input is {}, expected [.., L, heads, {}]", x, options_.dim);
}

Tensor RotaryPositionalEmbeddings::forward(const Tensor& x, std::int64_t offset) {
  check_input(x);
  const std::int64_t length = x.size(-3);
  check(offset >= 0 && offset <= options_.max_seq_len - length,
        "rotary positional embeddings: {} positions from {} on, expected them in the {} of max_seq_len", length, offset,
        options_.max_seq_len);
  const auto rows = [&](const Tensor& table) { return unsqueeze(narrow(table, 0, offset, length), 1); };
  return rotary_embedding(x, rows(tables_.cos), rows(tables_.sin), {.interleaved = options_.interleaved});
}

Tensor RotaryPositionalEmbeddings::forward(const Tensor& x, const Tensor& input_pos) {
  check_input(x);
  check(input_pos.defined() && input_pos.dtype() == DType::i64 && input_pos.dim() > 0 &&
            input_pos.dim() <= x.dim() - 2 && input_pos.size(-1) == x.size(-3),
        "rotary positional embeddings: input_pos is {}, expected i64 [{}], or with the axes before it of {}", input_pos,
        x.size(-3), x);
  const Tensor places = beside(x, input_pos);
  const auto rows = [&](const Tensor& table) { return unsqueeze(embedding(places, beside(x, table)), -2); };
  return rotary_embedding(x, rows(tables_.cos), rows(tables_.sin), {.interleaved = options_.interleaved});
}

}  // namespace lockstep
