// Two nets that learn against one another.
#include <lockstep/lockstep.h>

#include "programs.h"

using namespace lockstep;

struct Generator : Module {
  Linear& hidden = make<Linear>("hidden", 8, 32);
  Linear& out = make<Linear>("out", 32, 2);
  Tensor forward(const Tensor& z) override { return out(relu(hidden(z))); }
};

struct Discriminator : Module {
  Linear& hidden = make<Linear>("hidden", 2, 32);
  Linear& out = make<Linear>("out", 32, 1);
  Tensor forward(const Tensor& x) override { return out(leaky_relu(hidden(x), 0.2)); }
};

void programs::gan(const std::filesystem::path&) {
  const TensorDataset points({randn({256, 2}, {.seed = 3}) * 0.5 + 2});
  const std::int64_t epochs = 20;
  // program begins
  Generator g;
  Discriminator d;
  Adam adam_g(g.parameters(), {.lr = 2e-3, .beta1 = 0.5}), adam_d(d.parameters(), {.lr = 2e-3, .beta1 = 0.5});
  DataLoader loader(points, {.batch_size = 64, .shuffle = true});
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (auto [real] : loader.on<1>(d)) {
      const Tensor fake = g(randn({kBatch, 8}, like(real))), on_real = d(real), on_fake = d(fake.detach());
      (binary_cross_entropy_with_logits(on_real, ones_like(on_real)) +
       binary_cross_entropy_with_logits(on_fake, zeros_like(on_fake)))
          .backward();
      adam_d.step();
      const Tensor fooled = d(fake);
      binary_cross_entropy_with_logits(fooled, ones_like(fooled)).backward({.inputs = g.parameters()});
      adam_g.step();
    }
  }
  // program ends
  check(adam_d.steps() == 4 * epochs && adam_g.steps() == 4 * epochs, "a step is missing");
  for (const Parameter& p : d.parameters()) check(!p.gradient().defined(), "{} has a gradient of g's loss", p.name());
}
