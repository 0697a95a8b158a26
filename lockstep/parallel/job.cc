#include "lockstep/parallel/job.h"

#include <algorithm>
#include <mutex>

#include "lockstep/base/warning.h"
#include "lockstep/device/gpu.h"
#include "lockstep/engine/failure.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/parallel/living_jobs.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {
namespace {

struct LivingJobs {
  std::mutex mutex;
  std::vector<const LivingJob*> all;
};

// Made with the first Job, and never destroyed: a Job may be a global object.
LivingJobs& living_jobs() {
  static auto& jobs = *new LivingJobs;
  return jobs;
}

// A process that no launcher started is a job of its own.
std::shared_ptr<ProcessGroup> join(ProcessGroupOptions options) {
  const bool told = options.rank >= 0 || options.world_size >= 0 || options.store;
  const bool host = options.backend == "auto" || options.backend == "host" || options.backend == "gloo";
  if (!told && host && !read_launch_environment()) return make_local_groups(1)[0];
  return init_process_group(std::move(options));
}

// Returns the runtime's options with the Job's devices, so that callers name devices only once. Leaves options that
// name devices as they are. Empties a list that means all devices of this rank's runtime.
RuntimeOptions with_devices(RuntimeOptions options, std::string& list) {
  const bool named =
      options.devices.given() || options.cpu_devices != 1 || !options.cuda.empty() || options.cuda_logical > 0;
  if (list == "auto") list.clear();
  if (named) return options;
  if (list.empty()) {
    options.devices = "auto";
  } else if (list == "cpu") {
    list.clear();  // one device, as without a choice
  } else if (list == "cuda") {
    const GpuList found = find_gpus();
    check(!found.gpus.empty(), "job: devices cuda: there is no GPU: {}", found.why_none);
    options.devices = "auto";
    list.clear();
  } else {
    options.devices = list;
  }
  return options;
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
    : group_(join(std::move(options.group))),
      runtime_(std::make_unique<Runtime>(with_devices(std::move(options.runtime), options.devices))),
      devices_(devices_of_rank(*runtime_, options.devices, group_->rank(), group_->size())),
      communicator_(std::make_shared<Communicator>(*runtime_, group_, devices_)) {
  begin();
}

Job::Job(std::shared_ptr<ProcessGroup> group, std::unique_ptr<Runtime> runtime, std::vector<Device> devices)
    : group_(std::move(group)), runtime_(std::move(runtime)),
      devices_(devices.empty() ? runtime_->devices() : std::move(devices)),
      communicator_(std::make_shared<Communicator>(*runtime_, group_, devices_)) {
  begin();
}

// From now on, models are placed on this rank's devices.
void Job::begin() {
  runtime_->train_on(devices_);
  living_ = std::make_shared<const LivingJob>(state_of(devices_.at(0), "job").engine, communicator_);
}

LivingJob::LivingJob(std::shared_ptr<const Engine> engine, std::weak_ptr<Communicator> communicator)
    : engine_(std::move(engine)), communicator_(std::move(communicator)) {
  std::scoped_lock lock(living_jobs().mutex);
  living_jobs().all.push_back(this);
}

LivingJob::~LivingJob() {
  std::scoped_lock lock(living_jobs().mutex);
  std::erase(living_jobs().all, this);
}

std::shared_ptr<Communicator> find_job(const std::vector<Device>& devices) {
  if (devices.empty() || devices[0].is_host()) return nullptr;
  const auto engine = state_of(devices[0], "job").engine;
  std::scoped_lock lock(living_jobs().mutex);
  const auto found = std::ranges::find_if(living_jobs().all, [&](const LivingJob* j) { return j->engine() == engine; });
  return found == living_jobs().all.end() ? nullptr : (*found)->communicator();
}

std::shared_ptr<Communicator> job_of(const std::vector<Device>& devices, std::string_view what) {
  std::shared_ptr<Communicator> found = find_job(devices);
  check(found != nullptr, "{}: the model is on {}, which belong to no Job: make the Job before the model", what,
        str(devices));
  return found;
}

namespace {

// Only this rank knows of its own failure that nothing has read. If a rank is lost, other ranks report it.
void report_dropped(const TaskError& error) noexcept {
  try {
    if (error.cause()) std::rethrow_exception(error.cause());
  } catch (const CommError&) {
    return;
  } catch (...) {
  }
  try {
    warn("failure at the end of a job", fmt::format("{}: nothing has read what it computes; call Job::close() to get "
                                                    "the error",
                                                    error.what()));
  } catch (...) {
  }
}

}  // namespace

void Job::close() {
  if (!group_) return;
  living_.reset();
  runtime_->synchronize();
  communicator_->close();
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
  } catch (const TaskError& error) {
    report_dropped(error);
  } catch (const std::exception&) {
    // The group ends in any case. As documented, errors of close() are ignored here.
  }
}

}  // namespace lockstep
