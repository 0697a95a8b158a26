#include "lockstep/ops/random.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/draw_log.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/living_runtimes.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep::ops {

void uniform_(const Array& y, RandomKey key, double low, double high) {
  launch("uniform", {}, {y}, kernels::Uniform{key, low, high, y.view()});
}

void normal_(const Array& y, RandomKey key, double mean, double stddev) {
  launch("normal", {}, {y}, kernels::Normal{key, mean, stddev, y.view()});
}

namespace {

RandomKey draw_key(Device device, std::string_view what) {
  KeyedScope::check_draw(what);
  if (StepRecorder* const recorder = StepRecorder::current())
    recorder->refuse(fmt::format("{} draws random numbers", what));
  if (device.is_host()) return current_random(what).next(ShardScope::current());
  return state_of(device, what).random()->next(ShardScope::current());
}

DropoutKey draw_dropout_key(Device device) {
  StepRecorder* const recorder = StepRecorder::current();
  if (!recorder || device.is_host()) return {draw_key(device, "dropout")};
  DeviceState& state = state_of(device, "dropout");
  const RecordingPause pause;
  const Array place = empty({2}, DType::i64, device);
  const auto draw = [random = state.random(), place, shard = ShardScope::current()] {
    const RandomKey key = random->next(shard);
    const auto word = [](std::uint64_t w) { return static_cast<std::int64_t>(w); };
    const Array words = Array::from(std::vector{word(key.seed), word(key.stream)}, {2});
    copy_(pin(words, place.device()), place, {.non_blocking = true});
    return key;
  };
  const RandomKey first = draw();
  recorder->before_each(draw);
  return {first, place};
}

}  // namespace

RandomKey next_key(Device device, std::string_view what) {
  return DrawLog::next(what, [&] { return DropoutKey{draw_key(device, what)}; }).key;
}

DropoutKey next_dropout_key(Device device) {
  return DrawLog::next("dropout", [&] { return draw_dropout_key(device); });
}

Array dropout(const Array& x, double p, const DropoutKey& key) {
  check(p >= 0 && p < 1, "dropout: probability {}, expected at least 0 and below 1", p);
  Array y = empty_like(x);
  launch("dropout", {x, key.in_memory}, {y},
         kernels::Dropout{key.key, key.in_memory.view(), 1 - p, x.view(), y.view()});
  return y;
}

}  // namespace lockstep::ops
