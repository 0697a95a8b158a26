// The options that several commands share, and what is made of them: devices, data, a model.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep::app {

struct JobOptions {
  std::string model = "resnet18";
  std::string data;
  std::string devices = "auto";
  int num_devices = 0;
  int threads_per_shard = 0;
  int cores_per_device = 0;
  int shards = 0;
  std::int64_t batch_size = 256;
  std::string dtype = "f32";
  bool tf32 = false;
  std::uint64_t seed = 0;
  std::string init_from;
  std::int64_t limit_train = 0;
  std::int64_t limit_test = 0;

  void add_model(CLI::App& app);
  void add_devices(CLI::App& app);
  void add_data(CLI::App& app);
};

// Arguments that cannot be used: exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// The runtime and the devices of a job.
struct Job {
  std::unique_ptr<Runtime> runtime;
  std::vector<Device> devices;
  // Null where the process is alone.
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<Communicator> communicator;
  int shards = 1;  // of all ranks together
  DType dtype = DType::f32;

  int rank() const { return group ? group->rank() : 0; }
  int world_size() const { return group ? group->size() : 1; }
};

// Settles what was left open: devices, shards, threads per shard. Notices for the user go to standard error, from rank 0
// where there are several.
Job make_job(const JobOptions& options, std::shared_ptr<ProcessGroup> group = nullptr);

std::shared_ptr<const Dataset> load_data(const JobOptions& options, bool train);

// Sequential or nothing: a model on the job's devices, with start weights from the seed or the file.
std::unique_ptr<Sequential> make_initialized_model(const JobOptions& options, const Job& job);

void notice(const std::string& text);

}  // namespace lockstep::app
