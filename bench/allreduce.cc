// Measures all-reduce between two processes of this host, through shared memory and through TCP.
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <array>
#include <memory>

#include "apps/lockstep/options/common_options.h"
#include "bench/benchmark.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/device/topology.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::app {
namespace {

constexpr int kRanks = 2;
constexpr int kMaxRounds = 1000;

struct Size {
  const char* name;
  std::size_t floats;
  int calls;  // in one round
};
// The last size is that of ResNet-18's gradients.
constexpr Size kSizes[] = {{"4 B", 1, 200}, {"1 MB", 250'000, 4}, {"44 MB", 11'000'000, 1}};
constexpr std::size_t kRows = std::size(kSizes) + 1;  // the last size also with a TreeReducer

// Seconds of one call, sent from the measuring process to the printing one.
struct Results {
  std::array<std::array<double, kMaxRounds>, kRows> seconds;
};

void bind_to_own_cores() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int cpu : available_cpus()) CPU_SET(cpu, &cpus);
  ::sched_setaffinity(0, sizeof cpus, &cpus);
}

void check_sum(std::span<const float> sum, float expected) {
  for (std::size_t i : {std::size_t{0}, sum.size() / 2, sum.size() - 1}) {
    check(sum[i] == expected, "all-reduce: element {} is {}, expected {}", i, sum[i], expected);
  }
}

double seconds_of_calls(ProcessGroup& group, int calls, const std::function<void()>& call) {
  group.barrier().wait();
  return seconds_of([&] {
           for (int i = 0; i < calls; ++i) call();
         }) /
         calls;
}

void measure_allreduce(int rounds, Results& results) {
  auto group = init_process_group();
  // Starts with a warm-up round, which is not kept.
  for (int round = -1; round < rounds; ++round) {
    const auto keep = [&](std::size_t row, double seconds) {
      if (round >= 0 && group->rank() == 0) results.seconds[row][static_cast<std::size_t>(round)] = seconds;
    };
    for (std::size_t row = 0; row < std::size(kSizes); ++row) {
      // Zeros would hide wrong sums, so a separate call checks them.
      std::vector<float> data(kSizes[row].floats, static_cast<float>(group->rank() + 1));
      const CommBuffer buffer{data.data(), data.size(), DType::f32};
      group->all_reduce(buffer, ReduceOp::sum).wait();
      check_sum(data, 3);
      std::fill(data.begin(), data.end(), 0.0f);
      keep(row, seconds_of_calls(*group, kSizes[row].calls, [&] { group->all_reduce(buffer, ReduceOp::sum).wait(); }));
    }
  }
  auto reducer = group->make_tree_reducer({{kSizes[2].floats}, {{0}, {1}}}, CommChannel::bulk);
  const auto own = reducer->contribution(0).as<float>();
  std::fill(own.begin(), own.end(), static_cast<float>(group->rank() + 1));
  reducer->set_present(0, 0, true);
  for (int round = -1; round < rounds; ++round) {
    const double seconds = seconds_of_calls(*group, 1, [&] { reducer->reduce({}); });
    check_sum(reducer->result(), 3);
    if (round >= 0 && group->rank() == 0) results.seconds[kRows - 1][static_cast<std::size_t>(round)] = seconds;
  }
  reducer.reset();
  destroy_process_group(group);
}

// Measures in child processes. The results are in memory that they share.
std::unique_ptr<Results, void (*)(Results*)> measure_in_processes(int rounds, const char* transport) {
  void* memory = ::mmap(nullptr, sizeof(Results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "bench allreduce: cannot allocate {} bytes", sizeof(Results));
  std::unique_ptr<Results, void (*)(Results*)> results(static_cast<Results*>(memory),
                                                       [](Results* r) { ::munmap(r, sizeof(Results)); });
  spawn(
      [&](int) {
        ::setenv("LOCKSTEP_TRANSPORT", transport, 1);
        bind_to_own_cores();  // as ranks that compute are bound
        measure_allreduce(rounds, *results);
      },
      {.nprocs = kRanks});  // by fork(), which is safe because there is only one thread so far
  return results;
}

std::string time_of(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.2f} ms", seconds * 1e3);
}

void bench_allreduce(const BenchOptions& options, Report& report) {
  if (options.rounds > kMaxRounds) {
    throw UsageError(fmt::format("--rounds {}: expected at most {}", options.rounds, kMaxRounds));
  }
  report.begin();
  std::vector<std::vector<Cell>> rows(kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    const bool tree = row == std::size(kSizes);
    const std::size_t size = std::min(row, std::size(kSizes) - 1);
    rows[row] = {std::string(kSizes[size].name) + (tree ? ", tree reducer" : "")};
  }
  std::vector<double> shared_memory(kRows);
  for (const char* transport : {"auto", "tcp"}) {
    const auto results = measure_in_processes(options.rounds, transport);
    std::vector<Timing> timings;
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto& all = results->seconds[row];
      timings.push_back({{all.begin(), all.begin() + options.rounds}});
      const double seconds = median(timings.back().rounds);
      const double bytes = static_cast<double>(kSizes[std::min(row, std::size(kSizes) - 1)].floats) * sizeof(float);
      rows[row].emplace_back(time_of(seconds));
      rows[row].emplace_back(bytes / seconds / 1e9, 3);
      if (std::string_view(transport) == "auto") {
        shared_memory[row] = seconds;
      } else {
        rows[row].emplace_back(seconds / shared_memory[row], 1);
      }
    }
    report.timings(transport, timings);
  }
  report.table("All-reduce between 2 processes of this host: medians of one call",
               {"size", "shared memory", "GB/s", "TCP, loopback", "TCP GB/s", "times faster"}, rows);
}

}  // namespace

Benchmark add_bench_allreduce(CLI::App&) { return bench_allreduce; }

}  // namespace lockstep::app
