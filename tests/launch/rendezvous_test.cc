#include "lockstep/launch/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "launch_variables.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/expect_error.h"
#include "tests/free_port.h"
#include "tests/net/raw_client.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kMeetingTime = 20s;

// Ranks are threads of this process, each with its own options.
class RendezvousTest : public LaunchVariables {
 protected:
  RendezvousTest() {
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(free_port()).c_str());
  }

  // A group, or the error that a rank got instead.
  struct Outcome {
    Rendezvous group;
    std::string error;
    int lost_rank = -1;
  };
  static Outcome join(const RendezvousOptions& options) {
    try {
      return {resolve_rendezvous(options), ""};
    } catch (const CommError& error) {
      return {{}, error.what(), error.lost_rank()};
    } catch (const std::exception& error) {
      return {{}, error.what()};
    }
  }
  static std::vector<Outcome> join_all(const std::vector<RendezvousOptions>& all) {
    std::vector<std::future<Outcome>> futures;
    for (const RendezvousOptions& options : all) {
      futures.push_back(std::async(std::launch::async, [options] { return join(options); }));
    }
    std::vector<Outcome> outcomes;
    for (auto& future : futures) outcomes.push_back(future.get());
    return outcomes;
  }
  static std::vector<Outcome> join_world(int world_size, const std::shared_ptr<Store>& store = {}) {
    std::vector<RendezvousOptions> all;
    for (int rank = 0; rank < world_size; ++rank) {
      all.push_back({.rank = rank, .world_size = world_size, .store = store, .timeout = kMeetingTime});
    }
    return join_all(all);
  }
  static void expect_one_group(const std::vector<Outcome>& ranks) {
    for (const Outcome& rank : ranks) {
      ASSERT_EQ(rank.error, "");
      EXPECT_EQ(rank.group.key.size(), 32u);
      EXPECT_EQ(rank.group.key, ranks[0].group.key);
      EXPECT_EQ(rank.group.timeouts.silence, kMeetingTime);
      EXPECT_EQ(rank.group.timeouts.progress, 30 * kMeetingTime);
      rank.group.store->add("here", 1);
    }
    EXPECT_EQ(ranks[0].group.store->get("here", 0ms), std::to_string(ranks.size()));
  }
};

TEST_F(RendezvousTest, RankZeroMakesTheStoreAndAllMeet) {
  for (const int world_size : {1, 2, 5}) {
    const auto ranks = join_world(world_size);
    expect_one_group(ranks);
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].group.rank, rank);
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].group.world_size, world_size);
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].group.address, "127.0.0.1");
    }
  }
}

TEST_F(RendezvousTest, TheLaunchersStoreIsUsed) {
  const TcpStoreServer server;
  set("MASTER_PORT", std::to_string(server.port()).c_str());
  set("LOCKSTEP_LAUNCHER_STORE", "1");
  expect_one_group(join_world(3));
}

TEST_F(RendezvousTest, AStoreOfTheCallersIsUsed) {
  const TcpStoreServer server;
  const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port()});
  expect_one_group(join_world(3, store));
}

TEST_F(RendezvousTest, GroupsOfOneStoreAreApart) {
  const TcpStoreServer server;
  const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port()});
  const auto first = join_world(2, store), second = join_world(2, store);
  expect_one_group(first);
  expect_one_group(second);
  EXPECT_NE(first[0].group.key, second[0].group.key);
  // After a restart of all ranks, nothing from the earlier start is in their way.
  set("LOCKSTEP_RESTART_COUNT", "1");
  expect_one_group(join_world(2, store));
  set("LOCKSTEP_RESTART_COUNT", "2");
  expect_one_group(join_world(3, store));
}

TEST_F(RendezvousTest, VersionsThatDifferAreNamed) {
  const auto ranks = join_all({{.rank = 0, .world_size = 2, .timeout = kMeetingTime, .build = "1.2.3/4"},
                               {.rank = 1, .world_size = 2, .timeout = kMeetingTime, .build = "1.2.3/5"}});
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(
        rank.error,
        "rendezvous: rank 1 has Lockstep 1.2.3 (kernel revision 5), rank 0 has Lockstep 1.2.3 (kernel revision 4): "
        "their bits may differ, expected one version");
  }
}

TEST_F(RendezvousTest, ARestartNeedsTheVersionOfTheStart) {
  const TcpStoreServer server;
  set("MASTER_PORT", std::to_string(server.port()).c_str());
  set("LOCKSTEP_LAUNCHER_STORE", "1");
  const auto join_both = [](const std::string& build) {
    return join_all({{.rank = 0, .world_size = 2, .timeout = kMeetingTime, .build = build},
                     {.rank = 1, .world_size = 2, .timeout = kMeetingTime, .build = build}});
  };
  expect_one_group(join_both("1.2.3/4"));
  set("LOCKSTEP_RESTART_COUNT", "1");
  expect_one_group(join_both("1.2.3/4"));
  set("LOCKSTEP_RESTART_COUNT", "2");
  EXPECT_EQ(
      join_both("1.3.0/4")[1].error,
      "rendezvous: rank 1 has Lockstep 1.3.0 (kernel revision 4), the job began with Lockstep 1.2.3 (kernel revision "
      "4): their bits may differ");
}

