// The errors of the other ranks when one rank calls a different operation, is late, aborts, or leaves. Ranks are
// threads here; process_failure_test.cc kills and stops processes.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "groups.h"
#include "lockstep/comm/transport_group.h"
#include "lockstep/net/comm_error.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using testing::buffer;
using ::testing::Each;
using testing::errors_on_all_ranks;
using ::testing::HasSubstr;
using testing::make_groups;

// Nobody waits for so long: the test's own limit would end it.
constexpr milliseconds kLong = std::chrono::hours(1);
constexpr milliseconds kShort{2000};
// For tests in which one rank must be late and no other, however busy the machine.
constexpr milliseconds kTimeout{3000};

class Failures : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<std::shared_ptr<ProcessGroup>> groups(int ranks, milliseconds progress_timeout = kLong) {
    return make_groups(GetParam(), ranks, progress_timeout);
  }
};

void all_reduce(ProcessGroup& group, std::size_t count, const std::string& label, CollectiveOptions options = {}) {
  std::vector<float> data(count);
  options.label = label;
  group.all_reduce(buffer(data), ReduceOp::sum, options).wait();
}

TEST_P(Failures, RanksThatCallDifferentOperationsAreBothNamed) {
  auto all = groups(3);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    std::vector<float> four(4);
    if (group.rank() == 1)
      group.broadcast(buffer(four), 0, {.label = "bucket 2"}).wait();
    else
      all_reduce(group, 8, "bucket 3");
  });
  EXPECT_THAT(errors, Each(HasSubstr("ranks disagree: rank 0 called all-reduce (sum) of 8 f32 \"bucket 3\", rank 1 "
                                     "broadcast of 4 f32 from rank 0 \"bucket 2\"")));
}

// No rank waits for a lost rank again in another group of the same ranks.
TEST_P(Failures, ARankThatOneGroupHasLostIsLostToAll) {
  auto all = groups(3, kTimeout);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    const auto same = group.subgroup({0, 1, 2}), other = group.subgroup({0, 1, 2});
    const auto pair = group.subgroup({0, 2});
    if (group.rank() == 1) {
      std::this_thread::sleep_for(2 * kTimeout);
      fail("rank 1 is through");
    }
    std::string lost;
    try {
      all_reduce(*same, 8, "first");
    } catch (const CommError& error) {
      lost = error.what();
    }
    const CollectiveOptions long_timeout{.timeout = kLong};
    EXPECT_ERROR(all_reduce(*other, 8, "second", long_timeout), "rank 1 hangs (alive, but did not join within 3 s)");
    EXPECT_ERROR(all_reduce(group, 8, "third", long_timeout), "rank 1 hangs (alive, but did not join within 3 s)");
    all_reduce(*pair, 8, "those who are there");
    fail("{}", lost);
  });
  EXPECT_THAT(errors,
              ::testing::ElementsAre(HasSubstr("rank 1 hangs (alive, but did not join within 3 s) during all-reduce"),
                                     "rank 1 is through",
                                     HasSubstr("rank 1 hangs (alive, but did not join within 3 s) during all-reduce")));
}

void close(ProcessGroup& group) {
  for (Work& work : begin_closing(group)) work.wait();
}

TEST_P(Failures, ARankThatClosesBesideOneThatReceivesIsADisagreement) {
  auto all = groups(3);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    std::vector<float> one(1);
    if (group.rank() == 0) group.receive(buffer(one), 1, 4).wait();
    close(group);
  });
  EXPECT_THAT(errors, Each(HasSubstr("ranks disagree: rank 0 receives from rank 1, which is closing the group")));
}

