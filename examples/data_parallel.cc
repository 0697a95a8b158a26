// PyTorch's tutorial "Data Parallelism": a model prints what each of its replicas sees of a batch.
//
//   data_parallel --num-devices 8
#include <fmt/core.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/data/random_dataset.h>
#include <lockstep/nn/linear.h>
#include <lockstep/nn/module.h>
#include <lockstep/parallel/data_parallel.h>

#include "device_options.h"

using namespace lockstep;

namespace {

constexpr std::int64_t kInputs = 5, kOutputs = 2, kBatchSize = 30, kExamples = 100;

struct Model : Module {
  Linear& fc = make<Linear>("fc", kInputs, kOutputs);
  Tensor forward(const Tensor& x) override {
    Tensor y = fc(x);
    fmt::print("In Model: input size {} output size {}\n", x.shape(), y.shape());
    return y;
  }
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Shows how a batch is split over the replicas of a model."};
  DeviceOptions options;
  options.add_to(app);
  return run_example(app, argc, argv, [&] {
    Runtime runtime(options.runtime());
    Model model;
    DataParallel parallel(model);
    fmt::print("{}\n", str(parallel));

    DataLoader loader(RandomDataset({.examples = kExamples, .length = kInputs}),
                      {.batch_size = kBatchSize, .shuffle = true});
    for (Example& batch : loader) {
      Tensor output = parallel(batch[0]);
      fmt::print("Outside: input size {} output size {}\n", batch[0].shape(), output.shape());
    }
  });
}
