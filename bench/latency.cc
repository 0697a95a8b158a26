// Measures the time of a prediction for one image, as a server sees it: input and result are in host memory; and the
// tokens that a language model adds to a text in a second.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/benchmark.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lenet.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/resnet.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/train/predictor.h"

namespace lockstep::app {
namespace {

struct LatencyOptions {
  std::vector<std::string> models = {"mlp", "resnet18"};
  int calls = 0;      // 0: as many as the model needs for a second or two
  int max_batch = 1;  // joins calls above 1
};

using Milliseconds = std::chrono::duration<double, std::milli>;

struct CallTimes {
  std::vector<double> each;  // sorted
  double all;                // from the first call to the last one
};

// Times calls in several threads; each thread makes one call after another.
CallTimes call_times(const Predictor<Module>& predict, const Shape& image, int threads, int calls) {
  std::vector<std::vector<double>> times(static_cast<std::size_t>(threads));
  std::vector<std::thread> callers;
  const auto first = std::chrono::steady_clock::now();
  for (auto& mine : times) {
    callers.emplace_back([&] {
      const std::vector<float> pixels(static_cast<std::size_t>(image.numel()), 0.5F);
      for (int i = 0; i < calls; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        static_cast<void>(predict(Tensor::from(pixels, image)).to_vector<float>());
        mine.push_back(Milliseconds(std::chrono::steady_clock::now() - begin).count());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  const double whole = Milliseconds(std::chrono::steady_clock::now() - first).count();
  std::vector<double> each;
  for (const auto& mine : times) each.insert(each.end(), mine.begin(), mine.end());
  std::ranges::sort(each);
  return {each, whole};
}

// Times texts of a GPT with and without its cache of keys and values.
void measure_text(const BenchOptions& common, Report& report) {
  GPT gpt({.vocab_size = 256, .block_size = 256});
  gpt.initialize(Normal{0.02});
  std::vector<std::vector<Cell>> rows;
  for (const std::int64_t tokens : {32, 255}) {
    std::vector<std::int64_t> texts[2];
    std::vector<std::function<void()>> parts;
    for (const bool use_cache : {true, false}) {
      parts.emplace_back([&gpt, tokens, use_cache, &text = texts[use_cache ? 1 : 0]] {
        text = gpt.generate({0}, {.new_tokens = tokens, .seed = 1, .use_cache = use_cache});
      });
    }
    const std::vector<Timing> times = time_in_rounds(common.rounds, parts);
    check(texts[0] == texts[1], "bench latency: the text of {} tokens with the cache differs from that without it",
          tokens);
    report.timings(fmt::format("gpt, {} tokens", tokens), times);
    const auto rate = [&](const Timing& t) { return static_cast<double>(tokens) * 1000 / t.median_ms(); };
    rows.push_back({{double(tokens), 0}, {rate(times[0]), 0}, {rate(times[1]), 0}});
  }
  report.table("gpt", {"tokens of a text", "tokens/s", "tokens/s without cache"}, rows);
}

void measure_latency(const LatencyOptions& o, const BenchOptions& common, Report& report) {
  struct Case {
    const char* name;
    std::shared_ptr<Module> net;
    Shape image;
    int calls;
  };
  std::vector<Case> cases;
  for (const std::string& model : o.models) {
    if (model == "mlp") cases.push_back({"mlp", mlp(), {1, 1, 28, 28}, 2000});
    if (model == "lenet") cases.push_back({"lenet", lenet(), {1, 1, 28, 28}, 2000});
    if (model == "resnet18") cases.push_back({"resnet18", torchvision::resnet18(), {1, 3, 224, 224}, 15});
  }
  report.begin();
  Runtime runtime;
  for (const Case& c : cases) {
    c.net->initialize(Xavier{}, runtime.devices());
    const Predictor<Module> predict(c.net, {.max_batch = o.max_batch});
    const int calls = o.calls > 0 ? o.calls : c.calls;
    for (const int threads : {1, 4}) static_cast<void>(call_times(predict, c.image, threads, 3));  // warms up
    std::vector<std::vector<Cell>> rows;
    for (const int threads : {1, 4}) {
      std::vector<double> median, late, rate;
      for (int round = 0; round < common.rounds; ++round) {
        const auto [each, all] = call_times(predict, c.image, threads, std::max(1, calls / threads));
        rate.push_back(static_cast<double>(each.size()) * 1000 / all);
        median.push_back(each[each.size() / 2]);
        late.push_back(each[each.size() * 99 / 100]);
      }
      rows.push_back({{double(threads), 0}, {app::median(median), 3}, {app::median(late), 3}, {app::median(rate), 0}});
    }
    report.table(c.name, {"calling threads", "median, ms", "99th percentile, ms", "calls/s"}, rows);
  }
  if (std::ranges::find(o.models, "gpt") != o.models.end()) measure_text(common, report);
}

}  // namespace

Benchmark add_bench_latency(CLI::App& app) {
  auto o = std::make_shared<LatencyOptions>();
  app.add_option("--model", o->models, "Of mlp, lenet, resnet18, gpt, with commas between them")
      ->delimiter(',')
      ->check(CLI::IsMember({"mlp", "lenet", "resnet18", "gpt"}))
      ->capture_default_str();
  app.add_option("--max-batch", o->max_batch, "Joins calls to batches of at most so many images")
      ->check(CLI::Range(1, 1 << 10))
      ->capture_default_str();
  app.add_option("--calls", o->calls, "Calls of all threads together in a round [mlp, lenet: 2000; resnet18: 15]")
      ->check(CLI::Range(1, 1 << 20));
  return [o](const BenchOptions& common, Report& report) { measure_latency(*o, common, report); };
}

}  // namespace lockstep::app
