// Ranks that train one model, and go on where they were after a kill.
#include <lockstep/lockstep.h>

#include "programs.h"

using namespace lockstep;

namespace {

std::filesystem::path resumed_folder;
std::int64_t resumed_most = 0;  // steps; stands for the kill
TensorDataset resumed_data() {
  const Tensor x = randn({160, 4}, {.seed = 4});
  return TensorDataset({x, x * 2});
}

// program begins
void run() {
  Job job;
  Sequential net;
  net.append(Linear(4, 16)).append(ReLU()).append(Linear(16, 4));
  Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  Trainer trainer(net, sgd, resumed_data(), nullptr,
                  {.batch_size = 32,
                   .epochs = 3,
                   .max_steps = resumed_most,
                   .loss = [](const Tensor& y, const Tensor& target) { return mse_loss(y, target); },
                   .save_folder = resumed_folder / "ck",
                   .save_every = 2,
                   .resume = true,
                   .recipe = {{"model", "net"}, {"data", "v1"}, {"loss", "mse"}}});
  trainer.train();
  if (job.rank() == 0) save_weights(resumed_folder / "weights.safetensors", net);
  job.close();
}
// program ends

std::string resumed_weights(const std::filesystem::path& folder, const std::vector<std::int64_t>& runs, int ranks) {
  std::filesystem::create_directories(resumed_folder = folder);
  for (const std::int64_t most : runs) {
    resumed_most = most;
    spawn([](int) { run(); }, {.nprocs = ranks});
  }
  std::string all;
  const SafetensorsFile file = read_safetensors(folder / "weights.safetensors");
  for (const TensorBytes& t : file.tensors) all.append(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  return all;
}

}  // namespace

void programs::resumed_ranks(const std::filesystem::path& folder) {
  const std::string whole = resumed_weights(folder / "whole", {0}, 2);
  check(resumed_weights(folder / "killed", {7, 0}, 2) == whole, "the resumed run has other weights");
}
