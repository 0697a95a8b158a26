// Measures the cost of a task: pushing, dispatching, and completing it. Tasks are empty, read two resources, write one,
// and capture 64 bytes. For comparison, measures a bare hand-over between threads on this machine, which is a lower
// bound for any engine.
#include <fmt/core.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <memory>
#include <thread>

#include "bench/benchmark.h"
#include "lockstep/base/adaptive_lock.h"
#include "lockstep/engine/engine.h"

namespace lockstep::app {
namespace {

struct BenchEngineOptions {
  int tasks = 100'000;
  int hand_overs = 20'000;
};

enum class Pattern { kIndependent, kChain };

struct Workload {
  std::string name;
  Pattern pattern;
  int lanes = 1;
  bool serial = false;
};

// Returns the CPU time of all threads, in seconds.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cost {
  std::vector<double> wall_us, cpu_us;
  Cell wall() const { return {median(wall_us), 2}; }
  Cell cpu() const { return {median(cpu_us), 2}; }
};

// Returns the cost per item of `work`, which handles `count` items.
Cost cost_of(int rounds, int count, const std::function<void()>& work) {
  Cost cost;
  work();
  for (int round = 0; round < rounds; ++round) {
    const double cpu = cpu_seconds();
    cost.wall_us.push_back(seconds_of(work) * 1e6 / count);
    cost.cpu_us.push_back((cpu_seconds() - cpu) * 1e6 / count);
  }
  return cost;
}

Cost cost_of_tasks(int rounds, int tasks, const Workload& workload) {
  constexpr int kTriples = 64;
  Engine engine({.serial = workload.serial});
  std::vector<LaneId> lanes;
  for (int i = 0; i < workload.lanes; ++i) lanes.push_back(engine.add_lane({.name = std::to_string(i)}));
  std::vector<Resource> r;
  for (int i = 0; i < 3 * kTriples; ++i) r.push_back(engine.make_resource());
  const std::array<char, 64> closure{};
  const auto run = [closure](const TaskContext&) { asm volatile("" : : "r"(&closure) : "memory"); };
  return cost_of(rounds, tasks, [&] {
    for (int i = 0; i < tasks; ++i) {
      const LaneId lane = lanes[static_cast<std::size_t>(i) % lanes.size()];
      const auto k = static_cast<std::size_t>(i % kTriples) * 3;
      if (workload.pattern == Pattern::kIndependent) {
        engine.push({.name = "task", .lane = lane, .reads = {r[k], r[k + 1]}, .writes = {r[k + 2]}, .run = run});
      } else {
        // Each task reads what the previous one wrote.
        engine.push({.name = "task", .lane = lane, .reads = {r[i % 2], r[2]}, .writes = {r[(i + 1) % 2]}, .run = run});
      }
    }
    engine.wait_all();
  });
}

// Measures a host that pushes one task and waits for it.
Cost cost_of_one_task(int rounds, int tasks) {
  Engine engine;
  const LaneId lane = engine.add_lane({.name = "lane"});
  const Resource x = engine.make_resource();
  return cost_of(rounds, tasks, [&] {
    for (int i = 0; i < tasks; ++i) {
      engine.push({.name = "task", .lane = lane, .writes = {x}, .run = [](const TaskContext&) {}});
      engine.wait_readable(x);
    }
  });
}

// How a thread waits until another thread has set `turn`.
struct Sleep {
  static void wait(std::atomic<int>& turn, int not_mine) {
    while (turn.load() == not_mine) futex(turn, FUTEX_WAIT_PRIVATE, not_mine);
  }
  static void notify(std::atomic<int>& turn) { futex(turn, FUTEX_WAKE_PRIVATE, 1); }

 private:
  static void futex(std::atomic<int>& turn, int operation, int value) {
    static_assert(sizeof turn == sizeof(int) && std::atomic<int>::is_always_lock_free);
    syscall(SYS_futex, reinterpret_cast<int*>(&turn), operation, value, nullptr, nullptr, 0);
  }
};

struct Spin {
  static void wait(std::atomic<int>& turn, int not_mine) {
    // The other thread may need this core.
    constexpr int kSpinsToYield = 4096;
    for (int i = 1; turn.load() == not_mine; ++i) {
      spin_pause();
      if (i % kSpinsToYield == 0) std::this_thread::yield();
    }
  }
  static void notify(std::atomic<int>&) {}
};

// Measures hand-overs back and forth between two threads.
template <typename Way>
Cost cost_of_hand_over(int rounds, int count) {
  return cost_of(rounds, count, [count] {
    std::atomic<int> turn{0};
    auto set = [&](int value) {
      turn.store(value);
      Way::notify(turn);
    };
    std::jthread other([&] {
      for (int i = 0; i < count / 2; ++i) {
        Way::wait(turn, 0);
        set(0);
      }
    });
    for (int i = 0; i < count / 2; ++i) {
      set(1);
      Way::wait(turn, 1);
    }
  });
}

void measure_engine(const BenchEngineOptions& o, const BenchOptions& common, Report& report) {
  report.begin();
  report.set("rounds", common.rounds);
  report.set("tasks", o.tasks);
  const std::vector<std::string> headings{"what", "wall us", "cpu us"};

  std::vector<std::vector<Cell>> rows;
  for (const Workload& w : {Workload{"serial engine, independent tasks", Pattern::kIndependent, 1, true},
                            Workload{"one lane, independent tasks", Pattern::kIndependent, 1},
                            Workload{"one lane, a chain", Pattern::kChain, 1},
                            Workload{"two lanes, independent tasks", Pattern::kIndependent, 2},
                            Workload{"two lanes, each task waits for the other lane's", Pattern::kChain, 2}}) {
    const Cost cost = cost_of_tasks(common.rounds, o.tasks, w);
    rows.push_back({w.name, cost.wall(), cost.cpu()});
  }
  const Cost waited = cost_of_one_task(common.rounds, std::min(o.tasks, o.hand_overs));
  rows.push_back({"one task, the host waits for each", waited.wall(), waited.cpu()});
  report.table(fmt::format("an empty task: push, dispatch, completion; {} tasks", o.tasks), headings, rows);

  const Cost spinning = cost_of_hand_over<Spin>(common.rounds, o.hand_overs);
  const Cost sleeping = cost_of_hand_over<Sleep>(common.rounds, o.hand_overs);
  report.table("a bare hand-over from thread to thread", headings,
               {{"to a spinning thread", spinning.wall(), spinning.cpu()},
                {"to a sleeping thread (futex)", sleeping.wall(), sleeping.cpu()}});
}

}  // namespace

Benchmark add_bench_engine(CLI::App& app) {
  auto o = std::make_shared<BenchEngineOptions>();
  app.add_option("--tasks", o->tasks, "Tasks per round")->check(CLI::Range(1, 100'000'000))->capture_default_str();
  app.add_option("--hand-overs", o->hand_overs, "Hand-overs per round")
      ->check(CLI::Range(2, 100'000'000))
      ->capture_default_str();
  return [o](const BenchOptions& common, Report& report) { measure_engine(*o, common, report); };
}

}  // namespace lockstep::app
