#include "lockstep/launch/spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/launch/rendezvous.h"
#include "lockstep/net/comm_error.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/process_limits.h"
#include "tests/processes.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// The process numbers that ranks wrote into their files.
pid_t read_process(const TemporaryFolder& folder, int rank) {
  for (int i = 0; i < 2000; ++i) {
    const std::string text = folder.read(std::to_string(rank));
    if (text.ends_with("\n")) return std::stoi(text);
    std::this_thread::sleep_for(10ms);
  }
  throw std::runtime_error("a rank did not start");
}
void write_process(const TemporaryFolder& folder, int rank) {
  folder.write(std::to_string(rank), std::to_string(::getpid()) + "\n");
}

void meet(const TemporaryFolder& folder, int rank) {
  const Rendezvous group = resolve_rendezvous({.timeout = 20s});
  if (group.rank != rank || group.local_rank != rank || group.local_world_size != group.world_size) {
    throw std::runtime_error("another rank");
  }
  folder.write(std::to_string(rank), std::to_string(group.world_size));
}

TEST(Spawn, RanksMeet) {
  const TemporaryFolder folder;
  spawn([&](int rank) { meet(folder, rank); }, {.nprocs = 3});
  for (const char* rank : {"0", "1", "2"}) EXPECT_EQ(folder.read(rank), "3");
  // The process has not changed, so it may spawn again.
  spawn([&](int rank) { meet(folder, rank); }, {.nprocs = 2});
  EXPECT_EQ(folder.read("1"), "2");
}

TEST(Spawn, RunsTheProgramAnew) {
  // The new process gets here, too, but with a folder of its own.
  const TemporaryFolder folder;
  const EnvironmentVariable path("LOCKSTEP_TEST_FOLDER", std::getenv("LOCKSTEP_TEST_FOLDER")
                                                             ? std::getenv("LOCKSTEP_TEST_FOLDER")
                                                             : folder.path().c_str());
  std::string program = "spawn_test", filter = "--gtest_filter=Spawn.RunsTheProgramAnew";
  char* argv[] = {program.data(), filter.data(), nullptr};
  const auto body = [](int rank) {
    const Rendezvous group = resolve_rendezvous({.timeout = 20s});
    const std::string file = std::string(std::getenv("LOCKSTEP_TEST_FOLDER")) + "/" + std::to_string(rank);
    std::ofstream(file) << group.rank << " of " << group.world_size;
    if (rank == 1) throw std::runtime_error("as it should");
  };
  std::thread idle([] { std::this_thread::sleep_for(100ms); });  // here, several threads are allowed
  EXPECT_ERROR(spawn(2, argv, body, {.nprocs = 2}), "rank 1 failed: as it should");
  idle.join();
  EXPECT_EQ(folder.read("0"), "0 of 2");
  EXPECT_EQ(folder.read("1"), "1 of 2");
}

