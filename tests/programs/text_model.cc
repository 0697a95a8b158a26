// A GPT on characters: accumulation over micro-batches, clipping, a schedule, and sampling.
#include <fmt/core.h>
#include <lockstep/lockstep.h>

#include "programs.h"

using namespace lockstep;

void programs::text_model(const std::filesystem::path&) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "In the beginning was the word. ";
  // program begins
  const CharacterSet chars(text);
  GPT gpt({.vocab_size = chars.size(), .block_size = 32, .n_layer = 2, .n_head = 2, .n_embd = 32});
  gpt.initialize(Normal{0.02});
  std::vector<Parameter> matrices, others;
  for (const Parameter& p : gpt.parameters()) (p.shape().dim() > 1 ? matrices : others).push_back(p);
  AdamW adamw({{.parameters = matrices}, {.parameters = others, .weight_decay = 0}},
              {.lr = cosine_lr(1e-2, {.steps = 40}), .weight_decay = 0.1});
  DataLoader loader(TextDataset(chars.encode(text), {.context = 32, .random_starts = true}), {.batch_size = 8});
  constexpr int kMicro = 2;
  int micro = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto [x, y] : loader.on(gpt)) {
      const bool last = ++micro % kMicro == 0;
      cross_entropy(flatten(gpt(x), 0, 1), flatten(y, 0, 1)).backward({.share = 1.0 / kMicro, .sync = last});
      if (!last) continue;
      adamw.clip_grad_norm(1);
      adamw.step();
    }
  }
  const std::vector<std::int64_t> ids = gpt.generate(chars.encode("In "), {.new_tokens = 40, .temperature = 0.8});
  // program ends
  check(chars.decode(ids).size() == 43, "the text has another length");
}