TEST_F(RendezvousTest, TooManyRanksAreRefused) {
  EXPECT_EQ(join({.rank = 0, .world_size = 201}).error, "init_process_group: 201 ranks, expected at most 200");
}

TEST_F(RendezvousTest, OneGroupAfterTheOther) {
  for (int i = 0; i < 5; ++i) expect_one_group(join_world(2));
}

// The next port serves if torchrun says that its agent holds this one. The agent has another protocol and only answers.
TEST_F(RendezvousTest, APortThatIsTakenIsAnErrorUnlessTorchrunHasIt) {
  const auto bound = [](const FileDescriptor& to, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return ::bind(to.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  };
  const auto socket = [] { return FileDescriptor(::socket(AF_INET, SOCK_STREAM, 0)); };
  const FileDescriptor agent = socket();
  int port = free_port();
  // Under torchrun, the next port serves.
  while (!bound(socket(), port + 1)) port = free_port();
  ASSERT_TRUE(bound(agent, port));
  ASSERT_EQ(::listen(agent.get(), 100), 0);
  const std::string taken = std::to_string(port);
  set("MASTER_PORT", taken.c_str());
  const auto error = [&](const std::string& variable) {
    return fmt::format("rendezvous: port {}: address already in use, expected a free port; set {} to one", taken,
                       variable);
  };
  // Rank 0 knows it before any other rank comes.
  EXPECT_EQ(join({.rank = 0, .world_size = 2, .timeout = kMeetingTime}).error, error("MASTER_PORT"));
  expect_one_group(join_world(1));
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  expect_one_group(join_world(3));
  set("LOCKSTEP_PORT", taken.c_str());
  EXPECT_EQ(join({.rank = 0, .world_size = 2, .timeout = kMeetingTime}).error, error("LOCKSTEP_PORT"));
  set("LOCKSTEP_PORT", std::to_string(free_port()).c_str());
  expect_one_group(join_world(3));
}

TEST_F(RendezvousTest, WithASecret) {
  set("LOCKSTEP_SECRET", "the secret of this job");
  expect_one_group(join_world(2));
  const TcpStoreServer server({.secret = "the secret of that job"});
  set("MASTER_PORT", std::to_string(server.port()).c_str());
  set("LOCKSTEP_LAUNCHER_STORE", "1");
  EXPECT_THAT(join({.rank = 0, .world_size = 2}).error, HasSubstr("does not accept this process's secret"));
}

TEST_F(RendezvousTest, OtherHostsNeedASecret) {
  set("MASTER_ADDR", "192.0.2.1");
  for (const int rank : {0, 1}) {
    EXPECT_THAT(join({.rank = rank, .world_size = 2}).error, HasSubstr("set LOCKSTEP_SECRET"));
  }
}

TEST_F(RendezvousTest, WhoDidNotComeIsNamed) {
  const auto ranks =
      join_all({{.rank = 0, .world_size = 4, .timeout = 3s}, {.rank = 2, .world_size = 4, .timeout = 3s}});
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.error, "rendezvous: ranks 1, 3 of 4 did not join within 3 s");
    EXPECT_EQ(rank.lost_rank, 1);
  }
}

TEST_F(RendezvousTest, RankZeroThatDidNotComeIsNamed) {
  Outcome one = join({.rank = 1, .world_size = 2, .timeout = 200ms});
  EXPECT_THAT(one.error, HasSubstr("rank 0 of 2 did not join within 0.2 s, or is unreachable: store: cannot reach"));
  EXPECT_EQ(one.lost_rank, 0);
  const TcpStoreServer server({.port = std::stoi(std::getenv("MASTER_PORT"))});
  set("LOCKSTEP_LAUNCHER_STORE", "1");
  one = join({.rank = 1, .world_size = 2, .timeout = 4s});  // enough to reach the store on a busy machine
  EXPECT_EQ(one.error, "rendezvous: rank 0 of 2 did not join within 4 s");
  EXPECT_EQ(one.lost_rank, 0);
}

