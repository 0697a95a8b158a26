// Internal: the Jobs that this process has, found by the engine of their devices.
#pragma once

#include <memory>

#include "lockstep/parallel/communicator.h"

namespace lockstep {

class Engine;

// Lists a Job, by its devices' engine, among the process's Jobs while it lives. Each Job has one until it is closed.
class LivingJob {
 public:
  LivingJob(std::shared_ptr<const Engine> engine, std::weak_ptr<Communicator> communicator);
  ~LivingJob();
  LivingJob(const LivingJob&) = delete;
  LivingJob& operator=(const LivingJob&) = delete;

  const std::shared_ptr<const Engine>& engine() const { return engine_; }
  std::shared_ptr<Communicator> communicator() const { return communicator_.lock(); }

 private:
  std::shared_ptr<const Engine> engine_;
  std::weak_ptr<Communicator> communicator_;
};

}  // namespace lockstep
