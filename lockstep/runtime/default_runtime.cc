#include "lockstep/runtime/default_runtime.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/printable.h"
#include "lockstep/runtime/living_runtimes.h"

namespace lockstep {
namespace {

WantedDevices devices_of_environment() {
  constexpr const char* kName = "LOCKSTEP_DEVICES";
  const std::string text = environment(kName).value_or("");
  if (text.empty()) return "auto";
  if (text.find_first_not_of("0123456789") != std::string::npos) return text;
  return static_cast<int>(parse_integer(kName, text, 1, 1024));
}

}  // namespace

// The Runtimes of this process. Made at first use, and never destroyed: a Runtime may be a global object.
class ProcessRuntimes {
 public:
  static ProcessRuntimes& get() {
    static auto& all = *new ProcessRuntimes;
    return all;
  }

  void add(Runtime& runtime) {
    std::scoped_lock lock(mutex_);
    own_.push_back(&runtime);
  }
  void remove(Runtime& runtime) {
    std::scoped_lock lock(mutex_);
    std::erase(own_, &runtime);
  }

  // Returns the default Runtime. Makes it with these devices if there is none.
  Runtime& default_runtime(const WantedDevices& wanted) {
    std::scoped_lock lock(mutex_);
    if (!own_.empty()) return only("default runtime", "the devices by name");
    if (!made_) {
      check(!ended_, "default runtime: the program is exiting");
      RuntimeOptions options;
      options.devices = wanted.list() == "auto" ? devices_of_environment() : wanted;
      made_.reset(new Runtime(std::move(options), random_));
      process_ = ::getpid();
      std::atexit([] { get().end(); });
    }
    check(process_ == ::getpid(),
          "default runtime: process {} made it, and fork() copied none of its threads: call spawn() before anything "
          "needs a device",
          process_);
    return *made_;
  }

  RandomState& current_random(std::string_view what) {
    if (RandomState* const own = RandomState::of_thread().get()) return *own;
    std::scoped_lock lock(mutex_);
    return own_.empty() ? *random_ : only(what, "a seed in the options").random();
  }

  std::uint64_t seed(std::string_view what) {
    if (RandomState* const own = RandomState::of_thread().get()) return own->seed();
    std::scoped_lock lock(mutex_);
    if (own_.empty()) return random_->seed();
    const std::uint64_t first = own_[0]->random().seed();
    for (Runtime* runtime : own_) {
      check(runtime->random().seed() == first,
            "{}: this process has Runtimes with seed {} and with seed {}, expected the seed in the options", what,
            first, runtime->random().seed());
    }
    return first;
  }

  std::shared_ptr<Seeding> seeding() {
    if (RandomState* const own = RandomState::of_thread().get()) return own->seeding();
    std::scoped_lock lock(mutex_);
    if (own_.empty()) return random_->seeding();
    return own_.size() == 1 ? own_[0]->random().seeding() : nullptr;
  }

  void set_seed(std::uint64_t seed) {
    if (::gettid() != ::getpid()) {
      auto own = std::make_shared<RandomState>();
      own->restart(seed, Seeding::By::thread);
      return RandomState::set_of_thread(std::move(own));
    }
    RandomState::set_of_thread(nullptr);
    std::scoped_lock lock(mutex_);
    random_->restart(seed);
    for (Runtime* runtime : own_) runtime->random().restart(seed);
  }

  const std::shared_ptr<RandomState>& random() const { return random_; }

 private:
  // Call it with the lock.
  Runtime& only(std::string_view what, std::string_view expected) const {
    if (own_.size() > 1) {
      std::string all;
      for (const Runtime* runtime : own_) all += (all.empty() ? "" : ", ") + str(runtime->devices());
      fail("{}: this process has {} Runtimes, {}, expected one, or {}", what, own_.size(), all, expected);
    }
    return *own_[0];
  }

  void end() noexcept {
    std::unique_ptr<Runtime> runtime;
    {
      std::scoped_lock lock(mutex_);
      ended_ = true;
      runtime = std::move(made_);
    }
    if (process_ != ::getpid()) {
      // A fork has none of the threads that it would wait for.
      (void)runtime.release();
      return;
    }
    try {
      runtime->synchronize();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "lockstep: at exit, a failure that nothing has waited for: %s\n",
                   printable_text(error.what()).c_str());
    }
  }

  std::mutex mutex_;
  std::vector<Runtime*> own_;  // in the order of their creation
  std::unique_ptr<Runtime> made_;
  ::pid_t process_ = 0;  // the process that made it
  bool ended_ = false;
  const std::shared_ptr<RandomState> random_ = std::make_shared<RandomState>();
};

LivingRuntime::LivingRuntime(Runtime& runtime) : runtime_(&runtime) { ProcessRuntimes::get().add(runtime); }
LivingRuntime::~LivingRuntime() { ProcessRuntimes::get().remove(*runtime_); }

const std::shared_ptr<RandomState>& process_random() { return ProcessRuntimes::get().random(); }
RandomState& current_random(std::string_view what) { return ProcessRuntimes::get().current_random(what); }
std::shared_ptr<Seeding> current_seeding() { return ProcessRuntimes::get().seeding(); }
std::uint64_t default_seed(std::string_view what) { return ProcessRuntimes::get().seed(what); }

Runtime& default_runtime() { return ProcessRuntimes::get().default_runtime("auto"); }

void synchronize() { default_runtime().synchronize(); }

std::vector<Device> devices() { return default_runtime().devices(); }

Device device(std::string_view name) { return default_runtime().device(name); }

std::vector<Device> devices(const WantedDevices& wanted) {
  check(wanted.given() && (!wanted.list().empty() || wanted.count() >= 1),
        "devices: {} devices, expected at least 1, or a list", wanted.count());
  Runtime& runtime = ProcessRuntimes::get().default_runtime(wanted);
  const std::vector<Device> all = runtime.devices();
  if (wanted.list() == "auto") return all;
  if (wanted.list().empty()) {
    check(static_cast<int>(all.size()) == wanted.count(),
          "devices({}): the Runtime has {} already, {}: call devices({}) before anything else needs a device",
          wanted.count(), all.size(), str(all), wanted.count());
  } else {
    check(
        static_cast<int>(all.size()) == parse_device_list(wanted.list()).count && runtime.devices(wanted.list()) == all,
        "devices(\"{}\"): the Runtime has {} already: call it before anything else needs a device", wanted.list(),
        str(all));
  }
  return all;
}

void manual_seed(std::uint64_t seed) { ProcessRuntimes::get().set_seed(seed); }

}  // namespace lockstep
