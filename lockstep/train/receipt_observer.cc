#include "lockstep/train/receipt_observer.h"

#include <utility>

#include "lockstep/base/version.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/receipt/digest.h"

namespace lockstep {

ReceiptObserver::ReceiptObserver(ReceiptOptions options, std::string device, const Dataset& train, const Dataset* test,
                                 std::filesystem::path resumed_from, std::function<StateDigest()> state)
    : options_(std::move(options)), device_(std::move(device)), train_(train), test_(test),
      resumed_from_(std::move(resumed_from)), state_(std::move(state)) {}

void ReceiptObserver::start(const TrainingStart& start) {
  module_ = start.module;
  writer_.emplace(options_,
                  Receipt::Head{.version = LOCKSTEP_VERSION,
                                .kernel_revision = LOCKSTEP_KERNEL_REVISION,
                                .device = device_,
                                .recipe = *start.recipe},
                  train_, test_, start.position.step, state_(), resumed_from_);
}

void ReceiptObserver::settled(const SettledStep& state, bool urgent) {
  if (writer_->steps() < state.step) {
    writer_->add_link(state.step, state.digest(), state.loss);
    names_weights_ = false;
  }
  if (!urgent && !writer_->due()) return;
  if (!std::exchange(names_weights_, true)) writer_->set_weights(*parse_digest(weights_sha256(*module_)));
  writer_->write();
}

void ReceiptObserver::checkpoint(const std::filesystem::path& folder) {
  writer_->set_checkpoints(checkpoints_in(folder));
  writer_->write();
}

}  // namespace lockstep