// Also those that wait for room when the sender begins to close.
TEST_P(Failures, WhatWasSentBeforeARankClosesIsReceived) {
  auto all = groups(2);
  std::vector<std::vector<double>> messages(5, std::vector<double>(3'000'000));
  const auto errors = errors_on_all_ranks(all, [&](ProcessGroup& group) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const double number = static_cast<double>(i);
      if (group.rank() == 1) {
        messages[i][0] = number;
        group.send(buffer(messages[i]), 0, 7);
      } else {
        std::this_thread::sleep_for(milliseconds(20));
        std::vector<double> received(messages[i].size());
        group.receive(buffer(received), 1, 7).wait();
        EXPECT_EQ(received[0], number);
      }
    }
    close(group);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(Failures, EveryArgumentThatRanksMustAgreeOnIsCompared) {
  std::vector<float> f(12);
  std::vector<std::int64_t> i(12);
  using Call = std::function<Work(ProcessGroup&)>;
  const auto large = std::make_shared<std::vector<float>>(100'000);
  const Call usual = [&](ProcessGroup& g) { return g.all_reduce({f.data(), 2, DType::f32}, ReduceOp::sum); };
  const std::pair<Call, const char*> others[] = {
      {[&](ProcessGroup& g) {
         return g.all_reduce({f.data() + 2, 3, DType::f32}, ReduceOp::sum);
       },
       "of 3 f32"},
      {[&](ProcessGroup& g) { return g.all_reduce(buffer(*large), ReduceOp::sum); }, "of 100000 f32"},
      {[&](ProcessGroup& g) {
         return g.all_reduce({i.data(), 2, DType::i64}, ReduceOp::sum);
       },
       "of 2 i64"},
      {[&](ProcessGroup& g) {
         return g.all_reduce({f.data() + 2, 2, DType::f32}, ReduceOp::max);
       },
       "(max)"},
      {[&](ProcessGroup& g) {
         return g.all_reduce({f.data() + 2, 2, DType::f32}, ReduceOp::sum, {.label = "x"});
       },
       "\"x\""},
      {[&](ProcessGroup& g) { return g.barrier(); }, "rank 1 barrier"},
  };
  for (const auto& [other, part] : others) {
    auto all = groups(2);
    const auto errors = errors_on_all_ranks(all, [&](ProcessGroup& g) { (g.rank() == 0 ? usual : other)(g).wait(); });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("ranks disagree"), HasSubstr(part))));
  }
}

TEST_P(Failures, ReducersOfDifferentLayoutsAreFound) {
  auto all = groups(2);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    const std::size_t first = group.rank() == 0 ? 3 : 4;
    group.make_tree_reducer({{first, 7 - first}, {{0}, {1}}}, CommChannel::bulk);
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("ranks disagree: rank 0 called creation of a tree reducer of 7 f32, rank 1 the same "
                             "with other arguments")));
}

TEST_P(Failures, SubgroupsOfOtherRanksAreFound) {
  auto all = groups(3);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    group.subgroup({group.rank() == 2 ? 1 : 0, 2});
  });
  EXPECT_THAT(errors, Each(HasSubstr("ranks disagree: rank 0 called creation of a subgroup of 2 ranks, rank 2 the same "
                                     "with other arguments")));
}

TEST(LocalGroups, ThatDoNotMeetInTimeSaySo) {
  EXPECT_ERROR(make_local_groups(50, milliseconds(0)), "hangs (alive, but did not join within 0 s)");
}

TEST(LocalGroups, WithoutMemoryAreToldSoOnAllRanks) {
  auto all = make_local_groups(2);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    group.make_tree_reducer({{std::size_t{1} << 50}, {{0}, {1}}}, CommChannel::bulk);
  });
  EXPECT_THAT(errors, Each(HasSubstr("cannot allocate")));
}

TEST_P(Failures, ALateRankIsNamedByAllWhenTheTimeIsOver) {
  auto all = groups(3, kTimeout);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    if (group.rank() == 2) std::this_thread::sleep_for(2 * kTimeout);
    all_reduce(group, 100'000, "bucket 3, step 17");
  });
  EXPECT_EQ(errors[0], "rank 2 hangs (alive, but did not join within 3 s) during all-reduce of bucket 3, step 17");
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], errors[0]);  // it learns the others' verdict
}