TEST(Spawn, RefusesToForkWhatDoesNotSurviveIt) {
  const int status = status_of_process([] {
    note_broken_by_fork("CUDA");
    EXPECT_ERROR(spawn([](int) {}),
                 "spawn: this process has called CUDA, which does not survive fork(); call spawn before");
    EXPECT_FALSE(is_broken_by_fork());
    EXPECT_EQ(status_of_process([] { return is_broken_by_fork() ? 7 : 0; }), 7);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(Spawn, AnExceptionComesBackWithItsRank) {
  const auto fail_in_one = [](int rank) {
    if (rank == 1) throw Error("conv2d: input has 3 channels, weight expects 4");
  };
  EXPECT_ERROR(spawn(fail_in_one, {.nprocs = 2}), "rank 1 failed: conv2d: input has 3 channels, weight expects 4");
  EXPECT_ERROR(spawn([](int) { throw 1; }), "rank 0 failed: an exception that is not a std::exception");
  EXPECT_ERROR(spawn([](int) { throw Error(std::string(1 << 20, 'x')); }), "rank 0 failed: xxx");
}

TEST(Spawn, OtherEndsAreNamed) {
  EXPECT_ERROR(spawn([](int) { ::raise(SIGKILL); }), "rank 0 was killed by signal 9 (Killed)");
  EXPECT_ERROR(spawn([](int) { ::_exit(3); }), "rank 0 exited with status 3");
}

// As the engine's TaskError wraps what a task threw.
class Wrapping : public Error {
 public:
  explicit Wrapping(const CommError& cause) : Error("a task"), cause_(std::make_exception_ptr(cause)) {}
  std::exception_ptr cause() const override { return cause_; }

 private:
  std::exception_ptr cause_;
};

// The lost rank ends last. The errors of the others, wrapped or not, must not come back.
TEST(Spawn, TheRankThatFailedFirstIsNamedAndNotThoseThatLostIt) {
  const auto body = [](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(200ms);
      throw Error("out of luck");
    }
    const CommError lost("rank 1 lost (connection closed)", 1);
    if (rank == 0) throw lost;
    throw Wrapping(lost);
  };
  EXPECT_ERROR(spawn(body, {.nprocs = 3}), "rank 1 failed: out of luck");
}

TEST(Spawn, WhereNobodyFailedByItselfALossIsTold) {
  const auto body = [](int rank) {
    if (rank == 0) throw CommError("rank 1 lost (connection closed)", 1);
  };
  EXPECT_ERROR(spawn(body, {.nprocs = 2}), "rank 0 failed: rank 1 lost (connection closed)");
}

TEST(Spawn, OneThatFailsEndsTheOthers) {
  const TemporaryFolder folder;
  const auto body = [&](int rank) {
    if (rank == 2) ::signal(SIGTERM, SIG_IGN);  // refuses to end
    write_process(folder, rank);
    if (rank != 1) std::this_thread::sleep_for(1h);
    read_process(folder, 0), read_process(folder, 2);
    throw Error("enough");
  };
  EXPECT_ERROR(spawn(body, {.nprocs = 3, .grace = 20ms}), "rank 1 failed: enough");
  for (const int rank : {0, 1, 2}) EXPECT_NE(::kill(read_process(folder, rank), 0), 0) << rank;
}

TEST(Spawn, NotJoinedItGoesOnAndIsJoinedLater) {
  const TemporaryFolder folder;
  Spawned ranks = spawn(
      [&](int rank) {
        write_process(folder, rank);
        throw Error("late");
      },
      {.nprocs = 1, .join = false});
  read_process(folder, 0);
  EXPECT_ERROR(ranks.join(), "rank 0 failed: late");
  EXPECT_ERROR(ranks.join(), "rank 0 failed: late");
}

TEST(Spawn, NotJoinedAtAllItIsWaitedFor) {
  const TemporaryFolder folder;
  {
    const Spawned ranks = spawn(
        [&](int) {
          std::this_thread::sleep_for(100ms);
          folder.write("done", "");
        },
        {.join = false});
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "done"));
}

TEST(Spawn, ADaemonEndsWithWhatHoldsIt) {
  const TemporaryFolder folder;
  {
    const Spawned ranks = spawn(
        [&](int rank) {
          write_process(folder, rank);
          std::this_thread::sleep_for(1h);
        },
        {.nprocs = 2, .join = false, .daemon = true, .grace = 20s});
    read_process(folder, 0), read_process(folder, 1);
  }
  for (const int rank : {0, 1}) EXPECT_NE(::kill(read_process(folder, rank), 0), 0);
}

TEST(Spawn, NobodyOutlivesAParentThatIsKilled) {
  const TemporaryFolder folder;
  const pid_t parent = ::fork();
  if (parent == 0) {
    spawn(
        [&](int rank) {
          write_process(folder, rank);
          std::this_thread::sleep_for(1h);
        },
        {.nprocs = 2});
    ::_exit(0);
  }
  const pid_t ranks[] = {read_process(folder, 0), read_process(folder, 1)};
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  for (const pid_t rank : ranks) EXPECT_TRUE(ends(rank));
}

TEST(Spawn, ForksOnlyASingleThread) {
  std::promise<void> end;
  std::thread idle([&] { end.get_future().wait(); });
  EXPECT_ERROR(spawn([](int) {}), "this process has 2 threads");
  end.set_value();
  idle.join();
  Spawned ranks = spawn([](int) { std::this_thread::sleep_for(50ms); }, {.join = false});
  EXPECT_ERROR(spawn([](int) {}), "this process has 2 threads");
  ranks.join();
  spawn([](int) {});
}

TEST(Spawn, NobodyIsAnError) {
  EXPECT_ERROR(spawn([](int) {}, {.nprocs = 0}),
               "spawn: 0 processes, expected from 1 to 200: device_count() counts GPUs, and there is none here");
}

}  // namespace
}  // namespace lockstep
