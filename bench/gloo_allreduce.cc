// Counterpart of `lockstep bench allreduce`: Gloo's all-reduce of floats between two processes over TCP loopback.
// gloo_allreduce ROUNDS prints the median time of one call for each size. See compare_gloo.sh.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <vector>

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(int rank, int rounds, const char* folder) {
  auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
  gloo::rendezvous::FileStore store(folder);
  context->connectFullMesh(store, device);
  struct Size {
    const char* name;
    std::size_t floats;
    int calls;
  };
  for (const Size& size : {Size{"4 B", 1, 200}, Size{"1 MB", 250'000, 4}, Size{"44 MB", 11'000'000, 1}}) {
    std::vector<float> data(size.floats);
    std::vector<double> seconds;
    for (int round = -1; round < rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int call = 0; call < size.calls; ++call) {
        gloo::AllreduceOptions options(context);
        options.setOutput(data.data(), data.size());
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
        gloo::allreduce(options);
      }
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      if (round >= 0) seconds.push_back(time.count() / size.calls);
    }
    if (rank == 0) std::printf("%-8s %10.1f us\n", size.name, median(seconds) * 1e6);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  char folder[] = "/tmp/gloo-XXXXXX";
  if (rounds < 1 || ::mkdtemp(folder) == nullptr) return 2;
  const pid_t child = ::fork();
  measure(child == 0 ? 1 : 0, rounds, folder);
  if (child == 0) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::remove_all(folder);
  return status == 0 ? 0 : 1;
}
