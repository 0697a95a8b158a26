// The layer of rotary position embeddings, and the feed-forward layer beside it in Llama.
#include "lockstep/nn/rotary.h"

#include "lockstep/nn/feed_forward.h"
#include "lockstep/nn/sequential.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

class RotaryLayerTest : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape, std::uint64_t seed = 1) {
    return Tensor(Random(seed).floats(shape)).to(runtime_.devices()[0]);
  }

  Runtime runtime_{small_devices(2)};
};

TEST_F(RotaryLayerTest, TurnsEachHeadByItsPosition) {
  const Tensor x = random({2, 5, 3, 8});
  const RotaryTables tables = rotary_tables(8, 5);
  for (const bool interleaved : {true, false}) {
    RotaryPositionalEmbeddings rope(8, {.max_seq_len = 6, .interleaved = interleaved});
    // The same with the heads before the positions.
    const Tensor y = rotary_embedding(transpose(x, 1, 2), tables.cos, tables.sin, {.interleaved = interleaved});
    EXPECT_EQ(values(rope(x)), values(transpose(y, 1, 2)));
  }
}

TEST_F(RotaryLayerTest, AnOffsetIsAPartOfAllPositions) {
  RotaryPositionalEmbeddings rope({.dim = 8, .max_seq_len = 9, .base = 500000});
  const Tensor x = random({2, 9, 3, 8}), all = rope(x);
  for (const std::int64_t offset : {0, 1, 8}) {
    const std::int64_t length = 9 - offset;
    const auto expected = values(narrow(all, 1, offset, length));
    const Tensor part = narrow(x, 1, offset, length);
    EXPECT_EQ(values(rope(part, offset)), expected);
    EXPECT_EQ(values(rope(part, arange(offset, 9))), expected);
  }
  // Other positions for each sample.
  const Tensor places = Tensor::from(std::vector<std::int64_t>{3, 0, 8, 8}, {2, 2});
  const Tensor y = rope(narrow(x, 1, 0, 2), places);
  const Tensor first = narrow(narrow(x, 0, 0, 1), 1, 0, 1), last = narrow(narrow(x, 0, 1, 1), 1, 1, 1);
  EXPECT_EQ(values(narrow(narrow(y, 0, 0, 1), 1, 0, 1)), values(rope(first, 3)));
  EXPECT_EQ(values(narrow(narrow(y, 0, 1, 1), 1, 1, 1)), values(rope(last, 8)));
}

TEST_F(RotaryLayerTest, ACutBatchHasTheSameBits) {
  RotaryPositionalEmbeddings rope(8);
  const Tensor x = random({4, 5, 3, 8}), places = remainder(arange(20).reshape({4, 5}) * 7, 30);
  const auto gradient = [&](Tensor leaf) {
    const Tensor y = rope(leaf);
    sum(square(y) * y).backward();
    return values(leaf.grad());
  };
  const Tensor batch = make_batch(x, {1, 3}, runtime_.devices());
  EXPECT_EQ(values(rope(batch)), values(rope(x)));
  EXPECT_EQ(values(rope(batch, 2)), values(rope(x, 2)));
  EXPECT_EQ(values(rope(batch, make_batch(places, {1, 3}, runtime_.devices()).detach())), values(rope(x, places)));
  EXPECT_EQ(gradient(as_leaf(batch.detach())), gradient(as_leaf(x)));
}

TEST_F(RotaryLayerTest, HasNoStateAndSaysWhatItIs) {
  RotaryPositionalEmbeddings rope({.dim = 4});
  EXPECT_EQ(rope.parameters().size() + rope.named_buffers().size(), 0U);
  EXPECT_EQ(rope.str(), "RotaryPositionalEmbeddings(dim=4, max_seq_len=4096, base=10000.0, interleaved=True)");
}

TEST_F(RotaryLayerTest, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(RotaryPositionalEmbeddings({.dim = 3}), "rotary_tables: dim is 3, expected an even number above 0");
  EXPECT_ERROR(RotaryPositionalEmbeddings(4, {.dim = 6}), "rotary positional embeddings: dim is given by position and");
  RotaryPositionalEmbeddings rope(4, {.max_seq_len = 6});
  const Tensor x = random({2, 5, 3, 4});
  EXPECT_ERROR(rope(random({5, 4})),
               "rotary positional embeddings: input is [5, 4] f32 on cpu:0, expected [.., L, heads, 4]");
  EXPECT_ERROR(rope(random({2, 5, 3, 8})), "expected [.., L, heads, 4]");
  EXPECT_ERROR(rope(x, 2),
               "rotary positional embeddings: 5 positions from 2 on, expected them in the 6 of max_seq_len");
  EXPECT_ERROR(rope(x, -1), "5 positions from -1 on");
  EXPECT_ERROR(rope(x, arange(4)), "rotary positional embeddings: input_pos is [4] i64 on host, expected i64 [5]");
  EXPECT_ERROR(rope(x, ones({5})), "input_pos is [5] f32 on host, expected i64 [5]");
  EXPECT_ERROR(values(rope(x, arange(2, 7))), "index: 6 at place 4 is outside [0, 6)");
}

TEST_F(RotaryLayerTest, FeedForwardIsSwiGLU) {
  FeedForward layer(4, 6);
  EXPECT_EQ(names(layer.named_parameters()),
            (std::vector<std::string>{"gate_proj.weight", "up_proj.weight", "down_proj.weight"}));
  layer.initialize(Normal{0.5}, runtime_.devices());
  const Tensor x = random({3, 2, 4}), gate = linear(x, layer.gate_proj.weight);
  const Tensor hidden = gate * sigmoid(gate) * linear(x, layer.up_proj.weight);
  EXPECT_LT(distance(values(layer(x)), values(linear(hidden, layer.down_proj.weight))), 1e-6);

  FeedForward biased({.dim = 4, .hidden_dim = 6, .bias = true});
  EXPECT_EQ(biased.parameters().size(), 6U);
  EXPECT_EQ(biased["down_proj.bias"].shape(), (Shape{4}));
  EXPECT_ERROR(FeedForward({.dim = 4}), "feed forward: dim is 4 and hidden_dim 0, expected at least 1 of each");
  // Its layers move along.
  Sequential net;
  net.append(std::move(layer));
  EXPECT_EQ(net(x).shape(), x.shape());
}

}  // namespace
}  // namespace lockstep::testing
