// Internal: measures how long devices had nothing to compute because the next batch was not ready.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/engine/engine.h"

namespace lockstep {

class DataWait {
 public:
  explicit DataWait(std::span<const Device> devices);
  // Calls `take`, which takes the next batch. Adds the time of this call, minus the compute time of the device that
  // computed least meanwhile. A GPU's work is not measured: queued steps that it computes count as waiting.
  void measure(const std::function<void()>& take);
  double seconds() const { return std::chrono::duration<double>(waited_).count(); }
  // Sets the time to 0.
  void reset() { waited_ = {}; }

 private:
  using Times = std::vector<std::chrono::nanoseconds>;
  Times busy() const;

  struct Lane {
    std::shared_ptr<Engine> engine;
    LaneId id;
    std::size_t device;
  };
  std::vector<Lane> lanes_;
  std::size_t devices_;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace lockstep