// As in a stopped process that hosts the store, for which nobody waits forever.
TEST_F(RendezvousTest, RankZeroThatStandsStillIsNamed) {
  const pid_t child = ::fork();
  if (child == 0) {
    join({.rank = 0, .world_size = 3, .timeout = kMeetingTime});
    ::_exit(0);
  }
  auto one = std::async(std::launch::async, [] { return join({.rank = 1, .world_size = 3, .timeout = 5s}); });
  {
    TcpStore store({.port = std::stoi(std::getenv("MASTER_PORT"))});
    store.get("rendezvous/0/1/rank/1", kMeetingTime);
  }
  ::kill(child, SIGSTOP);
  const Outcome outcome = one.get();
  EXPECT_THAT(outcome.error, HasSubstr("rank 0 of 3 did not join within 5 s, or is unreachable"));
  EXPECT_EQ(outcome.lost_rank, 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(RendezvousTest, WhoLosesTheStoreOfRankZeroHasLostRankZero) {
  auto ranks = join_world(2);
  expect_one_group(ranks);
  ranks[0].group.store.reset();  // which also ends the server
  Rendezvous& one = ranks[1].group;
  try {
    one.store->set("key", "value");
    FAIL() << "expected an error";
  } catch (const CommError& error) {
    EXPECT_EQ(error.lost_rank(), 0);
    EXPECT_THAT(error.what(), ::testing::StartsWith("rank 0 lost (its store is unreachable: "));
  }
}

TEST_F(RendezvousTest, AnotherWorldSizeIsTold) {
  const auto ranks = join_all(
      {{.rank = 0, .world_size = 2, .timeout = kMeetingTime}, {.rank = 1, .world_size = 3, .timeout = kMeetingTime}});
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.error, "rendezvous: rank 1 says that the world size is 3, rank 0 says 2");
  }
  const TcpStoreServer server;
  const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port()});
  const auto others = join_all({{.rank = 0, .world_size = 2, .store = store, .timeout = kMeetingTime},
                                {.rank = 1, .world_size = 2, .store = store, .timeout = kMeetingTime},
                                {.rank = 2, .world_size = 3, .store = store, .timeout = kMeetingTime}});
  EXPECT_EQ(others[0].error, "");
  EXPECT_EQ(others[2].error, "rendezvous: rank 2 says that the world size is 3, rank 0 says 2");
}

TEST_F(RendezvousTest, ARankThatIsTakenIsTold) {
  set("LOCKSTEP_LAUNCHER_STORE", "1");
  // Another process, made before this one has threads: fork() in a process with threads may leave a lock held forever.
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    int port = 0;
    if (::read(pipe[0], &port, sizeof port) != sizeof port) ::_exit(2);
    set("MASTER_PORT", std::to_string(port).c_str());
    const Outcome second = join({.rank = 1, .world_size = 2, .timeout = kMeetingTime});
    ::_exit(second.error.find("rank 1 joined twice: first as process") != std::string::npos ? 0 : 1);
  }
  const FileDescriptor read_end(pipe[0]), write_end(pipe[1]);
  const TcpStoreServer server;
  const int port = server.port();
  set("MASTER_PORT", std::to_string(port).c_str());
  auto first =
      std::async(std::launch::async, [] { return join({.rank = 1, .world_size = 2, .timeout = kMeetingTime}); });
  TcpStore store({.port = port});
  store.get("rendezvous/0/process of rank/1", kMeetingTime);
  EXPECT_EQ(::write(write_end.get(), &port, sizeof port), static_cast<ssize_t>(sizeof port));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(first.get().error, HasSubstr("rank 1 joined twice")) << "the first rank is told as well";
}

TEST_F(RendezvousTest, WithoutARankThereIsNone) {
  set("MASTER_ADDR", nullptr);
  set("MASTER_PORT", nullptr);
  EXPECT_ERROR(resolve_rendezvous({}), "neither .rank and .world_size nor the variables RANK and WORLD_SIZE are set");
}

// Strangers connect to the port while ranks meet. They cost the job nothing but time.
TEST_F(RendezvousTest, IntrudersDoNotKeepItFromMeeting) {
  const TcpStoreServer server({.secret = "the secret of this job"});
  set("MASTER_PORT", std::to_string(server.port()).c_str());
  set("LOCKSTEP_LAUNCHER_STORE", "1");
  set("LOCKSTEP_SECRET", "the secret of this job");

  std::atomic<bool> stop{false};
  std::atomic<int> visits{0};
  std::thread intruder([&] {
    std::vector<std::unique_ptr<RawClient>> half_open, slow;
    for (int i = 0; !stop; ++i) {
      half_open.push_back(std::make_unique<RawClient>(server.port()));  // stays silent
      slow.push_back(std::make_unique<RawClient>(server.port()));
      for (auto& client : slow) client->send("x");  // a byte at a time
      RawClient garbage(server.port());
      garbage.send(std::string(static_cast<std::size_t>(1 + i % 300), static_cast<char>(i)));
      RawClient scanner(server.port());
      scanner.send("GET / HTTP/1.1\r\n\r\n");
      if (half_open.size() > 100) half_open.clear();
      if (slow.size() > 50) slow.clear();
      ++visits;
    }
  });
  while (visits < 300) {
    const int before = visits;
    expect_one_group(join_world(4));
    while (visits == before) std::this_thread::yield();
  }
  stop = true;
  intruder.join();
}

}  // namespace
}  // namespace lockstep
