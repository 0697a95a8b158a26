// A block of a GPT as a checkpoint has the same bits, for any number of shards.
#include "lockstep/autograd/checkpoint.h"

#include "lockstep/models/gpt.h"
#include "lockstep/runtime/random_state.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

TEST(CheckpointedGPTBlock, HasTheSameBits) {
  Runtime runtime(small_devices(2));
  const auto bits = [&](bool keeps, const std::vector<std::int64_t>& counts) {
    GPTBlock block({.vocab_size = 5, .block_size = 8, .n_head = 2, .n_embd = 8, .dropout = 0.3});
    block.initialize(Normal(0.2), runtime.devices(), {.seed = 3});
    runtime.random().restart(7);
    Tensor x = as_leaf(Tensor::from(Random(5).uniforms(8 * 4 * 8), {8, 4, 8}, {.dtype = DType::f32}));
    Tensor y = make_batch(x, counts, runtime.devices());
    for (int i = 0; i < 2; ++i) y = keeps ? checkpoint(block, y) : block(y);
    mean(square(y) * y).backward();
    std::vector<std::vector<double>> all{values(y), values(x.grad())};
    for (const Parameter& p : block.parameters()) all.push_back(values(p.gradient()));
    return all;
  };
  for (const std::vector<std::int64_t>& counts :
       {std::vector<std::int64_t>{8}, std::vector<std::int64_t>{4, 4}, std::vector<std::int64_t>(8, 1)}) {
    EXPECT_EQ(bits(true, counts), bits(false, counts)) << counts.size() << " shards";
  }
}

}  // namespace
}  // namespace lockstep::testing
