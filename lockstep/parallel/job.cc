#include "lockstep/parallel/job.h"

#include "lockstep/launch/launch_environment.h"

namespace lockstep {
namespace {

// A process that no launcher started is a job of its own.
std::shared_ptr<ProcessGroup> join(ProcessGroupOptions options) {
  const bool told = options.rank >= 0 || options.world_size >= 0 || options.store;
  const bool host = options.backend == "auto" || options.backend == "host" || options.backend == "gloo";
  if (!told && host && !read_launch_environment()) return make_local_groups(1)[0];
  return init_process_group(std::move(options));
}

std::vector<Device> devices_of_rank(const Runtime& runtime, const std::string& list, int rank, int world_size) {
  if (list.empty()) return runtime.devices();
  const std::vector<Device> all = runtime.devices(list);
  if (world_size == 1) return all;
  const auto launched = read_launched_rank();
  const int number = launched ? launched->local_rank.value_or(rank) : rank;
  check(number < std::ssize(all), "job: rank {} has local rank {}, but the only devices listed are {}", rank, number,
        list);
  return {all[static_cast<std::size_t>(number)]};
}

}  // namespace

Job::Job(JobOptions options)
    : group_(join(std::move(options.group))), runtime_(std::make_unique<Runtime>(std::move(options.runtime))),
      devices_(devices_of_rank(*runtime_, options.devices, group_->rank(), group_->size())),
      communicator_(std::make_shared<Communicator>(*runtime_, group_, devices_)) {}

Job::Job(std::shared_ptr<ProcessGroup> group, std::unique_ptr<Runtime> runtime, std::vector<Device> devices)
    : group_(std::move(group)), runtime_(std::move(runtime)),
      devices_(devices.empty() ? runtime_->devices() : std::move(devices)),
      communicator_(std::make_shared<Communicator>(*runtime_, group_, devices_)) {}

void Job::close() {
  if (!group_) return;
  runtime_->synchronize();
  communicator_.reset();
  destroy_process_group(group_);
}

Job::~Job() {
  if (!group_) return;
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      communicator_->abort("an exception ended it");
    } else {
      close();
    }
  } catch (const std::exception&) {
    // The group ends in any case. Other ranks report their own errors.
  }
}

}  // namespace lockstep
