#include "lockstep/runtime/random_state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/engine/engine.h"

namespace lockstep {
namespace {

TEST(RandomState, KeysAreOfSeedStepShardAndDraw) {
  RandomState state;
  std::vector<RandomKey> keys;
  for (std::uint64_t seed : {0, 1}) {
    for (std::uint64_t step : {0, 1}) {
      state.set_seed(seed);
      state.set_step(step);
      for (int shard : {0, 1, 5}) {
        for (int draw = 0; draw < 3; ++draw) keys.push_back(state.next(shard));
      }
    }
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(std::count(keys.begin(), keys.end(), keys[i]), 1) << i;
  }
}

TEST(RandomState, ShardsDrawApart) {
  RandomState one, other;
  one.set_step(3);
  other.set_step(3);
  std::vector<RandomKey> a{one.next(0), one.next(0), one.next(1)};
  // In another order: shards may be described in any.
  std::vector<RandomKey> b(3);
  b[2] = other.next(1);
  b[0] = other.next(0);
  b[1] = other.next(0);
  EXPECT_EQ(a, b);
}

TEST(RandomState, AStepMayBeRepeated) {
  RandomState state;
  state.set_step(7);
  RandomKey first = state.next(2);
  state.next(2);
  state.set_step(7);
  EXPECT_EQ(state.next(2), first);
}

TEST(RandomState, StepsAreAddedAndTakenBack) {
  RandomState a, b;
  a.add_steps(5);
  a.next(0);
  a.add_steps(-2);
  b.set_step(3);
  EXPECT_EQ(a.step(), 3U);
  EXPECT_EQ(a.next(0), b.next(0));
  a.add_steps(-7);
  EXPECT_EQ(a.step(), 0U);
}

// A value that all shards share must not depend on which of them this process has.
TEST(RandomState, DrawsForAllShardsHaveACounterOfTheirOwn) {
  RandomState a, b;
  a.next(0);
  a.next(3);
  const RandomKey key = a.next(-1);
  EXPECT_EQ(key, b.next(-1));
  for (int shard : {0, 1}) EXPECT_NE(key, RandomState().next(shard));
}

// As after an evaluation during which the error of the latest training batch came out.
TEST(RandomState, AStepThatIsLeftOutDoesNotComeBackWithAPosition) {
  const auto engine = std::make_shared<Engine>(EngineOptions{.serial = true});
  const LaneId lane = engine->add_lane({.name = "a"});
  const Resource batch = engine->make_resource(), weight = engine->make_resource(), done = engine->make_resource();
  RandomState a, b;
  for (RandomState* state : {&a, &b}) {
    state->set_step(3);
    state->next(0);
  }
  const RandomState::Position unchanged = a.position();
  a.set_position(unchanged);
  EXPECT_EQ(a.next(0), b.next(0));

  engine->push({.name = "initialize", .lane = lane, .writes = {weight}, .run = [](const TaskContext&) {}});
  engine->push(
      {.name = "batch", .lane = lane, .writes = {batch}, .run = [](const TaskContext&) { throw Error("a label"); }});
  engine->push({.name = "update",
                .lane = lane,
                .reads = {weight, batch},
                .writes = {weight, done},
                .updates = true,
                .run = [](const TaskContext&) {}});
  a.add_steps(1);
  a.count_if_done(engine, done);
  a.next(0);
  const RandomState::Position position = a.position();
  EXPECT_EQ(position.step, 4U);
  EXPECT_THROW(engine->wait_readable(batch), TaskError);
  a.next(0);
  a.set_position(position);
  EXPECT_EQ(a.step(), 3U);
  b.set_step(3);
  EXPECT_EQ(a.next(0), b.next(0));
}

}  // namespace
}  // namespace lockstep
