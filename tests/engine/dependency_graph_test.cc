#include "lockstep/engine/dependency_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class TestWaiter final : public Waiter {
 private:
  void opened() noexcept override {}
};

// Tasks are named by one letter; ready() lists those that may run.
class DependencyGraphTest : public testing::Test {
 protected:
  LaneId lane() { return {graph_.add_lane()}; }
  Resource resource() { return graph_.make_resource(); }

  void push(std::string name, LaneId lane, Resources reads, Resources writes) {
    graph_.push({.name = std::move(name), .lane = lane, .reads = reads, .writes = writes, .run = [](auto&) {}});
  }
  std::vector<std::string> ready() {
    while (TaskNode* node = graph_.pop_ready()) ready_.push_back(node);
    std::vector<std::string> names;
    for (const TaskNode* node : ready_) names.push_back(node->task.name);
    return names;
  }
  TaskNode* take(const std::string& name) {
    ready();
    for (auto node = ready_.begin(); node != ready_.end(); ++node) {
      if ((*node)->task.name != name) continue;
      TaskNode* found = *node;
      ready_.erase(node);
      return found;
    }
    ADD_FAILURE() << name << " is not ready";
    return nullptr;
  }
  // Ends a ready task as the engine would: done, or skipped if it reads failed data, or failed if told so.
  Outcome end(const std::string& name, bool throws = false) {
    TaskNode* node = take(name);
    FailurePtr failure = graph_.reason_to_skip(*node);
    const Outcome outcome = failure ? Outcome::kSkipped : throws ? Outcome::kFailed : Outcome::kDone;
    if (outcome == Outcome::kFailed) {
      failure = std::make_shared<Failure>(Failure{.task = name, .message = name, .order = node->order});
      graph_.log(DependencyGraph::make_entry(failure));
    }
    NodeList finished = graph_.complete(node, outcome, failure);
    DependencyGraph::clear(finished);
    graph_.recycle(finished);
    return outcome;
  }
  std::string failed_by(const Resource& resource) {
    const FailurePtr failure = graph_.failure(resource);
    return failure ? failure->task : "";
  }

  DependencyGraph graph_;
  std::vector<TaskNode*> ready_;
};

TEST_F(DependencyGraphTest, ReadersRunTogether) {
  const LaneId a = lane(), b = lane(), c = lane();
  const Resource x = resource();
  push("w", a, {}, {x});
  push("r", b, {x}, {});
  push("s", c, {x}, {});
  EXPECT_THAT(ready(), ElementsAre("w"));
  end("w");
  EXPECT_THAT(ready(), ElementsAre("r", "s"));
}

TEST_F(DependencyGraphTest, AWriterWaitsForAllReadersAndHoldsBackThoseAfterIt) {
  const LaneId a = lane(), b = lane(), c = lane(), d = lane();
  const Resource x = resource();
  push("r", a, {x}, {});
  push("s", b, {x}, {});
  push("w", c, {}, {x});
  push("t", d, {x}, {});
  EXPECT_THAT(ready(), ElementsAre("r", "s"));
  end("s");
  EXPECT_THAT(ready(), ElementsAre("r"));
  end("r");
  EXPECT_THAT(ready(), ElementsAre("w"));
  end("w");
  EXPECT_THAT(ready(), ElementsAre("t"));
}

TEST_F(DependencyGraphTest, ALaneKeepsItsOrderEvenIfALaterTaskCouldRun) {
  const LaneId a = lane(), b = lane();
  const Resource x = resource(), y = resource();
  push("w", a, {}, {x});
  push("r", b, {x}, {});
  push("free", b, {}, {y});
  EXPECT_THAT(ready(), ElementsAre("w"));
  end("w");
  EXPECT_THAT(ready(), ElementsAre("r"));
  end("r");
  EXPECT_THAT(ready(), ElementsAre("free"));
}