// As in a callback or while writing a checkpoint.
TEST_P(Failures, ARankThatIsBusyForLongerThanTheTimeoutIsWaitedFor) {
  static constexpr milliseconds kTimeout{3000};
  auto all = make_groups(GetParam(), 3, kLong, kTimeout);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    if (group.rank() == 0) std::this_thread::sleep_for(3 * kTimeout);
    all_reduce(group, 100'000, "bucket 3, step 17");
    std::vector<float> four(4);
    if (group.rank() == 0) {
      std::this_thread::sleep_for(2 * kTimeout);
      group.send(buffer(four), 2, 7).wait();
    } else if (group.rank() == 2) {
      group.receive(buffer(four), 0, 7).wait();
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(Failures, AnOperationMayHaveATimeoutOfItsOwn) {
  auto all = groups(2);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(kTimeout);
    group.barrier({.label = "start", .timeout = milliseconds(100)}).wait();
  });
  EXPECT_EQ(errors[0], "rank 1 hangs (alive, but did not join within 100 ms) during barrier of start");
}

TEST_P(Failures, TheRankThatIsMissingIsNamedAndNotOneThatWaitsForIt) {
  // Rank 1 is missing in the bulk channel only because it waits for rank 2 in the urgent channel.
  auto all = groups(3, kTimeout);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    if (group.rank() == 2) std::this_thread::sleep_for(2 * kTimeout);
    if (group.rank() == 1)
      all_reduce(group, 1, "flags", {.channel = CommChannel::urgent});
    else
      all_reduce(group, 1, "bucket 0");
  });
  // TCP cannot tell them apart, and a rank may be told that it is missing itself.
  const std::string who = GetParam() == std::string("tcp") ? "" : "rank 2 ";
  for (const int rank : {0, 1}) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr(who + "hangs (alive, but did not join within 3 s)"));
  }
}

TEST_P(Failures, ARankThatGivesUpSaysWhy) {
  auto all = groups(3);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      group.abort("data/train: file not found");
    }
    all_reduce(group, 10, "bucket 0");
  });
  EXPECT_THAT(errors, Each("rank 1 gave up: data/train: file not found; during all-reduce of bucket 0"));
}

TEST_P(Failures, AGroupThatIsLeftIsMissedAtOnce) {
  auto all = groups(3);
  std::thread leaving([&] {
    std::this_thread::sleep_for(milliseconds(50));
    all[1].reset();
  });
  std::vector<std::shared_ptr<ProcessGroup>> staying{all[0], all[2]};
  const auto errors = errors_on_all_ranks(staying, [](ProcessGroup& group) { all_reduce(group, 10, "bucket 0"); });
  leaving.join();
  EXPECT_THAT(errors, Each("rank 1 lost (it closed its group) during all-reduce of bucket 0"));
}

TEST_P(Failures, AGroupMayBeDroppedWhileOperationsAreUnderWay) {
  auto all = groups(2);
  std::vector<float> data(10), other(10);
  const Work work = all[0]->all_reduce(buffer(data), ReduceOp::sum, {.label = "bucket 0"});
  std::thread dropping([&] {
    std::this_thread::sleep_for(milliseconds(50));
    all[0].reset();
  });
  EXPECT_ERROR(work.wait(), "rank 0 gave up: it closed its group while operations were under way");
  dropping.join();
  EXPECT_ERROR(all[1]->all_reduce(buffer(other), ReduceOp::sum).wait(), "rank 0 ");
}

TEST_P(Failures, EveryLaterOperationFailsWithTheFirstError) {
  auto all = groups(2);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    if (group.rank() == 0) group.abort("out of memory");
    std::vector<float> data(3), more(3);
    const Work first = group.all_reduce(buffer(data), ReduceOp::sum, {.label = "bucket 0"});
    EXPECT_ERROR(first.wait(), "rank 0 gave up: out of memory; during all-reduce of bucket 0");
    EXPECT_ERROR(first.wait(), "rank 0 gave up");  // again
    EXPECT_TRUE(first.done());
    try {
      group.all_reduce(buffer(more), ReduceOp::sum, {.label = "bucket 1"}).wait();
    } catch (const CommError& error) {
      EXPECT_EQ(error.lost_rank(), 0);
      throw;
    }
  });
  EXPECT_THAT(errors, Each("rank 0 gave up: out of memory; during all-reduce of bucket 0"));
}

