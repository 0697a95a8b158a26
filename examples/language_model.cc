// A language model of characters: trains a GPT or an LSTM on any text file, on several devices and processes, and then
// writes text of its own. The bits depend on --shards, not on the devices.
//
//   language_model --data book.txt --devices cpu:0,cpu:1
//   language_model --data book.txt --model lstm --nprocs 2     processes with devices of their own
//   lockstep launch --nproc-per-node 2 -- language_model --data book.txt
//   language_model --data book.txt --init-from gpt.safetensors --max-steps 0   only writes text
#include <fmt/core.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/data/text.h>
#include <lockstep/launch/launch_environment.h>
#include <lockstep/launch/spawn.h>
#include <lockstep/models/gpt.h>
#include <lockstep/models/lstm_language_model.h>
#include <lockstep/optim/adam.h>
#include <lockstep/parallel/distributed_data_parallel.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "device_options.h"

using namespace lockstep;

struct Options : DeviceOptions {
  std::string data, model = "gpt", prompt, init_from, save;
  int nprocs = 1, shards = 8;
  std::int64_t batch_size = 32;  // of all devices and ranks
  std::int64_t context = 128, layers = 4, heads = 4, width = 128;
  std::int64_t max_steps = 500, log_every = 50, sample = 200;
  double lr = 1e-3, dropout = 0.1, clip = 1, temperature = 0.8;
  std::uint64_t seed = 0;
};

std::unique_ptr<LanguageModel> make_model(const Options& o, std::int64_t characters) {
  if (o.model == "gpt") {
    auto gpt = std::make_unique<GPT>(GPTOptions{.vocab_size = characters,
                                                .block_size = o.context,
                                                .n_layer = o.layers,
                                                .n_head = o.heads,
                                                .n_embd = o.width,
                                                .dropout = o.dropout});
    gpt->initialize(Normal{0.02}, {.seed = o.seed});
    return gpt;
  }
  auto lstm = std::make_unique<LstmLanguageModel>(LstmLanguageModelOptions{.vocab_size = characters,
                                                                           .embedding_dim = o.width,
                                                                           .hidden_size = o.width,
                                                                           .num_layers = o.layers,
                                                                           .dropout = o.dropout});
  lstm->initialize(Uniform(1 / std::sqrt(static_cast<double>(o.width))), {.seed = o.seed});
  return lstm;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  check(file.good() && text.good(), "{}: no text could be read", path);
  return text.str();
}

// The program of each rank.
void run(const Options& o) {
  // One process has all devices of a list; several have one each.
  Job job({.runtime = o.runtime(), .devices = o.list});
  const std::string text = read_text(o.data);
  const CharacterSet characters(text);
  const std::vector<std::int64_t> ids = characters.encode(text);
  characters.encode(o.prompt);  // an error before the training
  TextDataset windows(ids, {.context = o.context, .random_starts = true});
  const std::unique_ptr<LanguageModel> model = make_model(o, characters.size());
  if (!o.init_from.empty()) load_weights(o.init_from, *model);
  DistributedDataParallel ddp(*model, {.split = {.shards = o.shards}});
  // As usual for transformers: biases and norms do not decay.
  std::vector<Parameter> matrices, others;
  for (const Parameter& p : model->parameters()) (p.shape().dim() > 1 ? matrices : others).push_back(p);
  AdamW optimizer({{.parameters = matrices}, {.parameters = others, .weight_decay = 0}},
                  {.lr = o.lr, .weight_decay = 0.1});
  DataLoader loader(std::move(windows), {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed});
  const bool speaks = job.rank() == 0;
  if (speaks) {
    fmt::print("{}: {} parameters, {} characters, {} in each of {} processes\n", o.model, model->parameter_count(),
               characters.size(), str(job.devices()), job.world_size());
  }

  auto begin = std::chrono::steady_clock::now();
  std::int64_t tokens = 0;
  for (std::int64_t step = 0; step < o.max_steps;) {
    for (auto [x, labels] : loader.on(ddp)) {
      const Tensor loss = cross_entropy(flatten(ddp(x), 0, 1), flatten(labels, 0, 1));
      loss.backward();
      optimizer.clip_grad_norm(o.clip);
      optimizer.step();
      tokens += x.numel();
      if (++step % o.log_every == 0 || step == o.max_steps) {
        const float value = loss.item();  // waits for the step
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - begin).count();
        const double rate = static_cast<double>(tokens) / seconds;
        if (speaks) fmt::print("step {}, loss {:.4f}, {:.0f} tokens/s\n", step, value, rate);
        std::fflush(stdout);
        begin = now;
        tokens = 0;
      }
      if (step == o.max_steps) break;
    }
  }
  if (speaks) {
    const auto text_of_model =
        model->generate(o.prompt.empty() ? std::vector{ids[0]} : characters.encode(o.prompt),
                        {.new_tokens = o.sample, .temperature = o.temperature, .context = o.context, .seed = o.seed});
    fmt::print("weights {}\n{}\n", weights_sha256(*model), characters.decode(text_of_model));
    if (!o.save.empty()) save_weights(o.save, *model);
  }
  job.close();
}

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"Trains a language model of characters on a text file"};
  const CLI::Range from_one(std::int64_t{1}, std::int64_t{1} << 31);
  app.add_option("--data", o.data, "The text")->required()->check(CLI::ExistingFile);
  app.add_option("--model", o.model, "The model")->check(CLI::IsMember({"gpt", "lstm"}))->capture_default_str();
  app.add_option("--nprocs", o.nprocs, "Processes to start, unless a launcher already started this one")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--shards", o.shards, "Shards per batch")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--batch-size", o.batch_size, "Over all devices and processes")
      ->check(from_one)
      ->capture_default_str();
  app.add_option("--context", o.context, "Characters of an example")->check(from_one)->capture_default_str();
  app.add_option("--layers", o.layers, "Number of layers")->check(from_one)->capture_default_str();
  app.add_option("--heads", o.heads, "GPT: attention heads")->check(from_one)->capture_default_str();
  app.add_option("--width", o.width, "Number of features")->check(from_one)->capture_default_str();
  app.add_option("--dropout", o.dropout, "Probability of dropout")->check(CLI::Range(0.0, 0.99))->capture_default_str();
  app.add_option("--lr", o.lr, "Learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--clip", o.clip, "The largest norm of the gradients")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-steps", o.max_steps, "Number of steps")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--log-every", o.log_every, "Steps between log lines")->check(from_one)->capture_default_str();
  app.add_option("--sample", o.sample, "Characters to write at the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--prompt", o.prompt, "Text to continue [the first character of the data]");
  app.add_option("--temperature", o.temperature, "Divides the logits before sampling: lower is more predictable")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--init-from", o.init_from, "Start from the weights of this safetensors file")
      ->check(CLI::ExistingFile);
  app.add_option("--save", o.save, "Write the final weights to this safetensors file");
  app.add_option("--seed", o.seed, "Seed of start weights, batches, dropout, and samples")->capture_default_str();
  o.add_to(app, "--num-devices", "Devices of each process");
  return run_example(app, argc, argv, [&] {
    if (read_launch_environment()) return run(o);
    spawn([&](int) { run(o); }, {.nprocs = o.nprocs, .join = true});
  });
}
