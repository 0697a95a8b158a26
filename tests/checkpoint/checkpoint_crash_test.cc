// Checkpoint folders after their writer was killed or the disk was full.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr int kSkipped = 77;

// A process of its own that ends with what `body` returns, or with 1 if it throws.
pid_t start_process(const std::function<int()>& body) {
  const pid_t process = ::fork();
  if (process != 0) return process;
  int status = 1;
  try {
    status = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  ::_exit(status);
}

int wait_for(pid_t process) {
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return status;
}

std::string contents(std::int64_t step, char file, std::size_t bytes = 40000) {
  std::string text = std::to_string(step) + file;
  text.resize(bytes, static_cast<char>('a' + step % 26));
  return text;
}

void save_files(const fs::path& folder, std::int64_t step, std::size_t bytes = 40000) {
  CheckpointWriter writer(folder, step);
  for (char file : {'x', 'y', 'z'}) writer.add_file(std::string(1, file), contents(step, file, bytes));
  writer.publish();
}

TEST(CheckpointCrash, AKilledWriterLeavesAValidLatest) {
  TemporaryFolder folder;
  const auto begin = steady_clock::now();
  for (std::int64_t step : {1, 2, 3}) save_files(folder.path(), step);
  const auto saving = std::chrono::duration_cast<microseconds>(steady_clock::now() - begin) / 3;

  std::mt19937 random(1);
  std::int64_t before = 3;
  int interrupted = 0;
  for (int kill = 0; kill < 40; ++kill) {
    SCOPED_TRACE(kill);
    // The writer says that it begins, and each step that it has published; every third time it writes the last one
    // again.
    std::array<int, 2> pipe;
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t writer = start_process([&] {
      if (::write(pipe[1], "x", 1) != 1) return 1;
      for (std::int64_t step = kill % 3 == 0 ? before : before + 1;; ++step) {
        save_files(folder.path(), step);
        if (::write(pipe[1], &step, sizeof step) != sizeof step) return 1;
      }
      return 1;
    });
    ASSERT_GT(writer, 0);
    ::close(pipe[1]);
    char begins;
    ASSERT_EQ(::read(pipe[0], &begins, 1), 1);
    std::this_thread::sleep_for(microseconds(random() % (3 * saving.count() + 1)));
    ::kill(writer, SIGKILL);
    const int status = wait_for(writer);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    std::int64_t published = before, step = 0;
    while (::read(pipe[0], &step, sizeof step) == sizeof step) published = step;
    ::close(pipe[0]);

    const LatestCheckpoint latest = find_latest_checkpoint(folder.path());
    ASSERT_TRUE(latest.checkpoint.has_value());
    EXPECT_TRUE(latest.damaged.empty()) << latest.damaged[0];
    EXPECT_GE(latest.checkpoint->step, published);
    EXPECT_LE(latest.checkpoint->step, published + 1);
    before = latest.checkpoint->step;
    for (char file : {'x', 'y', 'z'}) {
      EXPECT_EQ(folder.read(fmt::format("step-{:08}/{}", before, file)), contents(before, file));
    }
    bool temporary = false;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      const bool published_name = entry.path().filename().string().starts_with("step-");
      if (published_name) {
        EXPECT_NO_THROW(open_checkpoint(entry.path()));
      }
      temporary |= !published_name;
    }
    interrupted += temporary;
  }
  // Most of the time goes into writing, so most kills must have hit that.
  EXPECT_GT(interrupted, 10);
  save_files(folder.path(), before + 1);
  EXPECT_EQ(folder.entries(), 2);
}

// Saves a checkpoint that the disk has no room for, after a small one that fits; 0 if all is as it should be.
int overflow(const fs::path& folder, const std::string& reason) {
  save_files(folder, 1, 1000);
  std::string message;
  try {
    save_files(folder, 2, 2'000'000);
  } catch (const Error& error) {
    message = error.what();
  }
  const LatestCheckpoint latest = find_latest_checkpoint(folder);
  const bool intact = latest.checkpoint && latest.checkpoint->step == 1 && latest.damaged.empty();
  const bool clean = std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 1;
  const bool named = message.find("step-00000002/x: " + reason) != message.npos;
  if (!intact || !clean || !named) {
    std::fprintf(stderr, "intact %d, clean %d, message: %s\n", intact, clean, message.c_str());
    return 1;
  }
  save_files(folder, 3, 1000);
  return find_latest_checkpoint(folder).checkpoint->step == 3 ? 0 : 1;
}

TEST(CheckpointCrash, AFileThatGrowsTooLargeLeavesTheOlderOne) {
  TemporaryFolder folder;
  const int status = wait_for(start_process([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1'000'000, 1'000'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return kSkipped;
    return overflow(folder.path(), "File too large");
  }));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CheckpointCrash, AFullDiskLeavesTheOlderOne) {
  TemporaryFolder folder;
  const int status = wait_for(start_process([&] {
    // A small disk that nobody else sees.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      return kSkipped;
    }
    return overflow(folder.path(), "No space left on device");
  }));
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "may not mount a small disk";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace lockstep