TEST_F(DependencyGraphTest, NamingAResourceMoreThanOnceIsOneWriteIfAnyIs) {
  const LaneId a = lane(), b = lane();
  const Resource x = resource();
  push("w", a, {x, x}, {x, x});
  push("r", b, {x, x}, {});
  EXPECT_THAT(ready(), ElementsAre("w"));
  end("w");
  EXPECT_THAT(ready(), ElementsAre("r"));
  end("r");
  EXPECT_TRUE(graph_.unused(x));
}

TEST_F(DependencyGraphTest, AFailureReachesAllThatDependsOnIt) {
  const LaneId a = lane();
  const Resource x = resource(), y = resource(), z = resource();
  push("bad", a, {}, {x});
  push("y", a, {x}, {y});
  push("z", a, {y}, {z});
  EXPECT_EQ(end("bad", true), Outcome::kFailed);
  EXPECT_EQ(end("y"), Outcome::kSkipped);
  EXPECT_EQ(end("z"), Outcome::kSkipped);
  EXPECT_EQ(failed_by(z), "bad");
  EXPECT_EQ(graph_.counters().failed, 1);
  EXPECT_EQ(graph_.counters().skipped, 2);
}

TEST_F(DependencyGraphTest, OfSeveralFailuresTheFirstPushedIsTheReason) {
  const LaneId a = lane(), b = lane(), c = lane();
  const Resource x = resource(), y = resource(), z = resource();
  push("first", a, {}, {x});
  push("second", b, {}, {y});
  push("r", c, {y, x}, {z});
  end("second", true);
  end("first", true);
  end("r");
  EXPECT_EQ(failed_by(z), "first");
}

TEST_F(DependencyGraphTest, OverwritingClearsAFailureAndUpdatingInPlaceDoesNot) {
  const LaneId a = lane();
  const Resource x = resource();
  push("bad", a, {}, {x});
  push("update", a, {x}, {x});
  push("new", a, {}, {x});
  end("bad", true);
  EXPECT_EQ(end("update"), Outcome::kSkipped);
  EXPECT_EQ(failed_by(x), "bad");
  EXPECT_EQ(end("new"), Outcome::kDone);
  EXPECT_EQ(failed_by(x), "");
}

TEST_F(DependencyGraphTest, ASkippedWriteMayBeForgivenATornOneNot) {
  const LaneId a = lane();
  const Resource x = resource(), y = resource();
  push("bad", a, {}, {x});
  push("y", a, {x}, {y});
  end("bad", true);
  end("y");
  EXPECT_FALSE(graph_.forgive(x));
  EXPECT_EQ(failed_by(x), "bad");
  EXPECT_TRUE(graph_.forgive(y));
  EXPECT_EQ(failed_by(y), "");
}

TEST_F(DependencyGraphTest, ASkippedWriteLeavesTornDataTorn) {
  const LaneId a = lane();
  const Resource x = resource(), y = resource();
  push("tear", a, {}, {x});
  push("bad", a, {}, {y});
  push("skipped", a, {y}, {x});
  end("tear", true);
  end("bad", true);
  end("skipped");
  EXPECT_EQ(failed_by(x), "bad");
  EXPECT_FALSE(graph_.forgive(x));
}

TEST_F(DependencyGraphTest, ASuccessorWaitsForAllUsersOfTheOldResource) {
  const LaneId a = lane(), b = lane(), c = lane(), d = lane();
  const Resource x = resource();
  push("r", a, {x}, {});
  push("s", b, {x}, {});
  const Resource y = graph_.make_successor(x);
  push("t", c, {y}, {});
  push("u", d, {y}, {});
  EXPECT_THAT(ready(), ElementsAre("r", "s"));
  EXPECT_FALSE(graph_.unused(y));
  end("r");
  EXPECT_THAT(ready(), ElementsAre("s"));
  end("s");
  EXPECT_THAT(ready(), ElementsAre("t", "u"));
}

TEST_F(DependencyGraphTest, ASuccessorDoesNotInheritFailures) {
  const LaneId a = lane();
  const Resource x = resource();
  push("bad", a, {}, {x});
  const Resource y = graph_.make_successor(x);
  push("r", a, {y}, {});
  end("bad", true);
  EXPECT_EQ(failed_by(x), "bad");
  EXPECT_EQ(failed_by(y), "");
  EXPECT_EQ(end("r"), Outcome::kDone);
}

