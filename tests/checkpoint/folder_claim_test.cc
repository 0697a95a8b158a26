#include "lockstep/checkpoint/folder_claim.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/unprivileged.h"

namespace lockstep {
namespace {

TEST(FolderClaim, IsHeldByOneAtATime) {
  TemporaryFolder folder;
  const std::filesystem::path made = folder / "a/b";
  std::optional<FolderClaim> claim(std::in_place, made, 0);
  EXPECT_ERROR(FolderClaim(made, 0), "checkpoint: another run writes to " + made.string());
  FolderClaim other(folder / "c", 0);
  claim.reset();
  FolderClaim again(made, 0);
}

// A folder may come from somebody else, whose links would name other files of the user.
TEST(FolderClaim, WritesThroughNoLink) {
  TemporaryFolder folder, other;
  other.write("victim", "text");
  for (const char* name : {".lock", "run.json", "report.html", "receipt.state.leaves", "anything"}) {
    std::filesystem::create_symlink(other / "victim", folder / name);
    EXPECT_ERROR(FolderClaim(folder.path(), 0), std::string(name) + " is a symbolic link");
    std::filesystem::remove(folder / name);
  }
  EXPECT_EQ(other.read("victim"), "text");
  std::filesystem::create_directory_symlink(folder.path(), other / "run");
  FolderClaim claim(other / "run", 0);  // the user's own way to name the folder
}

TEST(FolderClaim, RemovesWhatKilledProcessesWereWriting) {
  TemporaryFolder folder;
  for (const char* name : {".lockstep-0123456789abcdef.tmp", ".lockstep-0123456789abcdee.tmp", "a.tmp"}) {
    folder.write(name, "half a fi");
    if (!std::string_view(name).ends_with("ee.tmp")) {
      std::filesystem::last_write_time(folder / name,
                                       std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    }
  }
  FolderClaim claim(folder.path(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder / ".lockstep-0123456789abcdef.tmp"));
  EXPECT_TRUE(std::filesystem::exists(folder / ".lockstep-0123456789abcdee.tmp"));  // another command may write it now
  EXPECT_TRUE(std::filesystem::exists(folder / "a.tmp"));
}

// The lock of a host that crashed outlives it on a file server.
TEST(FolderClaim, AProcessOfAnotherHostGetsMoreTime) {
  TemporaryFolder folder;
  std::optional<FolderClaim> claim(std::in_place, folder.path(), 0);
  EXPECT_TRUE(folder.read(".lock").starts_with(fmt::format("process {} on ", ::getpid())));
  EXPECT_EQ(FolderClaim::holder_elsewhere(folder.path()), "");
  std::ofstream(folder / ".lock") << "process 7 on a host elsewhere\n";  // the same file, which stays locked
  EXPECT_EQ(FolderClaim::holder_elsewhere(folder.path()), "process 7 on a host elsewhere");
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2'500));
    claim.reset();
  });
  FolderClaim again(folder.path(), 0);
  later.join();
  EXPECT_EQ(FolderClaim::holder_elsewhere(folder.path()), "");
}

// Also where it is not gone at once.
TEST(FolderClaim, GoesWithItsProcess) {
  TemporaryFolder folder;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    FolderClaim claim(folder.path(), 0);
    if (::write(pipe[1], "x", 1) != 1) ::_exit(1);
    ::usleep(300'000);
    ::raise(SIGKILL);
  }
  char byte;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  for (const int fd : pipe) ::close(fd);
  FolderClaim claim(folder.path(), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(FolderClaim, SaysWhyNothingCanBeWritten) {
  TemporaryFolder folder;
  const std::string file = folder.write("file", "");
  EXPECT_ERROR(FolderClaim(file, 0), file);
  EXPECT_ERROR(FolderClaim(file + "/below", 0), "checkpoint: cannot make folder " + file);
  std::filesystem::create_directory(folder / "locked");
  ASSERT_EQ(::chmod((folder / "locked").c_str(), 0555), 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const Unprivileged user;
  EXPECT_ERROR(FolderClaim(folder / "locked", 0), "locked/.tmp-step-00000000: Permission denied");
}

}  // namespace
}  // namespace lockstep
