// A classifier of small pictures: augmentation, a schedule, the best checkpoint, and inference with it.
#include <fmt/core.h>
#include <lockstep/lockstep.h>

#include "programs.h"

using namespace lockstep;

void programs::image_classifier(const std::filesystem::path& folder) {
  const Tensor pixels = (rand({16, 3, 32, 32}) * 255).to(DType::u8), labels = repeat(arange(10), {2}).narrow(0, 0, 16);
  const Tensor photo = pixels[0].to(DType::f32) / 255;
  // program begins
  const auto photos = std::make_shared<TensorDataset>(std::vector{pixels, labels});
  const MapDataset train(photos, [](Example e, RandomKey key) {
    Tensor x = e[0].to(DType::f32) / 255;
    if (random_uniform(key, 0) < 0.5) x = flip(x, 2);
    const std::int64_t down = random_below(key, 1, 9), right = random_below(key, 2, 9);
    return Example{pad(x, {4, 4, 4, 4}).narrow(1, down, 32).narrow(2, right, 32) - 0.5, e[1]};
  });
  const MapDataset test(photos, [](Example e, RandomKey) { return Example{e[0].to(DType::f32) / 255 - 0.5, e[1]}; });

  auto net = resnet18();
  Sgd sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4});
  Trainer trainer(*net, sgd, train, test,
                  {.batch_size = 8,
                   .epochs = 2,
                   .schedule = {.kind = ScheduleKind::cosine, .warmup = 2},
                   .save_folder = folder / "ck",
                   .watch = {.metric = "accuracy", .save_best = true},
                   .recipe = {{"model", "resnet18"}, {"data", "photos"}}});
  trainer.on_epoch = [](const EpochReport& e) { fmt::print("{} {:.3f} {}\n", e.epoch, e.train_loss, e.test.value()); };
  trainer.train();

  const Predictor predict(resnet18(), folder / "ck" / "best");
  const std::vector<float> p = softmax(predict(unsqueeze(photo - 0.5, 0)), 1).to_vector<float>();
  // program ends
  check(p.size() == 10 && std::ranges::max(p) > 0.1F, "the classifier's output is wrong");
}