TEST_P(Failures, AReducerFailsWithItsGroup) {
  auto all = groups(2);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    auto reducer = group.make_tree_reducer({{5}, {{0}, {1}}}, CommChannel::bulk);
    std::vector<float> ready(1);
    if (group.rank() == 0) {
      group.receive(buffer(ready), 1, 0).wait();
      group.abort("loss is NaN");
    } else {
      group.send(buffer(ready), 0, 0).wait();
      reducer->reduce({.label = "bucket 3, step 17"});
    }
  });
  EXPECT_EQ(errors[1], "rank 0 gave up: loss is NaN; during all-reduce of bucket 3, step 17");
}

TEST_P(Failures, MessagesThatDoNotComeOrDoNotFit) {
  auto all = groups(2);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    std::vector<float> four(4), eight(8);
    if (group.rank() == 0)
      group.send(buffer(four), 1, 7, {.label = "activations"}).wait();
    else
      group.receive(buffer(eight), 0, 7).wait();
  });
  EXPECT_THAT(errors[1], HasSubstr("rank 0 called send of 4 f32 \"activations\", rank 1 receive of 8 f32"));

  auto late = groups(2, kShort);
  const auto late_errors = errors_on_all_ranks(late, [](ProcessGroup& group) {
    std::vector<float> four(4);
    if (group.rank() == 1) group.receive(buffer(four), 0, 7).wait();
  });
  EXPECT_EQ(late_errors[1], "rank 0 hangs (alive, but did not join within 2 s) during receive from rank 0 of 4 f32");
}

TEST_P(Failures, WrongArgumentsHarmNobody) {
  auto all = groups(2);
  const auto errors = errors_on_all_ranks(all, [](ProcessGroup& group) {
    std::vector<float> three(3);
    std::vector<double> doubles(6);
    EXPECT_ERROR(group.broadcast(buffer(three), 2), "broadcast: root 2, expected a rank from 0 to 1");
    EXPECT_ERROR(group.all_gather(buffer(three), buffer(three)),
                 "all-gather: out has 3 elements, expected 6 (3 for each of 2 ranks)");
    EXPECT_ERROR(group.all_gather(buffer(three), buffer(doubles)), "all-gather: in is f32, out is f64");
    EXPECT_ERROR(group.send(buffer(three), group.rank(), 0), "send: rank");
    EXPECT_ERROR(group.send(buffer(three), 1 - group.rank(), -1), "send: tag -1");
    EXPECT_ERROR(group.subgroup({1, 0}), "subgroup: expected at least one rank, ascending, from 0 to 1");
    EXPECT_ERROR(group.make_tree_reducer({{3}, {{0}, {0}}}, CommChannel::bulk), "position 0 belongs to two ranks");
    EXPECT_ERROR(group.make_tree_reducer({{3}, {{0}}}, CommChannel::bulk), "positions of 1 ranks, expected those of 2");
    all_reduce(group, 3, "still works");
  });
  EXPECT_THAT(errors, Each(""));
}

INSTANTIATE_TEST_SUITE_P(All, Failures, ::testing::Values("local", "shared_memory", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// A failing operation tells the groups of the same ranks; one of them may be destroyed at that moment.
TEST(Failures, AGroupMayBeDroppedWhileItIsTold) {
  for (int i = 0; i < 500; ++i) {
    auto all = make_local_groups(2, kLong);
    std::shared_ptr<ProcessGroup> part[2];
    std::thread other([&] { part[1] = all[1]->subgroup({0, 1}); });
    part[0] = all[0]->subgroup({0, 1});
    other.join();
    std::vector<float> x(10), y(10);
    const Work a = all[0]->all_reduce(buffer(x), ReduceOp::sum), b = part[0]->all_reduce(buffer(y), ReduceOp::sum);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::thread aborter([&] { all[1]->abort("out of luck"); });
    std::thread dropper([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(i % 50));
      part[0].reset();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(i % 37));
    all[0].reset();
    aborter.join();
    dropper.join();
  }
}

}  // namespace
}  // namespace lockstep
