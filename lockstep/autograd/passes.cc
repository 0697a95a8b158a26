#include "lockstep/autograd/passes.h"

#include <algorithm>

#include "lockstep/engine/engine.h"
#include "lockstep/runtime/step_recorder.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {

void Passes::add(const std::shared_ptr<FailureGroup>& pass) {
  if (pass && std::ranges::find(all_, pass) == all_.end()) all_.push_back(pass);
}

void Passes::add(const Passes& others) {
  for (const auto& pass : others.all_) {
    if (std::ranges::find(all_, pass) == all_.end()) all_.push_back(pass);
  }
  forgot_ |= others.forgot_;
  lost_ |= others.lost_;
}

void Passes::list_losses(std::vector<Resource>& all) const {
  for (const auto& pass : all_) {
    for (const Resource& loss : pass->roots) {
      if (std::ranges::find(all, loss) == all.end()) all.push_back(loss);
    }
  }
}

bool Passes::drop_failed(Engine& engine, std::span<const Array> sums, bool read) {
  const std::uint64_t reports = engine.reports();
  if (std::exchange(reports_, reports) == reports && !(read && lost_)) return false;
  std::vector<Resource> data;
  const auto cancelled = [&](const Array& sum) {
    if (!sum.defined()) return false;
    data.push_back(sum.resource());
    engine.wait_unused(sum.resource());
    const FailurePtr why = engine.failure(sum.resource());
    return why && why->cancelled;
  };
  std::ptrdiff_t known = 0;
  for (const auto& pass : all_) {
    if (!engine.reported(*pass)) continue;
    ++known;
    data.insert(data.end(), pass->roots.begin(), pass->roots.end());
  }
  if (std::ranges::any_of(sums, cancelled) || (known > 0 && known == std::ssize(all_) && !forgot_)) {
    *this = {};
    reports_ = reports;
    return true;
  }
  lost_ = false;
  for (const Resource& each : data) {
    const FailurePtr why = engine.failure(each);
    if (!why || engine.unreported(*why)) continue;
    if (read) {
      engine.report_again(why);
    } else {
      lost_ = true;
    }
  }
  return false;
}

void Passes::forget_good(Engine& engine) {
  // The repetitions of a recorded step compute its losses anew.
  if (all_.size() < many_ || StepRecorder::current()) return;
  const auto good = [&](const auto& pass) {
    return std::ranges::all_of(
        pass->roots, [&](const Resource& loss) { return engine.unused(loss) && engine.failure(loss) == nullptr; });
  };
  forgot_ |= std::erase_if(all_, good) > 0;
  many_ = std::max<std::size_t>(64, 2 * all_.size());
}

}  // namespace lockstep
