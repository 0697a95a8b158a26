#include "lockstep/ops/draw_log.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

thread_local DrawLog* current_log = nullptr;

}  // namespace

DrawLog::DrawLog() : outer_(std::exchange(current_log, this)) {}
DrawLog::DrawLog(std::span<const DropoutKey> keys)
    : outer_(std::exchange(current_log, this)), gives_(true), given_(keys) {}
DrawLog::~DrawLog() { current_log = outer_; }

DropoutKey DrawLog::next(std::string_view what, const std::function<DropoutKey()>& draw) {
  DrawLog* giver = current_log;
  while (giver && !giver->gives_) giver = giver->outer_;
  DropoutKey key;
  if (giver) {
    check(giver->left() > 0,
          "{}: a function draws random numbers more than the {} times of its first call, expected it to do the same "
          "again",
          what, giver->given_.size());
    key = giver->given_[giver->taken_++];
  } else {
    key = draw();
  }
  for (DrawLog* log = current_log; log != giver; log = log->outer_) log->keys_.push_back(key);
  return key;
}

}  // namespace lockstep::ops