TEST_F(DependencyGraphTest, ATaskMayUseAResourceTogetherWithItsSuccessors) {
  const LaneId a = lane(), b = lane();
  const Resource x = resource(), y = graph_.make_successor(x);
  push("r", a, {y}, {});
  const Resource first = graph_.make_successor(y), second = graph_.make_successor(y), third = graph_.make_successor(y);
  push("w", b, {}, {first, second});
  push("v", b, {y}, {third});
  EXPECT_THAT(ready(), ElementsAre("r"));
  end("r");
  EXPECT_THAT(ready(), ElementsAre("w"));
  end("w");
  EXPECT_THAT(ready(), ElementsAre("v"));
  end("v");
  for (const Resource& r : {y, first, second, third}) EXPECT_TRUE(graph_.unused(r));
}

TEST_F(DependencyGraphTest, AFormerResourceKeepsItsFailure) {
  const LaneId a = lane(), b = lane();
  const Resource x = resource();
  push("bad", a, {}, {x});
  const Resource y = graph_.make_successor(x);
  push("good", b, {}, {y});
  end("bad", true);
  EXPECT_EQ(end("good"), Outcome::kDone);
  EXPECT_EQ(failed_by(x), "bad");
  EXPECT_EQ(failed_by(y), "");
}

TEST_F(DependencyGraphTest, TheFirstWriterOfMemoryWaitsForStreamsThatStillUseIt) {
  const LaneId a{graph_.add_lane(true)}, b{graph_.add_lane(true)};
  const Resource x = resource();
  const auto tickets = [](const std::vector<DeviceWait>& waits) {
    std::vector<Ticket> all;
    for (const DeviceWait& wait : waits) all.push_back(wait.ticket);
    return all;
  };
  push("r", a, {x}, {});
  const Resource y = graph_.make_successor(x);
  push("w", b, {}, {y});
  (void)graph_.complete(take("r"), Outcome::kDone, nullptr, 7);
  TaskNode* const w = take("w");
  EXPECT_THAT(tickets(w->device_waits), ElementsAre(Ticket{a.index, 7}));
  // It has queued nothing, so the next one has to wait, too.
  (void)graph_.complete(w, Outcome::kFailed, nullptr);
  EXPECT_THAT(tickets(graph_.device_waits(y)), ElementsAre(Ticket{a.index, 7}));
}

