// What a task costs: pushing, dispatching and completing it. Empty tasks that read two resources, write one
// and carry 64 bytes; time is per task, of 10,000 pushed in a row. Beside them what a bare hand-over from
// thread to thread costs on this machine.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "lockstep/engine/adaptive_lock.h"
#include "lockstep/engine/engine.h"

namespace lockstep {
namespace {

constexpr int kTasks = 10'000;
constexpr int kResources = 192;

enum Pattern { kIndependent, kChain, kPingPong };

// state.range(0): lanes; range(1): serial engine.
void push_and_wait(benchmark::State& state, Pattern pattern) {
  Engine engine({.serial = state.range(1) != 0});
  std::vector<LaneId> lanes;
  for (int i = 0; i < state.range(0); ++i) lanes.push_back(engine.add_lane({.name = std::to_string(i)}));
  std::vector<Resource> resources;
  for (int i = 0; i < kResources; ++i) resources.push_back(engine.make_resource());
  const std::array<char, 64> closure{};
  const auto run = [closure](const TaskContext&) { benchmark::DoNotOptimize(&closure); };
  for (auto _ : state) {
    for (int i = 0; i < kTasks; ++i) {
      const LaneId lane = lanes[i % lanes.size()];
      if (pattern == kIndependent) {
        const int k = i % (kResources / 3);
        engine.push({.name = "independent",
                     .lane = lane,
                     .reads = {resources[3 * k], resources[3 * k + 1]},
                     .writes = {resources[3 * k + 2]},
                     .run = run});
      } else {
        // Each task reads what the one before it wrote.
        engine.push({.name = "chain",
                     .lane = lane,
                     .reads = {resources[i % 2], resources[2]},
                     .writes = {resources[(i + 1) % 2]},
                     .run = run});
      }
    }
    engine.wait_all();
  }
  state.counters["per_task"] = benchmark::Counter(static_cast<double>(state.iterations()) * kTasks,
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(push_and_wait, independent, kIndependent)
    ->Args({1, 0})
    ->Args({2, 0})
    ->Args({1, 1})
    ->UseRealTime();
BENCHMARK_CAPTURE(push_and_wait, chain_in_a_lane, kChain)->Args({1, 0})->UseRealTime();
BENCHMARK_CAPTURE(push_and_wait, ping_pong_of_lanes, kPingPong)->Args({2, 0})->UseRealTime();

// The host pushes one task and waits for it.
void push_then_wait(benchmark::State& state) {
  Engine engine;
  const LaneId lane = engine.add_lane({.name = "lane"});
  const Resource x = engine.make_resource();
  for (auto _ : state) {
    engine.push({.name = "one", .lane = lane, .writes = {x}, .run = [](const TaskContext&) {}});
    engine.wait_readable(x);
  }
}
BENCHMARK(push_then_wait)->UseRealTime();

// To and fro between two threads; time is per hand-over.
template <typename Wait>
void hand_over(benchmark::State& state, Wait wait) {
  constexpr int kRounds = 1000;
  std::atomic<int> turn{0};
  for (auto _ : state) {
    std::jthread other([&] {
      for (int i = 0; i < kRounds; ++i) {
        wait(turn, 0);
        turn.store(0);
        turn.notify_one();
      }
    });
    for (int i = 0; i < kRounds; ++i) {
      turn.store(1);
      turn.notify_one();
      wait(turn, 1);
    }
  }
  state.counters["per_hand_over"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 2 * kRounds,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void hand_over_sleeping(benchmark::State& state) {
  hand_over(state, [](std::atomic<int>& turn, int not_mine) { turn.wait(not_mine); });
}
BENCHMARK(hand_over_sleeping)->UseRealTime();

void hand_over_spinning(benchmark::State& state) {
  hand_over(state, [](std::atomic<int>& turn, int not_mine) {
    while (turn.load() == not_mine) spin_pause();
  });
}
BENCHMARK(hand_over_spinning)->UseRealTime();

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
