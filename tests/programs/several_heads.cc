// Two inputs, three losses, each of them in the log, and a frozen branch.
#include <lockstep/lockstep.h>

#include <fstream>
#include <sstream>

#include "programs.h"

using namespace lockstep;

struct ImageBranch : Module {
  Conv2d& conv = make<Conv2d>("conv", 1, 8, 3);
  BatchNorm2d& norm = make<BatchNorm2d>("norm");
  Tensor forward(const Tensor& x) override { return flatten(max_pool2d(relu(norm(conv(x))), {2, 2}), 1); }
};

// program begins
struct Heads : ModuleOf<Heads> {
  ImageBranch& image = make<ImageBranch>("image");
  Linear& meta = make<Linear>("meta", 10, 32);
  Linear& kind = make<Linear>("kind", 104, 5);
  Linear& age = make<Linear>("age", 104, 1);
  Linear& again = make<Linear>("again", 104, 10);
  std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& x, const Tensor& m) {
    const Tensor h = cat({image(x), relu(meta(m))}, 1);
    return {kind(h), age(h), again(h)};
  }
};
// program ends

void programs::several_heads(const std::filesystem::path& folder) {
  const TensorDataset train({randn({32, 1, 8, 8}, {.seed = 1}), randn({32, 10}, {.seed = 2}),
                             repeat(arange(5), {7}).narrow(0, 0, 32), rand({32, 1}, {.seed = 3})});
  // program begins
  Heads net;
  net.image.freeze();
  net.image.eval();
  AdamW adamw(net.parameters(), {.lr = 1e-2, .weight_decay = 0.01});
  TrainerOptions options{.batch_size = 16, .epochs = 3, .log_file = folder / "log", .recipe = {{"loss", "heads"}}};
  options.forward = [&](const Example& b) -> BatchOutputs {
    const auto [kind, age, again] = net(b[0], b[1]);
    return {.outputs = kind,
            .targets = b[2],
            .losses = {{"kind", cross_entropy(kind, b[2])},
                       {"age", smooth_l1_loss(age, b[3]), 0.3},
                       {"again", mse_loss(again, b[1]), 0.1}}};
  };
  Trainer trainer(net, adamw, train, train, options);
  trainer.train();
  // program ends
  std::ostringstream log;
  log << std::ifstream(folder / "log").rdbuf();
  check(log.str().find("\"age\":") != std::string::npos, "the loss of the age is not in the log");
  check(!net.image.conv.weight.gradient().defined(), "a frozen branch has a gradient");
}