TEST_F(DependencyGraphTest, ALongChainOfUnusedSuccessorsPassesAtOnce) {
  const LaneId a = lane(), b = lane();
  const Resource first = resource();
  push("w", a, {}, {first});
  Resource last = first;
  for (int i = 0; i < 100'000; ++i) last = graph_.make_successor(last);
  push("x", b, {}, {last});
  EXPECT_THAT(ready(), ElementsAre("w"));
  end("w");
  EXPECT_THAT(ready(), ElementsAre("x"));
}

TEST_F(DependencyGraphTest, WaitReadableIgnoresReadersWaitUnusedDoesNot) {
  const LaneId a = lane(), b = lane();
  const Resource x = resource();
  push("w", a, {}, {x});
  push("r", b, {x}, {});
  TestWaiter readable, unused;
  graph_.wait_readable(x, readable);
  graph_.wait_unused(x, unused);
  EXPECT_FALSE(readable.open());
  end("w");
  EXPECT_TRUE(readable.open());
  EXPECT_FALSE(unused.open());
  end("r");
  EXPECT_TRUE(unused.open());
}

TEST_F(DependencyGraphTest, AWaitSeesTheFailureOfItsOwnPlaceInTheOrder) {
  const LaneId a = lane();
  const Resource x = resource();
  push("bad", a, {}, {x});
  TestWaiter before, after;
  graph_.wait_readable(x, before);
  push("good", a, {}, {x});
  graph_.wait_readable(x, after);
  end("bad", true);
  end("good");
  ASSERT_TRUE(before.open() && after.open());
  EXPECT_EQ(before.failure->task, "bad");
  EXPECT_EQ(after.failure, nullptr);
}

TEST_F(DependencyGraphTest, WaitAllWaitsForWhatWasPushedBeforeItAndDelaysNoOne) {
  const LaneId a = lane(), b = lane();
  push("w", a, {}, {});
  TestWaiter waiter;
  graph_.wait_all(waiter);
  push("x", a, {}, {});
  push("y", b, {}, {});
  EXPECT_THAT(ready(), ElementsAre("w", "y"));
  end("w");
  EXPECT_TRUE(waiter.open());
  EXPECT_THAT(ready(), ElementsAre("y", "x"));
}

TEST_F(DependencyGraphTest, RefusesWhatItCannotRun) {
  const LaneId a = lane();
  DependencyGraph other;
  const auto run = [](const TaskContext&) {};
  const auto message = [&](Task task) {
    try {
      graph_.push(std::move(task));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({.name = "t", .lane = {1}, .run = run}), "push: task t names lane 1, the engine has 1");
  EXPECT_EQ(message({.name = "t", .lane = a}), "push: task t has no function");
  EXPECT_EQ(message({.name = "t", .lane = a, .reads = {Resource()}, .run = run}),
            "push: task t reads an empty resource");
  EXPECT_EQ(message({.name = "t", .lane = a, .writes = {other.make_resource()}, .run = run}),
            "push: task t writes a resource of another engine");
  EXPECT_EQ(graph_.counters().pushed, 0);
  EXPECT_THAT(ready(), IsEmpty());
}

TEST_F(DependencyGraphTest, NamesTheBlockersOfATask) {
  const LaneId a = lane(), b = lane(), c = lane();
  const Resource x = resource(), y = resource();
  push("r", a, {x}, {});
  push("s", b, {x, y}, {});
  push("w", c, {y}, {x});
  push("later", c, {}, {});
  const auto tasks = graph_.lane_tasks(c.index);
  ASSERT_EQ(tasks.size(), 2u);
  const auto blockers = graph_.blockers(*tasks[0]);
  ASSERT_EQ(blockers.size(), 2u);
  EXPECT_EQ(blockers[0]->task.name, "r");
  EXPECT_EQ(blockers[1]->task.name, "s");
}

// Chains stay in a lane, what is independent goes where the fewest tasks are unfinished.
TEST_F(DependencyGraphTest, ChoosesTheLaneOnWhichATaskWaitsLeast) {
  const std::vector<LaneId> lanes{lane(), lane(), lane()};
  const Resource x = resource(), y = resource(), z = resource();
  const auto chosen = [&](Resources reads, Resources writes) {
    return graph_.choose_lane(lanes, {.reads = reads, .writes = writes}).index;
  };
  EXPECT_EQ(chosen({}, {x}), 0);
  push("a", lanes[0], {z}, {x});
  EXPECT_EQ(chosen({}, {y}), 1);   // lane 0 has a task
  EXPECT_EQ(chosen({z}, {y}), 1);  // readers do not wait for each other
  EXPECT_EQ(chosen({x}, {y}), 0);  // behind its source
  EXPECT_EQ(chosen({}, {x}), 0);   // behind the one that it overwrites
  EXPECT_EQ(chosen({}, {z}), 0);   // behind the reader of what it overwrites
  push("b", lanes[0], {x}, {y});
  EXPECT_EQ(chosen({x}, {z}), 1);  // the lane's last task is another one
  push("c", lanes[1], {}, {z});
  EXPECT_EQ(chosen({y, z}, {x}), 1);  // of two it depends on, the shorter lane
  EXPECT_EQ(chosen({}, {resource()}), 2);
  end("a");
  end("b");
  EXPECT_EQ(chosen({x}, {y}), 0);  // empty again
  EXPECT_THROW(graph_.choose_lane({}, {}), Error);
  EXPECT_THROW(graph_.choose_lane(std::vector<LaneId>{{7}}, {}), Error);
}

}  // namespace
}  // namespace lockstep
